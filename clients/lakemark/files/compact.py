"""Expands the compact columns of a plan's page (docs/files.md)."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_PIECES: Final = ("above", "directory", "file_name")


def expanded(page: pa.Table) -> pa.Table:
    """The page with ``path`` instead of its pieces and without run-end encoding; other pages stay as they are."""
    if "above" not in page.column_names:
        return page
    columns = {field.name: _plain(page.column(field.name), field.type) for field in page.schema}
    above, directory, file_name = (columns.pop(name) for name in _PIECES)
    groups = columns["file_group"]
    if directory.null_count:
        directory = groups if directory.null_count == page.num_rows else pc.coalesce(directory, groups)
    joined: Any = pc.binary_join_element_wise(above, directory, file_name, "/")
    return pa.table({"path": joined, **columns})


def _plain(column: pa.ChunkedArray[Any], kind: pa.DataType) -> Any:
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(kind) else column  # type: ignore[attr-defined]
