"""Base rows and deltas as the rows that they stand for, in memory (docs/keyed-tables.md). Pure.

It is what ``lakemark_core.merge_sql`` does in Spark.
"""

from __future__ import annotations

from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.merge_sql import COLUMNS, DELETE, DELTA_FIELDS, INSTANT, OPERATION, UPSERT
from lakemark_core.table_kind import TableKind
from lakemark_core.types import Field, Schema

_PLACE: Final = " place"
_UPSERTED: Final = " upserted"
_DELETED: Final = " deleted"


def merge_rows(base: pa.Table, log: pa.Table, schema: Schema, kind: TableKind) -> pa.Table:
    """The columns of ``base``, which are some of the schema's: at least those of the key and the ordering column.

    ``log`` has the same columns and ``DELTA_FIELDS``. No two rows of ``base`` have one key.
    """
    rows = _in_order(base, log, schema, kind)
    fields = [schema.field(name) for name in base.column_names]
    by = _by_column if kind.merge_by == "column" else _by_row
    return by(rows, fields, [field.name for field in kind.key_fields(schema)]).cast(base.schema)


def _in_order(base: pa.Table, log: pa.Table, schema: Schema, kind: TableKind) -> pa.Table:
    """All rows with ``DELTA_FIELDS``, the newest last, and their places. Base rows are older than deltas."""
    rows = base
    for field, value in zip(DELTA_FIELDS, (UPSERT, -1, None), strict=True):
        column: pa.Array[Any] = pa.array([value] * base.num_rows, log.schema.field(field.name).type)
        rows = rows.append_column(field.name, column)
    rows = pa.concat_tables([rows, log.select(rows.column_names)])
    order = pa.table({"instant": rows.column(INSTANT)})
    keys = [("instant", "ascending")]
    if kind.ordering_column:
        ordering = rows.column(schema.field(kind.ordering_column).name)
        order = order.append_column("ordering", ordering).append_column("known", ordering.is_valid())
        # NaN is the greatest value for Spark; here it would be sorted with the nulls.
        order = order.append_column("greatest", _is_nan(ordering))
        keys = [("known", "ascending"), ("greatest", "ascending"), ("ordering", "ascending"), *keys]
    places: Any = cast(Any, pc).sort_indices(order, sort_keys=keys)
    return rows.take(places).append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))


def _is_nan(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """Of columns of every type."""
    if not pa.types.is_floating(column.type):
        return pa.chunked_array([pa.repeat(False, len(column))])
    return cast("pa.ChunkedArray[Any]", cast(Any, pc).is_nan(column).fill_null(False))


def _by_row(rows: pa.Table, fields: list[Field], key: list[str]) -> pa.Table:
    newest: Any = rows.group_by(key, use_threads=False).aggregate([(_PLACE, "max")])
    kept = rows.take(newest.column(f"{_PLACE}_max"))
    kept = kept.filter(cast(Any, pc).not_equal(kept.column(OPERATION), DELETE))
    return kept.select([field.name for field in fields])


def _by_column(rows: pa.Table, fields: list[Field], key: list[str]) -> pa.Table:
    compute = cast(Any, pc)
    place, listed = rows.column(_PLACE), rows.column(COLUMNS)
    deleted = compute.equal(rows.column(OPERATION), DELETE)
    none = pa.scalar(None, pa.int64())
    marked = pa.table({name: rows.column(name) for name in key})
    marked = marked.append_column(_UPSERTED, compute.if_else(deleted, none, place))
    marked = marked.append_column(_DELETED, compute.if_else(deleted, place, none))
    values = [field for field in fields if field.name not in key]
    for field in values:
        # A delete sets every column to null.
        has = compute.or_(deleted, compute.match_substring(listed, f",{field.id},").fill_null(True))
        marked = marked.append_column(f" {field.id}", compute.if_else(has, place, none))
    wanted: Any = [(name, "max") for name in marked.column_names[len(key) :]]
    newest: Any = marked.group_by(key, use_threads=False).aggregate(wanted)
    lives = compute.greater(newest.column(f"{_UPSERTED}_max"), newest.column(f"{_DELETED}_max").fill_null(-1))
    newest = newest.filter(lives.fill_null(False))
    places = {field.name: newest.column(f" {field.id}_max") for field in values}
    return pa.table(
        {
            field.name: rows.column(field.name).take(places.get(field.name, newest.column(f"{_UPSERTED}_max")))
            for field in fields
        }
    )
