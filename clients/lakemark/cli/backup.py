"""``lakemark backup`` and ``restore``: work on a store itself, not through a service."""

from __future__ import annotations

from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from lakemark.cli.context import invocation
from lakemark.cli.output import show_done, show_json, show_rows, size_text
from lakemark.cli.process import STORE_DEFAULT, missing, raise_problems

if TYPE_CHECKING:
    from lakemark_server.backup import Manifest, Repository


class _TakeByDefault(TyperGroup):
    """``lakemark backup DIR`` is ``lakemark backup take DIR``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["take", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_TakeByDefault,
    no_args_is_help=True,
    help="Consistent copies of a whole store: 'lakemark backup DIR' takes one, also while the store is served.",
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="the directory of backups", show_default=False)]
StoreUrl = Annotated[str, typer.Option("--store", envvar="LAKEMARK_STORE", help="URL of the key-value store")]
Keep = Annotated[int | None, typer.Option(help="remove all but so many of the newest backups", min=1)]


@app.command("take")
def take(
    context: typer.Context,
    directory: Directory,
    store: StoreUrl = STORE_DEFAULT,
    keep: Keep = None,
    verify: Annotated[bool, typer.Option(help="check every invariant of the store, too")] = False,
) -> None:
    """Copies what no backup in DIR has yet, and adds one. Data files are not part of it."""
    repository = _repository(directory)
    from lakemark_server import backup
    from lakemark_server.process import open_existing
    from lakemark_server.verify import verify as check

    opened = open_existing(store, read_only=True)
    try:
        with repository.writing():
            manifest = backup.take(opened, repository, _release())
            removed = repository.prune(keep) if keep else []
        problems = check(opened) if verify else []
    finally:
        opened.close()
    if invocation(context).as_json:
        show_json({**_fields(manifest), "removed": removed, "problems": problems})
    else:
        show_done(
            f"backup {manifest.id}: {manifest.pairs} pairs, {size_text(manifest.bytes)}; new: {manifest.new_chunks} of "
            f"{len(manifest.chunks)} chunks, {size_text(manifest.new_bytes)} written"
            + (f"; removed {len(removed)} older ones" if removed else "")
        )
    what = "invariants of the store do not hold; the backup holds the store as it is"
    raise_problems(problems, what, tell=not invocation(context).as_json)


@app.command("list")
def list_(context: typer.Context, directory: Directory) -> None:
    """Shows the complete backups in DIR, oldest first."""
    repository = _repository(directory)
    found = [repository.manifest(backup_id) for backup_id in repository.ids()]
    if invocation(context).as_json:
        show_json([_fields(manifest) for manifest in found])
        return
    show_rows(
        ("backup", "store", "lakemark", "pairs", "holds", "written for it"),
        [(one.id, one.store, one.lakemark, one.pairs, size_text(one.bytes), size_text(one.new_bytes)) for one in found],
    )


@app.command("check")
def check(context: typer.Context, directory: Directory) -> None:
    """Reads all backups in DIR and compares every byte with its hash."""
    repository = _repository(directory)
    problems = repository.check()
    if invocation(context).as_json:
        show_json({"backups": len(repository.ids()), "problems": problems})
    elif not problems:
        show_done(f"{len(repository.ids())} backups are complete and undamaged")
    what = "parts of the backups are damaged or missing; remove these files and take a backup, which writes them again"
    raise_problems(problems, what, tell=not invocation(context).as_json)


@app.command("prune")
def prune(
    context: typer.Context,
    directory: Directory,
    keep: Annotated[int, typer.Option(help="how many of the newest backups stay", min=1)],
) -> None:
    """Removes older backups, and what no other one needs."""
    repository = _repository(directory)
    repository.ids()
    with repository.writing():
        removed = repository.prune(keep)
    if invocation(context).as_json:
        show_json({"removed": removed})
    else:
        show_done(f"removed {len(removed)} backups; {len(repository.ids())} are left")


def restore(
    context: typer.Context,
    directory: Directory,
    store: StoreUrl = STORE_DEFAULT,
    backup: Annotated[str, typer.Option(help="its id; default: the newest")] = "",
    verify: Annotated[bool, typer.Option(help="compare the store with the backup and check its invariants")] = True,
    start_over: Annotated[bool, typer.Option("--start-over", help="drop what an earlier restore has left")] = False,
) -> None:
    """Fills an empty store of any kind from a backup in DIR; asked again, goes on where it was cut off."""
    repository = _repository(directory)
    from lakemark_server import backup as backups
    from lakemark_server.process import open_or_make

    manifest = repository.manifest(backup)
    opened = open_or_make(store)
    try:
        if start_over:
            backups.start_over(opened)
        backups.restore(opened, repository, manifest, check=verify)
    finally:
        opened.close()
    if invocation(context).as_json:
        show_json({**_fields(manifest), "verified": verify})
    else:
        show_done(f"restored backup {manifest.id}: {manifest.pairs} pairs" + (", verified" if verify else ""))


def _repository(directory: Path) -> Repository:
    try:
        from lakemark_server.backup import Repository
    except ImportError as error:
        raise missing("backup", "server", error) from error
    return Repository(directory)


def _fields(manifest: Manifest) -> dict[str, Any]:
    """All but the list of chunks."""
    known = asdict(manifest) | {"chunks": len(manifest.chunks)}
    return known | {"pairs": manifest.pairs, "bytes": manifest.bytes, "content": manifest.content}


def _release() -> str:
    try:
        return metadata.version("lakemark")
    except metadata.PackageNotFoundError:
        return "unknown"
