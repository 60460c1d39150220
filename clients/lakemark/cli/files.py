"""``lakemark files`` and ``lakemark plan``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lakemark.cli.context import Invocation, invocation
from lakemark.cli.output import show_done, show_fields, show_json, show_rows, size_text
from lakemark.cli.pairs import parse_pairs
from lakemark.cli.tables import Name
from lakemark.client.model import Operation
from lakemark.files.columns import name_of_partition
from lakemark.parquet.adopting import adopt_files
from lakemark.reading import Plan

app = typer.Typer(help="Files of a table's snapshots.", no_args_is_help=True)
Version = Annotated[int | None, typer.Option(help="this version instead of the latest")]
Timestamp = Annotated[str | None, typer.Option(help="the last version at or before this time (UTC)")]
Branch = Annotated[str, typer.Option(help="of this branch; empty: main")]
Tag = Annotated[str, typer.Option(help="the version that this tag keeps")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=0, help="at most so many files; 0: all")]


class SliceView(StrEnum):
    LATEST = "latest"
    BEFORE_INSTANT = "before_instant"
    PENDING_COMPACTION = "pending_compaction"


class Overwrite(StrEnum):
    PARTITIONS = "partitions"
    TABLE = "table"


@app.command("list")
def list_files(
    context: typer.Context,
    table: Name,
    where: Annotated[str | None, typer.Option("--where", "-w", help="only files that can hold such rows")] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    branch: Branch = "",
    tag: Tag = "",
    limit: Limit = 0,
) -> None:
    """The files of a snapshot."""
    call = invocation(context)
    with call.client() as client:
        found = client.plan(table, where, version=version, timestamp=timestamp, branch=branch, tag=tag, limit=limit)
        _show_files(call, found, summary=False)


def plan(
    context: typer.Context,
    table: Name,
    where: Annotated[str | None, typer.Option("--where", "-w", help="a condition in Spark SQL")] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    branch: Branch = "",
    tag: Tag = "",
    statistics: Annotated[str, typer.Option(help="columns whose statistics are wanted (--json)")] = "",
    limit: Limit = 0,
) -> None:
    """Which files a query needs, and what is left to evaluate in them."""
    call = invocation(context)
    with call.client() as client:
        found = client.plan(
            table,
            where,
            version=version,
            timestamp=timestamp,
            branch=branch,
            tag=tag,
            limit=limit,
            statistics=[one.strip() for one in statistics.split(",") if one.strip()],
        )
        _show_files(call, found, summary=True)


@app.command()
def slices(
    context: typer.Context,
    table: Name,
    view: Annotated[SliceView, typer.Option(help="which ones")] = SliceView.LATEST,
    before_instant: Annotated[int, typer.Option(min=0, help="with --view before_instant")] = 0,
    version: Version = None,
    branch: Branch = "",
) -> None:
    """File groups with their base files and the deltas on top."""
    call = invocation(context)
    with call.client() as client:
        found = client.file_slices(table, view.value, before_instant=before_instant, version=version, branch=branch)
    if call.as_json:
        show_json(found)
        return
    rows = [
        [
            one.file_group,
            one.base.path if one.base else None,
            len(one.deltas),
            sum(file.row_count for file in one.deltas),
        ]
        for one in found
    ]
    show_rows(["file group", "base file", "deltas", "rows in deltas"], rows)


@app.command()
def changes(
    context: typer.Context,
    table: Name,
    since: Annotated[int, typer.Option("--since", help="after this version", min=0)],
    upto: Annotated[int, typer.Option("--upto", help="up to this version; 0: the latest", min=0)] = 0,
    branch: Branch = "",
) -> None:
    """The files that came and went between two versions."""
    call = invocation(context)
    with call.client() as client:
        found = client.changes(table, since, upto, branch=branch)
    if call.as_json:
        show_json(found)
        return
    rows = [
        [mark, file.path, file.row_count, size_text(file.size_bytes), file.added_version]
        for mark, files in (("+", found.added), ("-", found.removed))
        for file in files
    ]
    show_rows(["", "path", "rows", "size", "version"], rows)


@app.command()
def commit(
    context: typer.Context,
    table: Name,
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="local parquet files")],
    partition: Annotated[
        list[str] | None, typer.Option("--partition", metavar="COLUMN=VALUE", help="the partition of all files")
    ] = None,
    overwrite: Annotated[
        Overwrite | None, typer.Option(help="replace the files' partitions, or the whole table")
    ] = None,
    metadata: Annotated[list[str] | None, typer.Option("--metadata", "-m", metavar="KEY=VALUE")] = None,
    request_id: Annotated[str | None, typer.Option(help="commits once, however often it is given")] = None,
    branch: Branch = "",
) -> None:
    """Copies existing parquet files into a table, as one commit.

    The partition of a file is told by --partition or by its path (…/month=1/file.parquet).
    """
    call = invocation(context)
    pairs = parse_pairs(metadata, "metadata")
    given = parse_pairs(partition, "partition")
    operation: Operation = "append"
    if overwrite is not None:
        operation = "overwrite_table" if overwrite is Overwrite.TABLE else "overwrite_partitions"
    with (
        call.client() as client,
        client.begin(
            table, operation, start=overwrite is not Overwrite.PARTITIONS, request_id=request_id, branch=branch
        ) as writer,
    ):
        if not writer.committed:
            adopted = adopt_files(files, writer, given)
            if overwrite is Overwrite.PARTITIONS:
                writer.start(dict.fromkeys(file.partition for file in adopted.files))
            writer.stage(adopted.files, file_schema=adopted.schema)
        done = writer.commit(metadata=pairs)
    if call.as_json:
        show_json(done)
    else:
        show_done(f"version {done.version} of {table} (instant {done.instant})")


def _show_files(call: Invocation, found: Plan, *, summary: bool) -> None:
    files = found.files()
    if call.as_json:
        shown = {"version": found.version, "location": found.location, "summary": found.summary, "files": files}
        show_json(shown)
        return
    if summary:
        totals = found.summary
        show_fields(
            {
                "version": found.version,
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
            name_of_partition(file.partition, found.schema),
            file.row_count,
            size_text(file.size_bytes),
            file.added_version,
            *(["all rows" if file.matches_entirely else "some rows"] if summary else []),
        ]
        for file in files
    ]
    show_rows(["path", "partition", "rows", "size", "version", *(["matches"] if summary else [])], rows)
