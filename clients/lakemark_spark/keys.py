"""The keys of rows that are to be upserted: which columns, what may not be in them, and the ranges that they lie in."""

# ruff: noqa: S608 - all names are quoted

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from lakemark_core.errors import InvalidArgument
from lakemark_core.evolution.sql import quoted
from lakemark_core.expressions import ColumnRef, Compare, Expr, Literal, LiteralValue, Operator, all_of, any_of
from lakemark_core.expressions.render import literal_sql
from lakemark_core.types import (
    BOOLEAN,
    CODECS,
    DEFAULT_PARTITION,
    TIMESTAMP,
    Field,
    Schema,
    ValueKind,
    is_nested,
    is_textual,
)
from lakemark_spark.queries import query, text_sql

RANGES_MAX: Final = 256
"""So many ranges of keys are asked for in a plan: each costs the service a look at every file's bounds."""

BOUNDED_KEYS_MAX: Final = 4
"""Further key columns are not asked for; the text of a plan is limited."""

BOUND_LENGTH_MAX: Final = 100
"""Characters or bytes of a bound in a plan."""

Bounds: TypeAlias = tuple[LiteralValue, LiteralValue]
"""The least and the greatest value of a column, both included; None: not known."""

# No column is named so: names do not begin with a space.
_RANGE: Final = " range"
_COUNT: Final = " count"
_NULL_PARTITION: Final = ("", DEFAULT_PARTITION)
"""Texts that a partition's path cannot hold: they are read as null."""
_MICROS_A_DAY: Final = 86_400_000_000
_SINCE_1970: Final = (ValueKind.DATE, ValueKind.TIMESTAMP, ValueKind.TIMESTAMP_NTZ)


def key_fields(keys: str | Sequence[str], schema: Schema, given: Sequence[str], table: str) -> list[Field]:
    """The key columns, those first that partition the table. ``given``: the DataFrame's columns.

    Raises InvalidArgument if there is none, one twice, one that the DataFrame does not have or that cannot be a key;
    InvalidSchema: the table has no such column.
    """
    fields = [schema.field(name) for name in ([keys] if isinstance(keys, str) else keys)]
    if not fields:
        raise InvalidArgument("keys=[] names no column: name at least one, by which rows are told apart")
    if len(set(fields)) < len(fields):
        raise InvalidArgument(f"keys={list(keys)} names a column twice")
    has = {name.lower() for name in given}
    for field in fields:
        if field.name.lower() not in has:
            raise InvalidArgument(f"column '{field.name}' is a key of {table}, and the DataFrame does not have it")
        if is_nested(field.type):
            raise InvalidArgument(
                f"column '{field.name}' of {table} cannot be a key: it is a struct, an array or a map"
            )
    return sorted(fields, key=lambda field: not schema.is_partition(field.name))


def count_keys(rows: DataFrame, keys: Sequence[Field], schema: Schema, table: str) -> int:
    """How many rows there are, each of which has a key of its own.

    Raises InvalidArgument if a key has a null or occurs twice, with an example.
    """
    columns = ", ".join(quoted(field.name) for field in keys)
    count_ = quoted(_COUNT)
    null = " OR ".join(is_null_sql(field, schema) for field in keys)
    by_key = f"SELECT {columns}, count(*) AS {count_} FROM \x00rows GROUP BY {columns}"
    # Numbers alone, for which Spark hashes: of texts it would sort all keys.
    ((count, with_null, repeated),) = query(
        f"SELECT sum({count_}), count_if({null}), count_if({count_} > 1) FROM ({by_key})", rows=rows
    ).collect()
    if with_null:
        raise null_key(example_of(rows, by_key, null, keys), table)
    if repeated:
        raise repeated_key(example_of(rows, by_key, f"{count_} > 1", keys), table)
    return count or 0


def example_of(rows: DataFrame, by_key: str, fault: str, keys: Sequence[Field]) -> str:
    """A key for which ``fault`` is true in ``by_key``, a query of ``rows``, as JSON."""
    ((example,),) = query(f"SELECT max({example_sql(keys)}) FROM ({by_key}) WHERE {fault}", rows=rows).collect()
    return str(example)


def is_null_sql(field: Field, schema: Schema) -> str:
    """Whether a column has no value, or one that is read as null because it partitions the table."""
    column = quoted(field.name)
    if schema.is_partition(field.name) and is_textual(field.type):
        return f"{column} IS NULL OR {column} IN ({', '.join(map(text_sql, _NULL_PARTITION))})"
    return f"{column} IS NULL"


def example_sql(keys: Sequence[Field], names: Sequence[str] = ()) -> str:
    """A key as JSON. ``names``: the columns that have it, if not those of ``keys``."""
    columns = zip(names or [field.name for field in keys], keys, strict=True)
    members = (f"{quoted(name)} AS {quoted(field.name)}" for name, field in columns)
    return f"to_json(struct({', '.join(members)}), map('ignoreNullFields', 'false'))"


