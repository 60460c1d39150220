"""What parquet footers say of the values in a file: bounds and counts by column, without reading rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from lakemark_core.errors import InvalidFile
from lakemark_core.parquet.bounds import UNKNOWN, Bound, read_bound
from lakemark_core.storage import again
from lakemark_core.types import ColumnValue, Field, Schema, is_floating, may_be_cut

# parquet-mr (Spark, Hive) takes NaN for the greatest value: a chunk with a NaN has NaN as its max, or no bounds.
_NAN_IS_GREATEST: Final = ("parquet-mr",)
# Others, as parquet-rs, may write shortened bounds, and pyarrow does not show whether they did.
_WHOLE_BOUNDS: Final = ("parquet-mr", "parquet-cpp-arrow")


@dataclass(frozen=True, slots=True)
class FooterStatistics:
    """Bounds and counts of one column in one file; None is unknown.

    ``low`` and ``high`` bound the values that are neither null nor NaN. A truncated bound need not occur in the file.
    """

    column_id: int
    low: ColumnValue = None
    high: ColumnValue = None
    null_count: int | None = None
    nan_count: int | None = None
    low_truncated: bool = False
    high_truncated: bool = False


def read_footer(path: str, filesystem: fs.FileSystem) -> tuple[pq.FileMetaData, int]:
    """The footer of a file, and its size in bytes. Raises InvalidFile."""

    def read() -> tuple[pq.FileMetaData, int]:
        with filesystem.open_input_file(path) as source:
            return pq.read_metadata(source), source.size()

    try:
        return again(filesystem, path, read)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidFile(f"{path!r} is not a readable parquet file: {error}", path=path) from error


def statistics_of(metadata: pq.FileMetaData, schema: Schema) -> list[FooterStatistics]:
    """Statistics for the columns of ``schema``, which are found by name, whatever their case.

    Fields of structs are included; elements of lists and maps are not. Columns of which nothing is known are left out.
    """
    statistics = []
    creator = metadata.created_by or ""
    for index in range(metadata.num_columns):
        leaf = metadata.schema.column(index)
        path = [leaf.path] if leaf.path == leaf.name else leaf.path.split(".")
        field = schema.find_path(path) if leaf.max_repetition_level == 0 else None
        if field is not None and field.id:
            known = _column(metadata, index, field, creator)
            if known != FooterStatistics(field.id):
                statistics.append(known)
    return statistics


def _column(metadata: pq.FileMetaData, index: int, field: Field, creator: str) -> FooterStatistics:
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
    return FooterStatistics(field.id, low.value, high.value, null_count, nan_count, low.truncated, high.truncated)


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
