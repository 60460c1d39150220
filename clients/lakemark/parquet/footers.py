"""Statistics of data files, read from their parquet footers without reading rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from lakemark.files import ColumnStatistics, DataFile
from lakemark.parquet.bounds import UNKNOWN, Bound, read_bound
from lakemark_core.errors import InvalidFile
from lakemark_core.storage import again, open_location
from lakemark_core.types import ColumnValue, Field, Schema, is_floating, may_be_cut

# parquet-mr (Spark, Hive) takes NaN for the greatest value: a chunk with a NaN has NaN as its max, or no bounds.
_NAN_IS_GREATEST: Final = ("parquet-mr",)
# Others, as parquet-rs, may write shortened bounds, and pyarrow does not show whether they did.
_WHOLE_BOUNDS: Final = ("parquet-mr", "parquet-cpp-arrow")


@dataclass(frozen=True, slots=True)
class Footer:
    """The number of rows, the Arrow schema and the statistics in a file's footer."""

    rows: int
    schema: pa.Schema
    statistics: tuple[ColumnStatistics, ...]


def describe(
    path: str,
    schema: Schema,
    *,
    root: str,
    partition: Sequence[ColumnValue] = (),
    filesystem: fs.FileSystem | None = None,
    file_group: str = "",
) -> DataFile:
    """The entry of a parquet file that exists.

    ``path`` is the file's location, ``root`` the table's; both are paths of ``filesystem`` if one is given, else URIs
    or local paths. Raises InvalidFile: not below ``root``, not there, not parquet.
    """
    if filesystem is None:
        filesystem, path = open_location(path)
        root = open_location(root)[1]
    if not path.startswith(root.rstrip("/") + "/"):
        raise InvalidFile(f"file {path!r} does not lie below the table's location {root!r}", path=path)
    metadata, size = _read(path, filesystem)
    footer = describe_metadata(metadata, schema)
    relative = path.removeprefix(root.rstrip("/") + "/")
    return DataFile(relative, size, footer.rows, tuple(partition), footer.statistics, file_group)


def read_metadata(path: str, filesystem: fs.FileSystem) -> pq.FileMetaData:
    """The footer of a file. Raises InvalidFile."""
    return _read(path, filesystem)[0]


def _read(path: str, filesystem: fs.FileSystem) -> tuple[pq.FileMetaData, int]:
    """The footer of a file, and its size in bytes. Raises InvalidFile."""

    def read() -> tuple[pq.FileMetaData, int]:
        with filesystem.open_input_file(path) as source:
            return pq.read_metadata(source), source.size()

    try:
        return again(filesystem, path, read)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidFile(f"{path!r} is not a readable parquet file: {error}", path=path) from error


def describe_metadata(metadata: pq.FileMetaData, schema: Schema) -> Footer:
    """Statistics for the columns of ``schema``, which are found by name, whatever their case.

    Fields of structs are included; elements of lists and maps are not. A value that is missing is unknown.
    """
    statistics = []
    creator = metadata.created_by or ""
    for index in range(metadata.num_columns):
        leaf = metadata.schema.column(index)
        path = [leaf.path] if leaf.path == leaf.name else leaf.path.split(".")
        field = schema.find_path(path) if leaf.max_repetition_level == 0 else None
        if field is not None and field.id:
            known = _column(metadata, index, field, creator)
            if known != ColumnStatistics(field.id):
                statistics.append(known)
    return Footer(metadata.num_rows, metadata.schema.to_arrow_schema(), tuple(statistics))


def _column(metadata: pq.FileMetaData, index: int, field: Field, creator: str) -> ColumnStatistics:
    leaf = metadata.schema.column(index)
    logical: dict[str, Any] = json.loads(leaf.logical_type.to_json())
    chunks = [_Chunk.of(metadata.row_group(number), index) for number in range(metadata.num_row_groups)]
    chunks = [chunk for chunk in chunks if chunk.rows]
    null_count = None if any(chunk.nulls is None for chunk in chunks) else sum(chunk.nulls or 0 for chunk in chunks)
    valued = [chunk for chunk in chunks if chunk.nulls != chunk.rows]

    def bound(pick: Callable[[list[Any]], Any], *, is_max: bool) -> Bound:
        bounds = [
            read_bound(
                chunk.maximum if is_max else chunk.minimum, logical, leaf.physical_type, field.type, is_max=is_max
            )
            for chunk in valued
        ]
        if not bounds or any(one.value is None for one in bounds):
            return UNKNOWN
        value = pick([one.value for one in bounds])
        shortened = may_be_cut(field.type) and not creator.startswith(_WHOLE_BOUNDS)
        return Bound(value, shortened or any(one.truncated for one in bounds if one.value == value))

    low, high = bound(min, is_max=False), bound(max, is_max=True)
    nan_count = None
    if is_floating(field.type) and (not valued or (creator.startswith(_NAN_IS_GREATEST) and high.value is not None)):
        nan_count = 0
    return ColumnStatistics(field.id, low.value, high.value, null_count, nan_count, low.truncated, high.truncated)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column in one row group; ``minimum`` and ``maximum`` as stored, None if there are none."""

    rows: int
    nulls: int | None
    minimum: Any
    maximum: Any

    @classmethod
    def of(cls, group: pq.RowGroupMetaData, index: int) -> _Chunk:
        statistics = group.column(index).statistics
        if statistics is None:
            return cls(group.num_rows, None, None, None)
        known = statistics.has_min_max
        return cls(
            group.num_rows,
            statistics.null_count,  # None if it is not there
            statistics.min_raw if known else None,
            statistics.max_raw if known else None,
        )