def null_key(example: str, table: str) -> InvalidArgument:
    """The refusal of rows with a null in their key; ``example``: such a key."""
    return InvalidArgument(
        f"the DataFrame has rows whose key is null, as {example}: a null equals nothing in {table}, so such rows would "
        "be inserted again each time; filter them, or give them a value"
    )


def repeated_key(example: str, table: str) -> InvalidArgument:
    """The refusal of several rows with one key, ``example``."""
    return InvalidArgument(
        f"the DataFrame has several rows with one key, as {example}: which of them {table} is to have is not known; "
        "keep one of each key (dropDuplicates, or row_number() over a window)"
    )


def ranges_of(rows: DataFrame, keys: Sequence[Field], schema: Schema, count: int) -> Expr:
    """What is true for the keys of all ``rows`` (``count`` of them) and for few others: about RANGES_MAX ranges.

    Unless the rows have too many partitions, no range reaches over two, so that no file of a partition is planned for
    the rows of others.
    """
    columns = [F.col(f"`{field.name}`") for field in keys]
    size = max(1, -(-count // RANGES_MAX))
    # In order, the number of a row among those of its task cuts them into pieces; any other cut would be right, too.
    cut = F.expr(f"monotonically_increasing_id() div {size}")
    pieces = rows.select(*columns).orderBy(*columns).withColumn(_RANGE, cut)
    bounded = keys[:BOUNDED_KEYS_MAX]
    bounds = [
        F.struct(F.min(column).alias("low"), F.max(column).alias("high")).alias(f"{at}")
        for at, column in enumerate(map(in_python, bounded))
    ]
    partition = [column for column, field in zip(columns, keys, strict=True) if schema.is_partition(field.name)]
    ranges: list[Row] = []
    for apart in (partition, []):
        grouped = pieces.groupBy(F.col(f"`{_RANGE}`"), *apart).agg(*bounds)
        ranges = grouped.select(*(f"`{at}`" for at in range(len(bounded)))).collect()
        if len(ranges) <= 2 * RANGES_MAX:
            break
    return any_of(
        range_of({field: bounds_of(pair.low, pair.high, field) for field, pair in zip(bounded, row, strict=True)})
        for row in ranges
    )


def bounds_of(low: Any, high: Any, field: Field) -> Bounds:
    """The bounds of a column for a predicate, from those of ``in_python``; long texts and bytes are cut."""
    if field.type.kind in _SINCE_1970:
        return _moment(low, field.type.kind), _moment(high, field.type.kind)
    if isinstance(low, str | bytes | bytearray):
        last = _cut(high)
        return _cut(low), last if len(last) == len(high) else None
    return low, high


def range_of(bounds: Mapping[Field, Bounds]) -> Expr:
    """Where the columns lie within their bounds."""
    terms: list[Expr] = []
    for field, (low, high) in bounds.items():
        column = ColumnRef((field.name,))
        if low is not None and low == high:
            terms.append(Compare("=", column, Literal(low, field.type)))
        elif field.type != BOOLEAN:
            sides: list[tuple[Operator, LiteralValue]] = [(">=", low), ("<=", high)]
            terms += [Compare(op, column, Literal(value, field.type)) for op, value in sides if value is not None]
    return all_of(terms)


def in_python(field: Field) -> Column:
    """``in_python_sql`` as an expression."""
    return F.expr(in_python_sql(field))


def in_python_sql(field: Field) -> str:
    """The column as values that Python can hold: its times lack the session's zone, and years above 9999.

    ``from_python`` makes values of the column's type of them.
    """
    column = quoted(field.name)
    if field.type == TIMESTAMP:
        return f"unix_micros({column})"
    if field.type.kind in _SINCE_1970:
        epoch = Literal(CODECS[field.type.kind].from_plain(0), field.type)
        return f"{column} - {literal_sql(epoch)}"
    return column


def from_python(value: Any, field: Field) -> LiteralValue:
    """The value of a column from that of ``in_python``; None for a time outside of the years 1 to 9999."""
    if value is None or field.type.kind not in _SINCE_1970:
        return bytes(value) if isinstance(value, bytearray) else value
    return _moment(value, field.type.kind)


def _moment(since: dt.timedelta | int, kind: ValueKind) -> LiteralValue:
    """The moment so long after 1970 (microseconds, if it is a number); None outside the years 1 to 9999."""
    micros = since if isinstance(since, int) else since // dt.timedelta(microseconds=1)
    try:
        return CODECS[kind].from_plain(micros // _MICROS_A_DAY if kind is ValueKind.DATE else micros)
    except OverflowError:
        return None


def _cut(bound: str | bytes | bytearray) -> str | bytes:
    """The beginning of a text or of bytes, as far as Python and Spark agree on it; it is not greater than the whole."""
    if isinstance(bound, str):
        return bound[:BOUND_LENGTH_MAX].partition("\ufffd")[0]  # bytes that are no text become this
    return bytes(bound[:BOUND_LENGTH_MAX])
