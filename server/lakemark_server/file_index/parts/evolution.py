"""Entries that were written with one schema and are read with another.

Columns are matched by id. Bounds are cast if the cast keeps the order and treats all values of the column alike; else
they are unknown. A column that the file's schema lacks is null in all of its rows. Statistics on columns that the
reader's schema lacks are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pyarrow as pa

from lakemark_core.types import Field, Schema, is_floating
from lakemark_server.file_index.arrow import AnyArray, nulls, take
from lakemark_server.file_index.entries.columns import STATISTICS, entry_schema, statistics_type
from lakemark_server.file_index.entries.file_stats import ColumnStats
from lakemark_server.file_index.pages.contents import ADDED_VERSION, Integers
from lakemark_server.file_index.parts.part import Part


def converted(values: AnyArray, wanted: pa.DataType) -> AnyArray:
    """Bounds in another type; null where they cannot be known in it."""
    have = values.type
    if have == wanted:
        return values
    if not _keeps_order(have, wanted):
        return nulls(len(values), wanted)
    # Integers become the nearest doubles, as the values themselves do when they are read.
    safe = not pa.types.is_floating(wanted)
    try:
        return cast(AnyArray, cast(Any, values).cast(wanted, safe=safe))
    except pa.ArrowInvalid:  # the bounds were written with a wider type than the reader's
        return nulls(len(values), wanted)


def _keeps_order(have: pa.DataType, wanted: pa.DataType) -> bool:
    kinds = pa.types
    if kinds.is_integer(have):
        return kinds.is_integer(wanted) or kinds.is_floating(wanted) or kinds.is_decimal(wanted)
    if kinds.is_floating(have):
        return kinds.is_floating(wanted) and wanted.bit_width >= have.bit_width
    if isinstance(have, pa.Decimal128Type):
        return isinstance(wanted, pa.Decimal128Type) and wanted.scale >= have.scale
    if kinds.is_date32(have):
        # Midnight is a wall-clock time: which point in time it is depends on the reader's zone.
        return isinstance(wanted, pa.TimestampType) and wanted.tz is None
    return kinds.is_string(have) and kinds.is_string(wanted)


def column_stats(part: Part, field: Field) -> ColumnStats:
    """The statistics of one column, in the reader's schema, for each file of a part, dead ones included."""
    written = part.schema.find_id(field.id)
    if written is None:
        return ColumnStats(absent=np.ones(part.size, np.bool_))
    low, high, nulls_, nans = (statistic(part, kind, field) for kind in STATISTICS)
    return ColumnStats(low, high, nulls_, nans)


def statistic(part: Part, kind: str, field: Field, *, keep: bool = False) -> AnyArray | None:
    """The column ``<kind>.<field id>`` in the type of the reader's schema; None if nothing is known.

    ``keep``: whether the cache keeps the decoded column. Pruning keeps what it makes of the column instead.
    """
    written = part.schema.find_id(field.id)
    if written is None:
        return part.column("row_count") if kind == "null_count" else None
    if kind == "nan_count" and is_floating(field.type) and not is_floating(written.type):
        return pa.array(np.zeros(part.size, np.int64))  # integers have none
    array = part.entries.find_column(f"{kind}.{field.id}", keep=keep)
    return None if array is None else converted(array, statistics_type(kind, field))


def in_schema(part: Part, places: Integers | None, schema: Schema, statistics_ids: Iterable[int]) -> pa.RecordBatch:
    """Entries at these places (None: all) with these statistics, in the types of the reader's schema."""
    wanted = entry_schema(schema, statistics_ids).append(ADDED_VERSION)
    return pa.RecordBatch.from_arrays([output_column(part, places, field, schema) for field in wanted], schema=wanted)


def output_column(part: Part, places: Integers | None, field: pa.Field[Any], schema: Schema) -> AnyArray:
    """One column of ``entry_schema``, or the version that added the files."""
    kind, _, number = field.name.partition(".")
    size = part.size if places is None else len(places)
    if number:
        column = schema.find_id(int(number))
        array = None if column is None else statistic(part, kind, column, keep=True)
    else:
        array = part.entries.find_column(field.name)
    if array is None:
        return nulls(size, field.type)
    return array if places is None else take(array, places)
