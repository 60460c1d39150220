"""Base rows and deltas as the rows that they stand for, in Spark SQL (docs/keyed-tables.md). Pure.

A delta is a parquet file with the table's columns and those below. Each of its rows says what became of one key. Rows
that no delta is about take no part in sorting or aggregation: they only pass an anti join, whose other side is sent to
all executors if it is small.
"""

# ruff: noqa: S608 - all names are quoted

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lakemark_core.errors import InvalidSchema
from lakemark_core.evolution.sql import missing_sql, quoted
from lakemark_core.table_kind import TableKind
from lakemark_core.types import BIGINT, STRING, Field, Schema, is_textual

OPERATION: Final = "lakemark_operation"
"""``upsert`` or ``delete``; the latter has the key and the ordering column alone."""
INSTANT: Final = "lakemark_instant"
"""The instant that wrote the row: of two rows that are otherwise equally new, the greater one wins."""
COLUMNS: Final = "lakemark_columns"
"""The ids of the columns that the row has, ``,3,7,``; null: all. In tables that are merged by column."""

DELTA_FIELDS: Final = (Field(0, OPERATION, STRING), Field(0, INSTANT, BIGINT), Field(0, COLUMNS, STRING))
"""The columns that a delta has beside the table's."""

UPSERT: Final = "upsert"
DELETE: Final = "delete"

SENT_BYTES_MAX: Final = 256 << 20
"""Up to so much memory of an executor, and of the driver, the keys of deltas may take to be sent to all executors."""

LAYERS_MAX: Final = 8
"""Of more deltas in a file group the newest change of each key is found first: each of its changes would be compared
with the others otherwise."""

_SENT_ROW_BYTES: Final = 64
_SENT_VALUE_BYTES: Final = 16
_SENT_TEXT_BYTES: Final = 64

_ROW: Final = "lakemark_row"
_UPSERTED: Final = "lakemark_upserted"
_DELETED: Final = "lakemark_deleted"

RESERVED: Final = frozenset({OPERATION, INSTANT, COLUMNS, _ROW, _UPSERTED, _DELETED})
"""Names that columns of a table that is merged cannot have."""


class LogSize(NamedTuple):
    """About how many rows the deltas have, and how many deltas a file group has at most: never too few."""

    rows: int
    layers: int


def check_delta_names(schema: Schema, table: str) -> None:
    """Raises InvalidSchema if a column has a name that deltas need."""
    for field in schema.columns:
        if field.name.lower() in RESERVED:
            raise InvalidSchema(f"{table} has a column '{field.name}', a name that deltas need: rename it")


def columns_text(fields: Sequence[Field]) -> str:
    """What ``COLUMNS`` holds for rows that have these columns."""
    return "".join(f",{field.id}" for field in fields) + ","


def merged_sql(base: str, log: str, schema: Schema, kind: TableKind, size: LogSize) -> str:
    """A query for the table's columns, in the schema's order.

    ``base`` and ``log`` are what stands behind FROM: the base rows with the table's columns, and the rows of deltas
    with ``DELTA_FIELDS``, too, of the size ``size``: it decides how Spark merges, not what. No two base rows have one
    key, and neither have two rows of one delta, all of which are of one instant.
    """
    by = _by_column if kind.merge_by == "column" else _by_row
    return by(base, log, schema, kind, size)


def deletes_sql(log: str, schema: Schema, kind: TableKind) -> str:
    """A query for the deletes that are the newest changes of their keys, as rows of a delta, by their own instants.

    ``log`` as in ``merged_sql``; the table has an ordering column. A delete that loses to a base row may be among them:
    it loses to it again whenever they are merged.
    """
    fields = kind.key_fields(schema)
    key = [quoted(field.name) for field in fields]
    ordering, operation, instant = quoted(schema.field(kind.ordering_column).name), quoted(OPERATION), quoted(INSTANT)
    newest = (
        f"SELECT {_list(key)}, max_by(struct({ordering}, {operation}, {instant}), struct({ordering}, {instant})) "
        f"AS {_ROW} FROM {log} GROUP BY {_list(key)}"
    )
    columns = [
        f"{name if field in fields else f'{_ROW}.{name}' if name == ordering else missing_sql(field.type)} AS {name}"
        for field, name in ((field, quoted(field.name)) for field in schema.columns)
    ]
    own = f"{_ROW}.{operation} AS {operation}, {_ROW}.{instant} AS {instant}, CAST(NULL AS STRING) AS {quoted(COLUMNS)}"
    return f"SELECT {_list(columns)}, {own} FROM ({newest}) WHERE {_ROW}.{operation} = '{DELETE}'"


