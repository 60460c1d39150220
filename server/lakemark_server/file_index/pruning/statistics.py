"""Statistics of a part's entries, as the input of pruning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark_core.types import Field, Schema, parse_partition_name, partition_value_from_string, to_arrow
from lakemark_server.file_index.arrow import AnyArray, take
from lakemark_server.file_index.entries.file_stats import ColumnStats, FileStats, Keep, PreparedStats
from lakemark_server.file_index.parts.evolution import column_stats
from lakemark_server.file_index.parts.part import Part


def prepared(part: Part, schema: Schema, keep: Keep | None = None) -> PreparedStats:
    """Bounds, counts and exact partition values of a part's entries, dead ones included. Converted on demand."""
    rows = _small(part.entries.column("row_count", keep=False).to_numpy())
    return PreparedStats(FileStats(rows, _Columns(part, schema), _Partitions(part, schema)), keep)


def _small(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.integer[Any]]:
    """The same numbers in less memory, because they are kept for each part."""
    if not len(rows):
        return rows
    low, high = rows.min(), rows.max()
    if low == high:
        return np.broadcast_to(low, rows.shape)
    return rows.astype(np.int32) if low >= -(1 << 31) and high < 1 << 31 else rows


class StatisticsById(Mapping[int, ColumnStats]):
    """Column ids of a schema to statistics, computed on demand."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def of(self, field: Field) -> ColumnStats:
        """The statistics of a column or field of the schema."""
        raise NotImplementedError

    def __getitem__(self, column_id: int) -> ColumnStats:
        field = self._schema.find_id(column_id)
        if field is None:
            raise KeyError(column_id)
        return self.of(field)

    def __iter__(self) -> Iterator[int]:
        return iter(column.id for column in self._schema.columns)

    def __len__(self) -> int:
        return len(self._schema.columns)

    def __contains__(self, column_id: object) -> bool:
        return isinstance(column_id, int) and self._schema.find_id(column_id) is not None


class _Columns(StatisticsById):
    """The statistics of a part's entries, in the types of the reader's schema."""

    def __init__(self, part: Part, schema: Schema) -> None:
        super().__init__(schema)
        self._part = part

    def of(self, field: Field) -> ColumnStats:
        return column_stats(self._part, field)


class _Partitions(Mapping[int, AnyArray]):
    """Ids of partition columns to the value of each entry's partition."""

    def __init__(self, part: Part, schema: Schema) -> None:
        self._part = part
        self._schema = schema
        self._fields = {field.id: field for field in schema.partition_fields}

    def __getitem__(self, column_id: int) -> AnyArray:
        codes, names = self._part.partition_codes
        return take(partition_values_by_name(names, self._fields[column_id], self._schema), codes)

    def __contains__(self, column_id: object) -> bool:
        return column_id in self._fields

    def __iter__(self) -> Iterator[int]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def partition_values_by_name(names: Sequence[str], field: Field, schema: Schema) -> AnyArray:
    """The values of one partition column in these partition names; typed, null is null."""
    place = schema.partition_fields.index(field)
    texts = [parse_partition_name(name)[place][1] for name in names]
    return pa.array([partition_value_from_string(text, field.type) for text in texts], to_arrow(field.type))
