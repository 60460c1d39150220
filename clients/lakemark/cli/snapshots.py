"""The snapshot that a command reads, from the table's name as in Spark's SQL, or from options."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemark import Client, SnapshotOf
from lakemark_core.snapshot_names import SnapshotPart, parse_snapshot_name

SnapshotName = Annotated[
    str,
    typer.Argument(
        metavar="DATABASE.TABLE[@SNAPSHOT]",
        help="a snapshot is @v12, @2026-11-20T10:00 (UTC), @BRANCH, @TAG or @BRANCH@v12; default: the latest of main",
    ),
]
BranchName = Annotated[
    str, typer.Argument(metavar="DATABASE.TABLE[@BRANCH]", help="db.t@dev is the same as db.t --branch dev")
]
RangeName = Annotated[
    str,
    typer.Argument(
        metavar="DATABASE.TABLE[@[BRANCH@]vN..vM]", help="db.t@v10..v12 is the same as db.t --since 10 --upto 12"
    ),
]


def snapshot_of(
    client: Client,
    name: str,
    *,
    version: int | None = None,
    timestamp: str | None = None,
    branch: str = "",
    tag: str = "",
) -> SnapshotOf:
    """The snapshot in the name or the options. Raises InvalidName, and a usage error for both at once."""
    table, part = parse_snapshot_name(name)
    if part.since is not None:
        raise typer.BadParameter(f"{name}: this command reads one version; 'lakemark files changes' reads a range")
    if part == SnapshotPart():
        return SnapshotOf(table, version, timestamp, branch, tag)
    _refuse_both(name, version is not None or timestamp is not None or bool(branch or tag))
    alone = part.version is None and part.timestamp_ms is None
    if alone and any(tag.name == part.reference for tag in client.tags.list(table)):
        return SnapshotOf(table, tag=part.reference)
    return SnapshotOf(table, part.version, part.timestamp_ms, part.reference)


def branch_of(name: str, branch: str) -> tuple[str, str]:
    """The table, and the branch ("": main) in the name or the option. Raises as ``snapshot_of``."""
    table, part = parse_snapshot_name(name)
    if part != SnapshotPart(part.reference):
        raise typer.BadParameter(f"{name}: this command takes a branch after the @, not a version or a time")
    _refuse_both(name, bool(part.reference and branch))
    return table, part.reference or branch


def range_of(name: str, since: int | None, upto: int | None, branch: str) -> tuple[str, int, int | None, str]:
    """The table, the version before the first one, the last one (None: the latest), and the branch.

    Raises as ``snapshot_of``.
    """
    table, part = parse_snapshot_name(name)
    if part == SnapshotPart():
        if since is None:
            raise typer.BadParameter(f"say where to begin: --since VERSION, or {table}@v10..v12")
        return table, since, upto, branch
    _refuse_both(name, bool(part.reference and branch))
    if part == SnapshotPart(part.reference) and since is not None:
        return table, since, upto, part.reference
    if part.since is None:
        raise typer.BadParameter(f"{name}: this command takes a range after the @, such as {table}@v10..v12")
    _refuse_both(name, since is not None or upto is not None)
    return table, part.since, part.version, part.reference or branch


def _refuse_both(name: str, given: bool) -> None:
    if given:
        raise typer.BadParameter(f"{name} already says what to read: leave out the options that say it, too")
