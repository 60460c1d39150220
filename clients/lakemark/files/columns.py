"""Data files as Arrow columns (docs/files.md), with one row for each file.

The statistics of the column with id N are in the columns ``min.N``, ``max.N``, ``null_count.N`` and ``nan_count.N``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from lakemark.files.model import KIND_NUMBERS, ColumnStatistics, DataFile, kind_number
from lakemark_core.errors import InvalidArgument, InvalidFile
from lakemark_core.types import (
    ColumnValue,
    Schema,
    is_floating,
    is_nested,
    name_of_partition,
    to_arrow,
    values_of_partition,
)

_FIELDS: Final[dict[str, pa.DataType]] = {
    "path": pa.string(),
    "size_bytes": pa.int64(),
    "row_count": pa.int64(),
    "file_group": pa.string(),
    "kind": pa.uint8(),
    "format": pa.string(),
    "partition": pa.string(),
    "base_instant": pa.int64(),
    "bucket": pa.int32(),
}
ENTRY_FIELDS: Final = pa.schema(_FIELDS)
"""The columns that every file has; ``kind`` is 1 for base files and 2 for deltas, ``partition`` its name."""

_DELTA: Final = KIND_NUMBERS["delta"]


def files_to_arrow(files: Sequence[DataFile], schema: Schema) -> pa.Table:
    """A table with one row for each file. Raises InvalidFile, which names the first file whose values do not fit."""
    columns: dict[str, list[Any]] = {
        "path": [file.path for file in files],
        "size_bytes": [file.size_bytes for file in files],
        "row_count": [file.row_count for file in files],
        "file_group": [file.file_group or None for file in files],
        "kind": list(map(kind_number, files)),
        "format": [file.format for file in files],
        "partition": [_name_of(file, schema) for file in files],
        "base_instant": [file.base_instant for file in files],
        "bucket": [file.bucket for file in files],
    }
    table = pa.table({field.name: pa.array(columns[field.name], field.type) for field in ENTRY_FIELDS})
    for name, column_type, values in _statistics_columns(files, schema):
        try:
            table = table.append_column(name, pa.array(values, column_type))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidFile(f"statistics {name} of the files are not all of type {column_type}: {error}") from error
    return table


def files_from_arrow(table: pa.Table, schema: Schema) -> list[DataFile]:
    """The files of a plan's page, or of any table with the columns of ``files_to_arrow``."""
    partitions: dict[str, tuple[ColumnValue, ...]] = {}
    ids = sorted({int(name.split(".")[1]) for name in table.column_names if name.startswith("null_count.")})
    files = []
    for row in table.to_pylist():
        name = row.get("partition") or ""
        if name not in partitions:
            partitions[name] = values_of_partition(name, schema)
        statistics = (_statistics_of(row, column_id) for column_id in ids)
        files.append(
            DataFile(
                path=row["path"],
                size_bytes=row["size_bytes"],
                row_count=row["row_count"],
                partition=partitions[name],
                statistics=tuple(one for one in statistics if one != ColumnStatistics(one.column_id)),
                file_group=row.get("file_group") or "",
                kind="delta" if row.get("kind") == _DELTA else "base",
                format=row.get("format") or "parquet",
                base_instant=row.get("base_instant") or 0,
                bucket=row.get("bucket"),
                added_version=row.get("added_version") or 0,
                matches_entirely=bool(row.get("matches_entirely")),
                schema_id=row.get("schema_id") or 0,
                removed_version=row.get("removed_version") or 0,
            )
        )
    return files


def arrow_stream(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _name_of(file: DataFile, schema: Schema) -> str:
    try:
        return name_of_partition(file.partition, schema)
    except InvalidArgument as error:
        raise InvalidFile(f"file {file.path!r}: {error.message}", path=file.path) from error


def _statistics_columns(files: Sequence[DataFile], schema: Schema) -> list[tuple[str, pa.DataType, list[Any]]]:
    by_id: dict[int, list[ColumnStatistics | None]] = {}
    for index, file in enumerate(files):
        for known in file.statistics:
            by_id.setdefault(known.column_id, [None] * len(files))[index] = known
    columns: list[tuple[str, pa.DataType, list[Any]]] = []
    for column_id, statistics in sorted(by_id.items()):
        field = schema.find_id(column_id)
        if field is None:
            raise InvalidFile(f"the files have statistics on column id {column_id}, which the table does not have")
        if not is_nested(field.type):
            bound_type = to_arrow(field.type)
            columns.append((f"min.{column_id}", bound_type, [one and one.min for one in statistics]))
            columns.append((f"max.{column_id}", bound_type, [one and one.max for one in statistics]))
        columns.append((f"null_count.{column_id}", pa.int64(), [one and one.null_count for one in statistics]))
        if is_floating(field.type):
            columns.append((f"nan_count.{column_id}", pa.int64(), [one and one.nan_count for one in statistics]))
    return columns


def _statistics_of(row: dict[str, Any], column_id: int) -> ColumnStatistics:
    return ColumnStatistics(
        column_id,
        row.get(f"min.{column_id}"),
        row.get(f"max.{column_id}"),
        row.get(f"null_count.{column_id}"),
        row.get(f"nan_count.{column_id}"),
    )
