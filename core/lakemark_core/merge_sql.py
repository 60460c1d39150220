"""Base rows and deltas as the rows that they stand for, in Spark SQL (docs/keyed-tables.md). Pure.

A delta is a parquet file with the table's columns and those below. Each of its rows says what became of one key. Rows
that no delta is about take no part in sorting or aggregation: they only pass an anti join.
"""

# ruff: noqa: S608 - all names are quoted

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lakemark_core.errors import InvalidSchema
from lakemark_core.evolution.sql import missing_sql, quoted
from lakemark_core.table_kind import TableKind
from lakemark_core.types import BIGINT, STRING, Field, Schema

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

_ROW: Final = "lakemark_row"
_UPSERTED: Final = "lakemark_upserted"
_DELETED: Final = "lakemark_deleted"

RESERVED: Final = frozenset({OPERATION, INSTANT, COLUMNS, _ROW, _UPSERTED, _DELETED})
"""Names that columns of a table that is merged cannot have."""


def check_delta_names(schema: Schema, table: str) -> None:
    """Raises InvalidSchema if a column has a name that deltas need."""
    for field in schema.columns:
        if field.name.lower() in RESERVED:
            raise InvalidSchema(f"{table} has a column '{field.name}', a name that deltas need: rename it")


def columns_text(fields: Sequence[Field]) -> str:
    """What ``COLUMNS`` holds for rows that have these columns."""
    return "".join(f",{field.id}" for field in fields) + ","


def merged_sql(base: str, log: str, schema: Schema, kind: TableKind) -> str:
    """A query for the table's columns, in the schema's order.

    ``base`` and ``log`` are what stands behind FROM: the base rows with the table's columns, and the rows of deltas
    with ``DELTA_FIELDS``, too. No two base rows have one key, and neither have two rows of one instant.
    """
    by = _by_column if kind.merge_by == "column" else _by_row
    return by(base, log, schema, kind)


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


def _by_row(base: str, log: str, schema: Schema, kind: TableKind) -> str:
    key = [quoted(field.name) for field in kind.key_fields(schema)]
    names = [quoted(field.name) for field in schema.columns]
    others = [name for name in (*names, quoted(OPERATION)) if name not in key]
    ordering = quoted(schema.field(kind.ordering_column).name) if kind.ordering_column else ""
    order = ", ".join(filter(None, (ordering, quoted(INSTANT))))
    # What a struct is made of keeps its name, whatever its case or its characters.
    newest = (
        f"SELECT {_list(key)}, max_by(struct({_list(others)}), struct({order})) AS {_ROW} "
        f"FROM {log} GROUP BY {_list(key)}"
    )
    columns = _list([*key, *(f"{_ROW}.{name} AS {name}" for name in others)])
    newest = f"WITH lakemark_newest AS (SELECT {columns} FROM ({newest}))"
    if not ordering:
        return (
            f"{newest} SELECT {_list(f'b.{name}' for name in names)} FROM {base} AS b "
            f"{_anti('b', 'lakemark_newest', key)} "
            f"UNION ALL SELECT {_list(names)} FROM lakemark_newest WHERE {quoted(OPERATION)} <> '{DELETE}'"
        )
    operation = f"n.{quoted(OPERATION)}"
    wins = f"{operation} IS NOT NULL AND NOT coalesce(b.{ordering} > n.{ordering}, false)"
    chosen = _list(f"b.{name}" if name in key else f"IF({wins}, n.{name}, b.{name}) AS {name}" for name in names)
    # The newest changes are the small side of each join: base rows need no shuffle.
    known = (
        f"SELECT {_list(f'b.{name}' for name in key)} FROM {base} AS b LEFT SEMI JOIN lakemark_newest AS n "
        f"ON {_same(key, 'b', 'n')}"
    )
    return (
        f"{newest} SELECT {chosen} FROM {base} AS b LEFT JOIN lakemark_newest AS n ON {_same(key, 'b', 'n')} "
        f"WHERE NOT ({wins} AND {operation} = '{DELETE}') "
        f"UNION ALL SELECT {_list(f'n.{name}' for name in names)} FROM lakemark_newest AS n "
        f"{_anti('n', f'({known})', key)} WHERE {operation} <> '{DELETE}'"
    )


def _by_column(base: str, log: str, schema: Schema, kind: TableKind) -> str:
    fields = kind.key_fields(schema)
    key = [quoted(field.name) for field in fields]
    names = [quoted(field.name) for field in schema.columns]
    operation, instant, columns = quoted(OPERATION), quoted(INSTANT), quoted(COLUMNS)
    touched = f"SELECT DISTINCT {_list(key)} FROM {log}"
    # A base row is older than all deltas on top of it.
    changes = (
        f"SELECT {_list(f'b.{name}' for name in names)}, '{UPSERT}' AS {operation}, -1L AS {instant}, "
        f"CAST(NULL AS STRING) AS {columns} FROM {base} AS b LEFT SEMI JOIN lakemark_touched AS n "
        f"ON {_same(key, 'b', 'n')} UNION ALL SELECT {_list([*names, operation, instant, columns])} FROM {log}"
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
        f"SELECT {_list(f'b.{name}' for name in names)} FROM {base} AS b {_anti('b', 'lakemark_touched', key)} "
        f"UNION ALL SELECT {_list(names)} FROM ({folded}) WHERE {_UPSERTED} > coalesce({_DELETED}, -2L)"
    )


def _list(names: Sequence[str] | Iterator[str]) -> str:
    return ", ".join(names)


def _same(key: Sequence[str], left: str, right: str) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in key)


def _anti(left: str, right: str, key: Sequence[str]) -> str:
    return f"LEFT ANTI JOIN {right} AS d ON {_same(key, left, 'd')}"
