"""``lakemark files aggregate``."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemark.cli.context import invocation
from lakemark.cli.options import Branch, Tag, Timestamp, Version, listed
from lakemark.cli.output import show_fields, show_json, show_rows, size_text
from lakemark.cli.snapshots import SnapshotName, snapshot_of
from lakemark.files import ColumnStatistics


def aggregate(
    context: typer.Context,
    table: SnapshotName,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", "-w", help="only files that can hold rows for which this condition (Spark SQL) is true"
        ),
    ] = None,
    columns: Annotated[
        str, typer.Option(help="columns whose bounds and nulls are shown, separated by commas: id,fare")
    ] = "",
    by_partition: Annotated[bool, typer.Option("--by-partition", help="show one line for each partition")] = False,
    version: Version = None,
    timestamp: Timestamp = None,
    branch: Branch = "",
    tag: Tag = "",
) -> None:
    """Sums up files, rows and bytes, and bounds of columns, from metadata alone."""
    call = invocation(context)
    names = listed(columns)
    with call.client() as client:
        at = snapshot_of(client, table, version=version, timestamp=timestamp, branch=branch, tag=tag)
        aggregates = client.aggregate(
            at.table,
            where,
            columns=names,
            by_partition=by_partition,
            version=at.version,
            timestamp=at.timestamp,
            branch=at.branch,
            tag=at.tag,
        )
    if call.as_json:
        show_json(aggregates)
        return
    show_fields({"version": aggregates.version, "exact": "yes" if aggregates.exact else "no: rows at most, and bounds"})
    rows = [
        [
            *([group.name] if by_partition else []),
            group.files,
            group.rows,
            size_text(group.bytes),
            *(cell for name in names for cell in _cells(group.columns[name])),
        ]
        for group in aggregates.groups
    ]
    headings = [f"{name}{what}" for name in names for what in (" from", " to", " nulls")]
    show_rows([*(["partition"] if by_partition else []), "files", "rows", "size", *headings], rows)


def _cells(column: ColumnStatistics) -> list[object]:
    return [column.min, column.max, column.null_count]