def _by_row(base: str, log: str, schema: Schema, kind: TableKind, size: LogSize) -> str:
    fields = kind.key_fields(schema)
    key = [quoted(field.name) for field in fields]
    names = _list(quoted(field.name) for field in schema.columns)
    ordering = quoted(schema.field(kind.ordering_column).name) if kind.ordering_column else ""
    hint = _hint(size, kind.identifying_fields(schema))
    operation, instant = quoted(OPERATION), quoted(INSTANT)
    if size.layers == 1 and not ordering and kind.directory is None:
        # No key has two changes. In an extendible index a bucket and the one it was split from may both have one.
        return (
            f"SELECT {hint}{names} FROM {base} AS a LEFT ANTI JOIN (SELECT {_list(key)} FROM {log}) AS d "
            f"ON {_same(key, 'a', 'd')} UNION ALL SELECT {names} FROM {log} WHERE {operation} <> '{DELETE}'"
        )
    newer = f"d.{instant} > a.{instant}"
    if ordering:
        ours, theirs = f"a.{ordering}", f"d.{ordering}"
        newer = f"({ours} IS NULL AND {theirs} IS NOT NULL OR {theirs} > {ours} OR {theirs} <=> {ours} AND {newer})"
    # A base row is older than all deltas on top of it. Were that a constant, Spark would compare it once, and not see
    # that the anti joins of base rows and of deltas have the same other side.
    before = f"IF({key[0]} IS NULL, 0L, -1L) AS {instant}"
    rows = (
        f"SELECT {names}, {before}, '{UPSERT}' AS {operation} FROM {base} "
        f"UNION ALL SELECT {names}, {instant}, {operation} FROM {log}"
    )
    changes = f"SELECT {_list([*key, *([ordering] if ordering else []), instant])} FROM {log}"
    if ordering:
        # A base row may be newer than all changes of its key: then these are left out.
        changes += (
            f" UNION ALL SELECT {hint}{_list([*key, ordering])}, {before} FROM {base} AS a "
            f"LEFT SEMI JOIN (SELECT {_list(key)} FROM {log}) AS d ON {_same(key, 'a', 'd')}"
        )
    if size.layers > LAYERS_MAX:
        changes = _newest(changes, key, ordering, instant)
    return (
        f"SELECT {hint}{names} FROM ({rows}) AS a LEFT ANTI JOIN ({changes}) AS d "
        f"ON {_same(key, 'a', 'd')} AND {newer} WHERE {operation} <> '{DELETE}'"
    )


def _newest(changes: str, key: Sequence[str], ordering: str, instant: str) -> str:
    """Of the changes of each key the newest one."""
    if not ordering:
        return f"SELECT {_list(key)}, max({instant}) AS {instant} FROM ({changes}) GROUP BY {_list(key)}"
    newest = f"SELECT {_list(key)}, max(struct({ordering}, {instant})) AS {_ROW} FROM ({changes}) GROUP BY {_list(key)}"
    return f"SELECT {_list(key)}, {_ROW}.{ordering} AS {ordering}, {_ROW}.{instant} AS {instant} FROM ({newest})"


def _by_column(base: str, log: str, schema: Schema, kind: TableKind, size: LogSize) -> str:
    fields = kind.key_fields(schema)
    hint = _hint(size, fields)
    key = [quoted(field.name) for field in fields]
    names = [quoted(field.name) for field in schema.columns]
    operation, instant, columns = quoted(OPERATION), quoted(INSTANT), quoted(COLUMNS)
    touched = f"SELECT DISTINCT {_list(key)} FROM {log}"
    # A base row is older than all deltas on top of it.
    changes = (
        f"SELECT {hint}{_list(f'b.{name}' for name in names)}, '{UPSERT}' AS {operation}, -1L AS {instant}, "
        f"CAST(NULL AS STRING) AS {columns} FROM {base} AS b LEFT SEMI JOIN lakemark_touched AS d "
        f"ON {_same(key, 'b', 'd')} UNION ALL SELECT {_list([*names, operation, instant, columns])} FROM {log}"
    )
    values = [
        f"max_by({quoted(field.name)}, {instant}) FILTER (WHERE {operation} = '{DELETE}' OR {columns} IS NULL "
        f"OR contains({columns}, ',{field.id},')) AS {quoted(field.name)}"
        for field in schema.columns
        if field not in fields
    ]
    values += [
        f"max({instant}) FILTER (WHERE {operation} {sign} '{DELETE}') AS {name}"
        for sign, name in (("<>", _UPSERTED), ("=", _DELETED))
    ]
    folded = f"SELECT {_list([*key, *values])} FROM ({changes}) GROUP BY {_list(key)}"
    return (
        f"WITH lakemark_touched AS ({touched}) "
        f"SELECT {hint}{_list(f'b.{name}' for name in names)} FROM {base} AS b "
        f"LEFT ANTI JOIN lakemark_touched AS d ON {_same(key, 'b', 'd')} "
        f"UNION ALL SELECT {_list(names)} FROM ({folded}) WHERE {_UPSERTED} > coalesce({_DELETED}, -2L)"
    )


def _hint(size: LogSize, sent: Sequence[Field]) -> str:
    """Spark's own guess of the size is that of files; it would rather sort all base rows than send a few megabytes."""
    row = _SENT_ROW_BYTES + sum(_SENT_TEXT_BYTES if is_textual(field.type) else _SENT_VALUE_BYTES for field in sent)
    return "/*+ BROADCAST(d) */ " if size.rows * row <= SENT_BYTES_MAX else ""


def _list(names: Sequence[str] | Iterator[str]) -> str:
    return ", ".join(names)


def _same(key: Sequence[str], left: str, right: str) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in key)
