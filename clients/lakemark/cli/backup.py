"""``lakemark backup`` and ``restore``, which work on a store itself and not through a service."""

from __future__ import annotations

from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from lakemark.cli.context import invocation
from lakemark.cli.output import counted, show_done, show_json, show_rows, size_text
from lakemark.cli.process import missing, raise_problems
from lakemark_core.defaults import STORE_URL
from lakemark_core.errors import LakemarkError

if TYPE_CHECKING:
    from lakemark_server.backup import Manifest, Repository


class _TakeByDefault(TyperGroup):
    """Makes ``lakemark backup DIR`` mean ``lakemark backup take DIR``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["take", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_TakeByDefault,
    no_args_is_help=True,
    help="Backups: consistent copies of the metadata of a whole store. 'lakemark backup DIR' takes one; the store may "
    "be in use. Data files are not copied.",
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="the directory of backups", show_default=False)]
StoreUrl = Annotated[str, typer.Option("--store", envvar="LAKEMARK_STORE", help="URL of the key-value store")]
_HEADINGS = ("backup", "store", "lakemark", "pairs", "holds", "written for it", "data files", "data size", "problem")
Keep = Annotated[int | None, typer.Option(help="number of newest backups to keep; older ones are removed", min=1)]


@app.command("take")
def take(
    context: typer.Context,
    directory: Directory,
    store: StoreUrl = STORE_URL,
    keep: Keep = None,
    verify: Annotated[bool, typer.Option(help="also check the store as 'lakemark verify' does")] = False,
) -> None:
    """Takes a backup into DIR. It copies only what no earlier backup there has, and no data files."""
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
            + (f"; removed {counted(len(removed), 'older backup')}" if removed else "")
        )
        _show_needs(manifest, "The backup holds metadata only.")
    what = "invariants of the store do not hold; the backup holds the store as it is"
    raise_problems(problems, what, tell=not invocation(context).as_json)


@app.command("list")
def list_(context: typer.Context, directory: Directory) -> None:
    """Lists the complete backups in DIR, oldest first, and says what is wrong with those that cannot be used.

    'data files' and 'data size' are not in a backup: a restored store needs them where they were.
    """
    backups = _repository(directory).manifests()
    problems = [manifest for _, manifest in backups if isinstance(manifest, LakemarkError)]
    if invocation(context).as_json:
        show_json(
            [
                {"id": backup_id, "problem": manifest.message}
                if isinstance(manifest, LakemarkError)
                else {**_fields(manifest), "problem": None}
                for backup_id, manifest in backups
            ]
        )
    else:
        width = len(_HEADINGS) - (not problems)
        show_rows(_HEADINGS[:width], [_row(*backup)[:width] for backup in backups], below=5)
    if problems:
        raise type(problems[0])(
            f"{len(problems)} of {counted(len(backups), 'backup')} cannot be used: see 'problem' above; "
            "'lakemark backup check' reads all of the others"
        )


@app.command("check")
def check(context: typer.Context, directory: Directory) -> None:
    """Reads all backups in DIR and compares every byte with its hash. Backups contain no data files."""
    repository = _repository(directory)
    problems = repository.check()
    count = len(repository.ids())
    if invocation(context).as_json:
        show_json({"backups": count, "problems": problems})
    elif not problems:
        show_done(f"{counted(count, 'backup')} {'is' if count == 1 else 'are'} complete and undamaged")
        newest = repository.manifest() if count else None
        if newest is not None:
            _show_needs(newest, f"They hold metadata only. Of the newest one, {newest.id}:")
    what = "parts of the backups are damaged or missing; remove these files and take a backup, which writes them again"
    raise_problems(problems, what, tell=not invocation(context).as_json)


@app.command("prune")
def prune(
    context: typer.Context,
    directory: Directory,
    keep: Annotated[int, typer.Option(help="number of newest backups to keep", min=1)],
) -> None:
    """Removes all but the newest backups."""
    repository = _repository(directory)
    repository.ids()
    with repository.writing():
        removed = repository.prune(keep)
    if invocation(context).as_json:
        show_json({"removed": removed})
    else:
        show_done(f"removed {counted(len(removed), 'backup')}; {len(repository.ids())} left")


def restore(
    context: typer.Context,
    directory: Directory,
    store: StoreUrl = STORE_URL,
    backup: Annotated[str, typer.Option(help="id of the backup; default: the newest one")] = "",
    verify: Annotated[
        bool, typer.Option(help="compare the store with the backup afterwards, and check it as 'lakemark verify' does")
    ] = True,
    start_over: Annotated[
        bool, typer.Option("--start-over", help="first remove what an interrupted restore has left")
    ] = False,
) -> None:
    """Fills a new store, of any kind, from a backup in DIR. A backup contains no data files.

    A restore that was cut off goes on where it stopped when it is run again.
    """
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
        _show_needs(manifest, "Only metadata was restored. 'lakemark verify --files' on this store checks the rest.")


def _repository(directory: Path) -> Repository:
    try:
        from lakemark_server.backup import Repository
    except ImportError as error:
        raise missing("backup", "server", error) from error
    return Repository(directory)


def _show_needs(manifest: Manifest, what: str) -> None:
    """Shows what the user must keep, or must have, beside the backup."""
    needs = manifest.needs
    if needs is None:
        typer.echo(f"{what} An older release took this backup, so which data files it needs is not known.")
        return
    files = f"{counted(needs.files, 'data file')} ({size_text(needs.bytes)})"
    tables = f"the latest versions of {counted(needs.lake_tables, 'lake table')}"
    typer.echo(
        f"{what} A restored store needs {files} of {tables}, where they are now; reading older versions needs more."
    )
    if needs.warehouse_tables:
        typer.echo(f"It needs the files of {counted(needs.warehouse_tables, 'warehouse table')}, too.")
    if needs.uncounted_tables:
        typer.echo(f"The files of {counted(needs.uncounted_tables, 'lake table')} were not counted.")
    for place in needs.directories:
        typer.echo(f"  {place}")
    if needs.directories_left_out:
        more = "directory" if needs.directories_left_out == 1 else "directories"
        typer.echo(f"  … and {needs.directories_left_out} more {more}")


def _row(backup_id: str, manifest: Manifest | LakemarkError) -> list[object]:
    """The cells under ``_HEADINGS``."""
    if isinstance(manifest, LakemarkError):
        return [backup_id, *[None] * (len(_HEADINGS) - 2), manifest.message]
    data = [manifest.needs.files, size_text(manifest.needs.bytes)] if manifest.needs else [None, None]
    sizes = [size_text(manifest.bytes), size_text(manifest.new_bytes)]
    return [backup_id, manifest.store, manifest.lakemark, manifest.pairs, *sizes, *data, None]


def _fields(manifest: Manifest) -> dict[str, Any]:
    """All fields except the list of chunks."""
    known = asdict(manifest) | {"chunks": len(manifest.chunks)}
    return known | {"pairs": manifest.pairs, "bytes": manifest.bytes, "content": manifest.content}


def _release() -> str:
    try:
        return metadata.version("lakemark")
    except metadata.PackageNotFoundError:
        return "unknown"
