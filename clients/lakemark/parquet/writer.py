"""Writes rows as parquet files in the layout of lake tables, with pyarrow, for small writes without an engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, runtime_checkable
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from lakemark.arguments import checked
from lakemark.files import ColumnStatistics, DataFile
from lakemark.parquet.footers import describe_metadata
from lakemark.parquet.lengths import too_long
from lakemark.parquet.rows import Rows, table_of
from lakemark_core.errors import InvalidArgument, InvalidSchema
from lakemark_core.storage import has_directories, join, open_location, storage_error
from lakemark_core.types import (
    ColumnValue,
    Schema,
    check_fits,
    is_floating,
    name_of_partition,
    schema_to_arrow,
    unescape_path_name,
)

FILE_NAME: Final = "data.parquet"
NAME_BYTES_MAX: Final = 255
_ROW: Final = " row"  # no column is named so: names do not begin with a space


@runtime_checkable
class Staging(Protocol):
    """Where the files of an instant go, and what they must fit: a ``Writer``."""

    schema: Schema
    location: str

    @property
    def table(self) -> str:
        """``database.table``, for messages."""


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files that exist and are not staged yet, and the Arrow schema that they have in common."""

    files: list[DataFile]
    schema: pa.Schema


@checked
def write_table(table: Rows, writer: Staging) -> WrittenFiles:
    """Writes the rows as one parquet file for each partition, below the writer's location.

    ``table`` is a pyarrow Table or RecordBatch, or anything that hands out Arrow data (see ``lakemark.parquet.rows``).
    It has all columns of the lake table, the partition columns included, in any order and case; a nullable one may be
    missing. Raises InvalidSchema with every column that does not fit, if a NOT NULL column has nulls, and for texts
    longer than their column's varchar(n) or char(n); InvalidArgument for what cannot be read as rows, and for a
    partition that no directory can be named after; Unavailable or StorageRefused if files cannot be written.
    """
    schema = writer.schema
    data_schema = pa.schema(list(schema_to_arrow(schema))[: len(schema.data_columns)])
    rows = _conform(table_of(table), schema, writer.table)
    system, root = open_location(writer.location)
    location, _, instant = root.rstrip("/").rpartition("/")
    partitions = _partitions(rows, schema)
    if has_directories(system):
        for name in partitions:
            _check_directories(name)
    files = []
    for name, (values, indices) in partitions.items():
        group = str(uuid4())
        path = join(instant, name, group, FILE_NAME)
        part = rows if indices is None else rows.take(pa.array(indices, pa.int64()))
        data = part.select(data_schema.names)
        metadata, size = _write_file(data, system, join(location, path))
        footer = describe_metadata(metadata, schema)
        statistics = tuple(_with_nan_count(one, data, schema) for one in footer.statistics)
        files.append(DataFile(path, size, footer.rows, values, statistics, group))
    return WrittenFiles(files, data_schema)


def _conform(table: pa.Table, schema: Schema, name: str) -> pa.Table:
    """The rows with exactly the table's columns and types."""
    given = pa.schema([_in_microseconds(field) for field in table.schema if not schema.is_partition(field.name)])
    reasons = check_fits(schema, given)
    by_name = {column.lower(): column for column in table.column_names}
    reasons += [
        f"partition column '{field.name}' is missing"
        for field in schema.partition_fields
        if field.name.lower() not in by_name
    ]
    if reasons:
        raise InvalidSchema(f"the rows do not fit {name}: {'; '.join(reasons)}", table=name)
    field_of = {field.name: field for field in schema.columns}
    arrays: list[pa.ChunkedArray[Any]] = []
    for field in schema_to_arrow(schema):
        source = by_name.get(field.name.lower())
        try:
            column = (
                pa.chunked_array([pa.nulls(table.num_rows, field.type)])
                if source is None
                else table.column(source).cast(field.type)
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidSchema(f"column '{field.name}' does not fit {name}: {error}", table=name) from error
        if column.null_count and not field.nullable:
            raise InvalidSchema(
                f"column '{field.name}' of {name} is NOT NULL, and {column.null_count} rows have a null"
            )
        problem = too_long(column, field_of[field.name])
        if problem is not None:
            raise InvalidSchema(f"the rows do not fit {name}: {problem}", table=name, column=field.name)
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=schema_to_arrow(schema))


def _in_microseconds(field: pa.Field[Any]) -> pa.Field[Any]:
    """Nanoseconds, which pandas has, are cast as far as nothing is lost; in a file they would not fit."""
    if isinstance(field.type, pa.TimestampType) and str(field.type.unit) == "ns":
        return field.with_type(pa.timestamp("us", field.type.tz))
    return field


def _partitions(rows: pa.Table, schema: Schema) -> dict[str, tuple[tuple[ColumnValue, ...], list[int] | None]]:
    """By name, each partition's values and the places of its rows; None: all of them. Nothing for no rows."""
    if not rows.num_rows:
        return {}
    if not schema.partition_columns:
        return {"": ((), None)}
    names = list(schema.partition_columns)
    keys = rows.select(names).append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    groups = keys.group_by(names, use_threads=False).aggregate([(_ROW, "list")])
    partitions: dict[str, tuple[tuple[ColumnValue, ...], list[int]]] = {}
    for group in groups.to_pylist():
        # The empty text and null are the same partition, as in Hive and Spark.
        values = tuple(group[name] if group[name] != "" else None for name in names)
        partitions.setdefault(name_of_partition(values, schema), (values, []))[1].extend(group[f"{_ROW}_list"])
    return {name: (values, sorted(places)) for name, (values, places) in partitions.items()}


def _check_directories(name: str) -> None:
    """Raises InvalidArgument: a part of the partition's path is longer than a file system takes."""
    for part in name.split("/"):
        size = len(part.encode())
        if size > NAME_BYTES_MAX:
            column, _, value = part.partition("=")
            raise InvalidArgument(
                f"partition {column}={value[:40]}… has a name of {size} bytes, and a directory's name has at most "
                f"{NAME_BYTES_MAX}: partition the table by shorter values",
                column=unescape_path_name(column),
            )


def _write_file(data: pa.Table, system: fs.FileSystem, path: str) -> tuple[pq.FileMetaData, int]:
    """The footer, and the size in bytes. Raises Unavailable, StorageRefused."""
    collected: list[pq.FileMetaData] = []
    try:
        if has_directories(system):
            system.create_dir(path.rpartition("/")[0], recursive=True)
        with system.open_output_stream(path) as sink:
            pq.write_table(data, sink, metadata_collector=collected)
            size = sink.tell()
    except (OSError, RuntimeError) as error:
        # Of a file that it could not write, pyarrow asks for the footer all the same, and fails by that.
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        raise storage_error(f"file {path!r} cannot be written", system, path, cause) from cause
    return collected[0], size


def _with_nan_count(statistics: ColumnStatistics, data: pa.Table, schema: Schema) -> ColumnStatistics:
    """Arrow's writer passes over NaN and does not count them; the rows are still at hand."""
    field = schema.find_id(statistics.column_id)
    if field is None or not is_floating(field.type) or schema.find(field.name) is not field:
        return statistics
    nans = pc.sum(pc.call_function("is_nan", [data.column(field.name)])).as_py()
    return replace(statistics, nan_count=nans or 0)
