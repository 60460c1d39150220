"""How large the files of a write should be."""

from __future__ import annotations

from collections.abc import Mapping

from lakemark import Client
from lakemark_core.file_layout import layout_of
from lakemark_spark.layout import FileSize


def file_size(client: Client, table: str, properties: Mapping[str, str], branch: str) -> FileSize | None:
    """What the table says; None: nothing. How many rows that is, its files tell."""
    wanted = layout_of(properties).file_bytes
    if wanted is None:
        return None
    there = client.plan(table, branch=branch, limit=1).summary
    rows = wanted * there.rows_planned // there.bytes_planned if there.bytes_planned else None
    return FileSize(wanted, None if rows is None else max(1, rows))
