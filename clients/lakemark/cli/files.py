"""``lakemark files`` and ``lakemark plan``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from lakemark.cli import aggregates, commits
from lakemark.cli.context import Invocation, invocation
from lakemark.cli.options import Branch, Tag, Timestamp, Version, listed
from lakemark.cli.output import show_fields, show_json, show_rows, size_text, time_text
from lakemark.cli.snapshots import RangeName, SnapshotName, range_of, snapshot_of
from lakemark.reading import Plan
from lakemark_core.types import name_of_partition

app = typer.Typer(help="Data files of a table's snapshots: list, compare and commit them.", no_args_is_help=True)
Since = Annotated[int | None, typer.Option("--since", help="begin after this version", min=0)]
Limit = Annotated[int, typer.Option("--limit", "-n", min=0, help="largest number of files; 0: all")]


class SliceView(StrEnum):
    LATEST = "latest"
    BEFORE_INSTANT = "before_instant"
    PENDING_COMPACTION = "pending_compaction"


@app.command("list")
def list_files(
    context: typer.Context,
    table: SnapshotName,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", "-w", help="only files that can hold rows for which this condition (Spark SQL) is true"
        ),
    ] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    branch: Branch = "",
    tag: Tag = "",
    limit: Limit = 0,
) -> None:
    """Lists the files of a snapshot."""
    call = invocation(context)
    with call.client() as client:
        at = snapshot_of(client, table, version=version, timestamp=timestamp, branch=branch, tag=tag)
        planned = client.plan(
            at.table, where, version=at.version, timestamp=at.timestamp, branch=at.branch, tag=at.tag, limit=limit
        )
        _show_files(call, planned, summary=False)


def plan(
    context: typer.Context,
    table: SnapshotName,
    where: Annotated[str | None, typer.Option("--where", "-w", help="condition of the query, in Spark SQL")] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    branch: Branch = "",
    tag: Tag = "",
    statistics: Annotated[
        str,
        typer.Option(help="columns whose statistics are shown with the files, separated by commas (only with --json)"),
    ] = "",
    limit: Limit = 0,
) -> None:
    """Shows which files a query must read, and which part of its condition it must still evaluate in them."""
    call = invocation(context)
    with call.client() as client:
        at = snapshot_of(client, table, version=version, timestamp=timestamp, branch=branch, tag=tag)
        planned = client.plan(
            at.table,
            where,
            version=at.version,
            timestamp=at.timestamp,
            branch=at.branch,
            tag=at.tag,
            limit=limit,
            statistics=listed(statistics),
        )
        _show_files(call, planned, summary=True)


@app.command()
def slices(
    context: typer.Context,
    table: SnapshotName,
    view: Annotated[SliceView, typer.Option(help="which slices to show")] = SliceView.LATEST,
    before_instant: Annotated[int, typer.Option(min=0, help="the instant; only with --view before_instant")] = 0,
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", help="only file groups that can hold rows for which this condition is true"),
    ] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    branch: Branch = "",
    tag: Tag = "",
) -> None:
    """Lists file groups with their base files and the delta files on top of them."""
    call = invocation(context)
    if bool(before_instant) != (view is SliceView.BEFORE_INSTANT):
        raise typer.BadParameter("--view before_instant and --before-instant INSTANT belong together")
    with call.client() as client:
        at = snapshot_of(client, table, version=version, timestamp=timestamp, branch=branch, tag=tag)
        listed = client.file_slices(
            at.table,
            view.value,
            before_instant=before_instant,
            predicate=where,
            version=at.version,
            timestamp=at.timestamp,
            branch=at.branch,
            tag=at.tag,
        )
    if call.as_json:
        show_json(listed)
        return
    rows = [
        [
            file_slice.file_group,
            file_slice.base.path if file_slice.base else None,
            len(file_slice.deltas),
            sum(file.row_count for file in file_slice.deltas),
        ]
        for file_slice in listed
    ]
    show_rows(["file group", "base file", "deltas", "rows in deltas"], rows)


@app.command()
def changes(
    context: typer.Context,
    table: RangeName,
    since: Since = None,
    upto: Annotated[int | None, typer.Option("--upto", help="up to this version; 0: the latest", min=0)] = None,
    branch: Branch = "",
) -> None:
    """Lists the files that were added and removed between two versions."""
    call = invocation(context)
    with call.client() as client:
        name, first, last, of = range_of(table, since, upto, branch)
        changed = client.changes(name, first, last or 0, branch=of)
    if call.as_json:
        show_json(changed)
        return
    rows = [
        [mark, file.path, file.row_count, size_text(file.size_bytes), file.added_version]
        for mark, files in (("+", changed.added), ("-", changed.removed))
        for file in files
    ]
    show_rows(["", "path", "rows", "size", "version"], rows)


@app.command()
def replaced(
    context: typer.Context,
    table: RangeName,
    since: Since = None,
    upto: Annotated[int | None, typer.Option("--upto", help="up to this version instead of the latest", min=0)] = None,
    branch: Branch = "",
) -> None:
    """Lists every file that a version removed from the table, also files that were added after the first version."""
    call = invocation(context)
    with call.client() as client:
        name, first, last, of = range_of(table, since, upto, branch)
        files = client.replaced_files(name, first, version=last, branch=of)
    if call.as_json:
        show_json(files)
        return
    rows = [
        [file.path, file.row_count, size_text(file.size_bytes), file.added_version, file.removed_version]
        for file in files
    ]
    show_rows(["path", "rows", "size", "added by", "taken out by"], rows)


@app.command()
def snapshots(
    context: typer.Context,
    tables: Annotated[
        list[str],
        typer.Argument(metavar="DATABASE.TABLE[@SNAPSHOT]…", help="as in 'files list': @v12, @BRANCH, @TAG …"),
    ],
) -> None:
    """Shows snapshots of several tables at one moment. Each transaction is in all of them or in none."""
    call = invocation(context)
    with call.client() as client:
        described = client.snapshots([snapshot_of(client, table) for table in tables])
    if call.as_json:
        show_json([{"table": name, "snapshot": snapshot} for name, snapshot in zip(tables, described, strict=True)])
        return
    rows = [
        [
            name,
            snapshot.version,
            time_text(snapshot.committed_ms),
            snapshot.files,
            snapshot.rows,
            size_text(snapshot.bytes),
            snapshot.schema.schema_id,
        ]
        for name, snapshot in zip(tables, described, strict=True)
    ]
    show_rows(["table", "version", "committed (UTC)", "files", "rows", "size", "schema"], rows)


app.command("aggregate")(aggregates.aggregate)
app.command("commit")(commits.commit)
app.command("commit-together")(commits.commit_together)


def _show_files(call: Invocation, planned: Plan, *, summary: bool) -> None:
    files = planned.files()
    if call.as_json:
        shown = {"version": planned.version, "location": planned.location, "summary": planned.summary, "files": files}
        show_json(shown)
        return
    if summary:
        totals = planned.summary
        show_fields(
            {
                "version": planned.version,
                "files": f"{totals.files_planned} of {totals.files_total}",
                "matching entirely": totals.files_matching_entirely,
                "rows at most": totals.rows_planned,
                "size": size_text(totals.bytes_planned),
                "left to evaluate": totals.residual,
            }
        )
    rows = [
        [
            file.path,
            name_of_partition(file.partition, planned.schema),
            file.row_count,
            size_text(file.size_bytes),
            file.added_version,
            *(["all rows" if file.matches_entirely else "some rows"] if summary else []),
        ]
        for file in files
    ]
    show_rows(["path", "partition", "rows", "size", "version", *(["matches"] if summary else [])], rows)
