"""Pruning against brute force: random tables in files, with correct statistics that are then weakened."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemark_core.expressions import bind, parse_predicate, to_sql
from lakemark_core.types import DATE, INTEGER_BITS, STRING, TIMESTAMP, Decimal, is_floating, is_integer, to_arrow
from lakemark_server.file_index.entries.file_stats import ColumnStats, FileStats, prepare
from lakemark_server.file_index.pruning.rules import prune
from tests.lengths import examples
from tests.unit.predicates import PARTITIONS, SCHEMA, Row, holds, predicates, values

DATA = [column for column in SCHEMA.columns if column.name not in PARTITIONS]
File = list[Row]


@st.composite
def files(draw: st.DrawFn, max_rows: int = 4) -> list[File]:
    """Files of one partition each. A file may be empty, and old files have only nulls in the late column."""
    found: list[File] = []
    for _ in range(draw(st.integers(1, 4))):
        partition = {name: draw(values(name)) for name in PARTITIONS}
        old = draw(st.booleans())
        rows = draw(st.integers(0 if max_rows > 1 else 1, max_rows))
        for_all = {**partition, "late": None} if old else partition
        found.append([{**{one.name: draw(values(one.name)) for one in DATA}, **for_all} for _ in range(rows)])
    return found


def statistics(table: Sequence[File]) -> FileStats:
    """Complete statistics of the files."""
    columns: dict[int, ColumnStats] = {}
    for column in DATA:
        bounds, nulls, nans, absent = [], [], [], []
        for file in table:
            found = [row[column.name] for row in file if row[column.name] is not None]
            plain = [one for one in found if not (isinstance(one, float) and math.isnan(one))]
            bounds.append((min(plain), max(plain)) if plain else (None, None))
            nulls.append(len(file) - len(found))
            nans.append(len(found) - len(plain))
            absent.append(column.name == "late" and bool(file) and not found)
        kind = to_arrow(column.type)
        columns[column.id] = ColumnStats(
            pa.array([low for low, _ in bounds], kind),
            pa.array([high for _, high in bounds], kind),
            pa.array([None if gone else count for gone, count in zip(absent, nulls, strict=True)], pa.int64()),
            pa.array(nans, pa.int64()) if is_floating(column.type) else None,
            np.array(absent) if column.name == "late" else None,
        )
    rows = np.array([len(file) for file in table], dtype=np.int64)
    partition = {
        field.id: pa.array([file[0][field.name] if file else None for file in table], to_arrow(field.type))
        for field in SCHEMA.partition_fields
    }
    return FileStats(rows, columns, partition)


def _lower(value: Any, kind: Any) -> Any:
    """A lower bound: the beginning of a string, or a smaller number."""
    if kind == STRING:
        return value[:1]
    if is_integer(kind):
        return value - 1 if value > -(1 << (INTEGER_BITS[kind] - 1)) else value
    return value if isinstance(value, bool | decimal.Decimal) else _shift(value, -1)


def _upper(value: Any, kind: Any) -> Any:
    if kind == STRING:
        # As writers truncate: the last kept character is raised, past the surrogates; None where it cannot be.
        raised = ord(value[0]) + 1 if value else 1
        return None if raised > 0x10FFFF else chr(0xE000 if 0xD800 <= raised <= 0xDFFF else raised)
    if is_integer(kind):
        return value + 1 if value < (1 << (INTEGER_BITS[kind] - 1)) - 1 else value
    return value if isinstance(value, bool | decimal.Decimal) else _shift(value, 1)


def _shift(value: Any, direction: int) -> Any:
    if isinstance(value, float):
        return value + direction
    return value + dt.timedelta(days=direction)


@st.composite
def weakened(draw: st.DrawFn, stats: FileStats) -> FileStats:
    """The same statistics with bounds lost or widened, counts or columns lost, as dictionaries, or in other units."""

    def array(name: str, given: pa.Array | None, column: Any) -> pa.Array | None:
        if given is None or draw(st.integers(0, 9)) == 0:
            return None
        change = {"min": _lower, "max": _upper}.get(name, lambda value, _: value)
        changed = []
        for value in given.to_pylist():
            how = draw(st.sampled_from(["keep", "keep", "widen", "lose"]))
            if value is None or how == "lose":
                changed.append(None)
            else:
                changed.append(change(value, column.type) if how == "widen" else value)
        return pa.array(changed, given.type)

    columns = {}
    for column in DATA:
        if draw(st.integers(0, 9)) == 0:
            continue
        stat = stats.columns[column.id]
        low, high = array("min", stat.min, column), array("max", stat.max, column)
        if column.type == TIMESTAMP and draw(st.booleans()):
            low = None if low is None else low.cast(pa.timestamp("ns", tz="America/New_York"))
            high = None if high is None else high.cast(pa.timestamp("ns", tz="America/New_York"))
        if isinstance(column.type, Decimal) and column.type.precision <= 36 and draw(st.booleans()):
            wider = pa.decimal128(38, column.type.scale + 2)
            low, high = (None if one is None else one.cast(wider) for one in (low, high))
        absent = stat.absent if draw(st.booleans()) else None
        columns[column.id] = ColumnStats(
            low, high, array("null", stat.null_count, column), array("nan", stat.nan_count, column), absent
        )
    partition = {
        column_id: one.dictionary_encode() if draw(st.booleans()) else one for column_id, one in stats.partition.items()
    }
    return FileStats(stats.rows, columns, partition)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), files(), predicates())
def test_no_matching_row_is_lost_and_no_other_row_is_claimed(data: st.DataObject, table: list[File], expr: Any) -> None:
    stats = data.draw(weakened(statistics(table)))
    result = prune(bind(expr, SCHEMA), stats)
    for index, file in enumerate(table):
        truths = [holds(expr, row) for row in file]
        if any(truths):
            assert result.may_match[index], (index, to_sql(expr))
        if result.all_match[index]:
            assert truths, "an empty file matches nothing"
            assert all(truths), (index, to_sql(expr))


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(files(max_rows=1), predicates(decidable=True))
def test_full_statistics_of_single_rows_decide_exactly(table: list[File], expr: Any) -> None:
    bound = bind(expr, SCHEMA)
    if "Unknown" in repr(bound):
        return  # what Spark's modes evaluate differently
    result = prune(bound, prepare(statistics(table)))
    truths = [holds(expr, file[0]) is True for file in table]
    assert result.may_match.tolist() == truths, to_sql(expr)
    assert result.all_match.tolist() == truths, to_sql(expr)


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(files(), predicates())
def test_sql_says_the_same_as_the_tree(table: list[File], expr: Any) -> None:
    bound = bind(expr, SCHEMA)
    rows = [row for file in table for row in file]
    for tree in (expr, bound):
        if "Unknown" not in repr(tree):
            again = parse_predicate(to_sql(tree))
            assert [holds(again, row) for row in rows] == [holds(expr, row) for row in rows], to_sql(tree)


@settings(max_examples=examples(100))
@given(st.data())
def test_large_in_lists(data: st.DataObject) -> None:
    from lakemark_core.expressions import ColumnRef, In, Literal

    name, kind = data.draw(st.sampled_from([("l", SCHEMA.field("l").type), ("s", STRING), ("d", DATE)]))
    numbers = data.draw(st.lists(st.integers(0, 60), min_size=20, max_size=40))
    make = {"l": int, "s": lambda n: f"k{n:02}", "d": lambda n: dt.date(2020, 1, 1) + dt.timedelta(days=n)}[name]
    bounds = data.draw(st.lists(st.tuples(st.integers(-5, 70), st.integers(0, 5)), min_size=1, max_size=8))
    field = SCHEMA.field(name)
    lows, highs = [make(low) for low, _ in bounds], [make(low + span) for low, span in bounds]
    lose = data.draw(st.lists(st.booleans(), min_size=len(bounds), max_size=len(bounds)))
    low_array = pa.array([None if lost else low for lost, low in zip(lose, lows, strict=True)], to_arrow(kind))
    stats = FileStats(
        np.full(len(bounds), 10),
        {field.id: ColumnStats(low_array, pa.array(highs, to_arrow(kind)), pa.array([0] * len(bounds)))},
    )
    listed = [make(number) for number in numbers]
    expr = In(ColumnRef((name,)), tuple(Literal(one, kind) for one in listed))
    result = prune(bind(expr, SCHEMA), stats)
    for index, (low, high, lost) in enumerate(zip(lows, highs, lose, strict=True)):
        assert result.may_match[index] == any((lost or low <= one) and one <= high for one in listed)
        assert result.all_match[index] == (not lost and low == high and low in listed)
