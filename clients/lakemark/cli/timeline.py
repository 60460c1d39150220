"""``lakemark timeline``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from lakemark import Version
from lakemark.cli.context import invocation
from lakemark.cli.output import show_fields, show_json, show_rows, size_text, time_text
from lakemark.cli.snapshots import BranchName, SnapshotName, branch_of, snapshot_of
from lakemark.cli.tables import Name

app = typer.Typer(
    help="Timeline of a table: its instants (what writers do) and its versions (what they have committed).",
    no_args_is_help=True,
)
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="largest number to show")]


class State(StrEnum):
    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"
    ROLLED_BACK = "rolled_back"


@app.command()
def show(context: typer.Context, table: SnapshotName, limit: Limit = 20) -> None:
    """Shows a snapshot and the newest instants of all branches: who is writing, and how other writers ended."""
    call = invocation(context)
    with call.client() as client:
        at = snapshot_of(client, table)
        snapshot = client.snapshot(at.table, version=at.version, timestamp=at.timestamp, branch=at.branch, tag=at.tag)
        listed = client.timeline.instants(at.table, limit=limit, newest_first=True)
    if call.as_json:
        show_json({"table": table, "snapshot": snapshot, "instants": listed})
        return
    show_fields(
        {
            "table": table,
            "version": snapshot.version,
            "committed": time_text(snapshot.committed_ms),
            "files": snapshot.files,
            "rows": snapshot.rows,
            "size": size_text(snapshot.bytes),
        }
    )
    rows = [
        [
            instant.instant,
            instant.operation,
            instant.state,
            instant.version or None,
            time_text(instant.completed_ms),
            instant.staged_files,
            instant.staged_rows,
            instant.owner,
            instant.rolled_back_reason,
        ]
        for instant in listed
    ]
    show_rows(
        ["instant", "operation", "state", "version", "ended (UTC)", "files", "rows", "owner", "reason"], rows, below=5
    )


@app.command()
def instants(
    context: typer.Context,
    table: Name,
    state: Annotated[list[State] | None, typer.Option(help="only instants in this state; may be repeated")] = None,
    limit: Limit = 100,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="begin with the oldest")] = False,
) -> None:
    """Lists instants, newest first."""
    call = invocation(context)
    with call.client() as client:
        listed = client.timeline.instants(
            table, states=[value.value for value in state or ()], limit=limit, newest_first=not oldest_first
        )
    if call.as_json:
        show_json(listed)
        return
    rows = [
        [one.instant, one.operation, one.state, one.read_version, one.version or None, one.staged_files, one.owner]
        for one in listed
    ]
    show_rows(["instant", "operation", "state", "read version", "version", "files", "owner"], rows, below=5)


@app.command()
def versions(
    context: typer.Context,
    table: BranchName,
    branch: Annotated[str, typer.Option(help="the branch; default: main")] = "",
    limit: Limit = 100,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="begin with the oldest")] = False,
) -> None:
    """Lists versions, newest first."""
    call = invocation(context)
    with call.client() as client:
        name, of = branch_of(table, branch)
        listed = client.timeline.versions(name, branch=of, limit=limit, newest_first=not oldest_first)
    if call.as_json:
        show_json(listed)
        return
    rows = [
        [
            version.version,
            time_text(version.committed_ms),
            _what(version),
            version.added_files,
            version.added_rows,
            size_text(version.added_bytes),
            version.removed_files or None,
            "all" if version.partitions is None else version.partitions,
            version.schema_id,
            version.metadata,
        ]
        for version in listed
    ]
    show_rows(
        [
            "version",
            "committed (UTC)",
            "operation",
            "files",
            "rows",
            "size",
            "removed",
            "partitions",
            "schema",
            "metadata",
        ],
        rows,
        below=6,
    )


def _what(version: Version) -> str:
    """The operation, with what it changed."""
    if version.merged_branch:
        return f"{version.operation} {version.merged_branch}"
    return f"{version.operation} {version.restored_version}" if version.restored_version else version.operation


@app.command()
def restore(
    context: typer.Context,
    table: Name,
    version: Annotated[int, typer.Argument(min=1, help="version to restore")],
    branch: Annotated[str, typer.Option(help="the branch; default: main")] = "",
) -> None:
    """Makes a new version with the files of an old one. Open writers can then no longer commit."""
    call = invocation(context)
    with call.client() as client:
        done = client.timeline.restore(table, version, branch=branch)
    call.tell(done, f"version {done.version} of {table} has the files of version {version}")


@app.command()
def rollback(
    context: typer.Context,
    table: Name,
    instant: Annotated[int, typer.Argument(help="the instant, as 'timeline instants' shows it")],
    reason: Annotated[str, typer.Option(help="reason to keep with the instant")] = "rolled back by hand",
) -> None:
    """Rolls back a writer that has not committed (requested or inflight). No reader ever sees its files."""
    call = invocation(context)
    with call.client() as client:
        ended = client.timeline.rollback(table, instant, reason)
    call.tell(ended, f"instant {instant} of {table} is rolled back")
