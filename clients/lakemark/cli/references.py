"""``lakemark branch`` and ``lakemark tag``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated

import typer

from lakemark import Client
from lakemark.cli.context import invocation
from lakemark.cli.output import show_done, show_fields, show_json, show_rows, size_text, time_text
from lakemark.cli.tables import Name
from lakemark.client.comparison import DryMerge, FileChanges
from lakemark.client.model import Reference

branch = typer.Typer(
    help="Branches of a table: lines of versions that can be written without affecting its readers.",
    no_args_is_help=True,
)
tag = typer.Typer(help="Tags of a table: names for versions, which keep them.", no_args_is_help=True)

ReferenceName = Annotated[str, typer.Argument(help="name of the branch or tag")]
FromVersion = Annotated[int, typer.Option("--version", min=0, help="version that it begins with; 0: the latest")]
RetainDays = Annotated[float, typer.Option(min=0, help="drop it after this many days; 0: never")]
Compared = Annotated[str, typer.Argument(help="a branch, a tag, or a version: dev, dev@v5, v5 (of main)")]
_CHANGES = ["files", "rows", "size"]
_HEADINGS = ["name", "version", "from", "fork", "made (UTC)", "retained"]


@branch.command("create")
def create_branch(
    context: typer.Context,
    table: Name,
    name: ReferenceName,
    source: Annotated[str, typer.Option("--from", help="branch that it forks from")] = "main",
    version: FromVersion = 0,
    retain_days: RetainDays = 0,
) -> None:
    """Creates a branch, without copying data."""
    retain = dt.timedelta(days=retain_days)
    _create(
        context,
        lambda client: client.branches.create(table, name, from_branch=source, from_version=version, retain=retain),
        lambda made: f"branch {made.name} of {table} forks from {made.parent} at version {made.fork_version}",
    )


@branch.command("list")
def list_branches(context: typer.Context, table: Name) -> None:
    """Lists branches with their latest versions."""
    _list(context, lambda client: client.branches.list(table))


@branch.command("merge")
def merge_branch(
    context: typer.Context,
    table: Name,
    name: ReferenceName,
    into: Annotated[str, typer.Option(help="branch that gets the changes")] = "main",
    fast_forward_only: Annotated[
        bool, typer.Option("--fast-forward-only", help="merge only if that branch has no changes of its own")
    ] = False,
) -> None:
    """Merges the changes of a branch into another one, as one version. 'main --into dev' brings dev up to date."""
    call = invocation(context)
    with call.client() as client:
        merged = client.branches.merge(table, name, into=into, fast_forward_only=fast_forward_only)
    if call.as_json:
        show_json(merged)
    else:
        how = "; both have the same now" if merged.fast_forward else ""
        count = f"{merged.replayed} version{'s' if merged.replayed != 1 else ''}"
        show_done(f"version {merged.version} of {into} of {table} replays {count} of {name}{how}")


@branch.command("compare")
def compare_branches(
    context: typer.Context,
    table: Name,
    left: Compared,
    right: Compared,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="largest number of partitions to show; 0: all")
    ] = 20,
) -> None:
    """Compares two branches, tags or versions: what only one of them has, and whether they can be merged."""
    call = invocation(context)
    with call.client() as client:
        comparison = client.branches.compare(table, left, right, limit=limit)
    if call.as_json:
        show_json(comparison)
        return
    sides = ((left, comparison.left), (right, comparison.right))
    rows = [
        [name, f"{side.branch}@v{side.version}", side.shared_version, side.versions, *_changes(side.changes)]
        for name, side in sides
    ]
    show_rows(["", "is", "shared up to", "own versions", *_CHANGES], rows)
    if comparison.partitions:
        title = (
            f"{len(comparison.partitions)} of {comparison.partitions_changed} partitions with changes, most files first"
        )
        show_rows(
            ["partition", "changed on", *_CHANGES],
            [
                [partition.name or "–", name, *_changes(changes)]
                for partition in comparison.partitions
                for name, changes in ((left, partition.left), (right, partition.right))
                if changes.added_files or changes.removed_files
            ],
            title=title,
        )
    if comparison.groups:
        title = f"{len(comparison.groups)} of {comparison.groups_on_both} file groups that both changed"
        show_rows(["partition", "file group"], comparison.groups, title=title)
    show_fields(
        {
            f"{left} into {right}": _merge_text(comparison.left_into_right),
            f"{right} into {left}": _merge_text(comparison.right_into_left),
        }
    )


@branch.command("drop")
def drop_branch(context: typer.Context, table: Name, name: ReferenceName) -> None:
    """Drops a branch. Its open writers can no longer commit."""
    call = invocation(context)
    with call.client() as client:
        client.branches.drop(table, name)
    _tell_dropped(context, "branch", table, name)


@tag.command("create")
def create_tag(
    context: typer.Context,
    table: Name,
    name: ReferenceName,
    source: Annotated[str, typer.Option("--branch", help="the branch whose version it names")] = "main",
    version: FromVersion = 0,
    retain_days: RetainDays = 0,
) -> None:
    """Creates a tag: a name for a version, which is kept as long as the tag exists."""
    retain = dt.timedelta(days=retain_days)
    _create(
        context,
        lambda client: client.tags.create(table, name, branch=source, version=version, retain=retain),
        lambda made: f"tag {made.name} of {table} keeps version {made.version}",
    )


@tag.command("list")
def list_tags(context: typer.Context, table: Name) -> None:
    """Lists tags with the versions that they keep."""
    _list(context, lambda client: client.tags.list(table))


@tag.command("drop")
def drop_tag(context: typer.Context, table: Name, name: ReferenceName) -> None:
    """Drops a tag. Its version may then be cleaned."""
    call = invocation(context)
    with call.client() as client:
        client.tags.drop(table, name)
    _tell_dropped(context, "tag", table, name)


def _changes(changes: FileChanges) -> list[str]:
    """The cells under ``_CHANGES``."""
    pairs = (
        (changes.added_files, changes.removed_files),
        (changes.added_rows, changes.removed_rows),
        (size_text(changes.added_bytes), size_text(changes.removed_bytes)),
    )
    return [f"+{added} -{removed}" for added, removed in pairs]


def _merge_text(merge: DryMerge) -> str:
    if merge.refused:
        return merge.refused
    if not merge.replayed:
        return "nothing to merge"
    how = "as a fast-forward" if merge.fast_forward else "without a conflict"
    return f"can be merged {how}: {merge.replayed} version{'s' if merge.replayed != 1 else ''}"


def _create(context: typer.Context, make: Callable[[Client], Reference], say: Callable[[Reference], str]) -> None:
    call = invocation(context)
    with call.client() as client:
        made = make(client)
    call.tell(made, say(made))


def _tell_dropped(context: typer.Context, kind: str, table: str, name: str) -> None:
    invocation(context).tell({"dropped": name}, f"{kind} {name} of {table} is dropped")


def _list(context: typer.Context, find: Callable[[Client], list[Reference]]) -> None:
    call = invocation(context)
    with call.client() as client:
        references = find(client)
    if call.as_json:
        show_json(references)
        return
    rows = [
        [
            reference.name,
            reference.version,
            reference.parent or None,
            reference.fork_version or None,
            time_text(reference.created_ms),
            str(dt.timedelta(milliseconds=reference.retain_ms)) if reference.retain_ms else "for ever",
        ]
        for reference in references
    ]
    show_rows(_HEADINGS, rows)
