"""Entries of files as the input of pruning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakemark.types import Field, Schema, parse_partition_name, partition_value_from_string, to_arrow
from lakemark_server.snapshot.arrow import AnyArray, take
from lakemark_server.snapshot.entries import statistics_ids
from lakemark_server.snapshot.file_stats import ColumnStats, FileStats, PreparedStats, prepare
from lakemark_server.snapshot.fold import Part


def prepared(part: Part, schema: Schema) -> PreparedStats:
    """Bounds, counts and exact partition values of a part's entries, dead ones included; converted on demand."""
    entries = part.entries
    columns = {
        column_id: ColumnStats(
            min=_column(entries, f"min.{column_id}"),
            max=_column(entries, f"max.{column_id}"),
            null_count=_column(entries, f"null_count.{column_id}"),
            nan_count=_column(entries, f"nan_count.{column_id}"),
        )
        for column_id in statistics_ids(entries.schema.names)
        if schema.find_id(column_id) is not None
    }
    rows = entries.column("row_count").to_numpy()
    return prepare(FileStats(np.asarray(rows, np.int64), columns, partition_values(part, schema)))


def _column(entries: pa.RecordBatch, name: str) -> pa.Array[Any] | None:
    at = entries.schema.get_field_index(name)
    return None if at < 0 else entries.column(at)


def partition_values(part: Part, schema: Schema) -> dict[int, pa.Array[Any]]:
    """By column id: the value of each entry's partition."""
    codes, names = part.partition_codes
    return {field.id: take(partition_values_by_name(names, field, schema), codes) for field in schema.partition_fields}


def partition_values_by_name(names: Sequence[str], field: Field, schema: Schema) -> AnyArray:
    """The value that each of these partition names has for one of the partition columns; typed, null is null."""
    place = schema.partition_fields.index(field)
    texts = [parse_partition_name(name)[place][1] for name in names]
    return pa.array([partition_value_from_string(text, field.type) for text in texts], to_arrow(field.type))
