"""Pruning, one rule at a time."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal as Dec
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakemark_core.expressions import ColumnRef, Compare, Literal, bind, parse_predicate
from lakemark_core.types import BIGINT
from lakemark_server.file_index.entries.file_stats import ColumnStats, FileStats, PreparedColumn, PreparedStats, prepare
from lakemark_server.file_index.pruning.rules import PruneResult, prune
from tests.unit.predicates import SCHEMA


def verdict(text: str, stats: FileStats) -> list[str]:
    """``no``, ``may`` or ``all`` for each file."""
    result = prune(bind(parse_predicate(text), SCHEMA), stats)
    return [
        "all" if every else "may" if some else "no"
        for some, every in zip(result.may_match, result.all_match, strict=True)
    ]


def files(name: str, low: list[Any], high: list[Any], kind: pa.DataType, **more: Any) -> FileStats:
    """Files of ten rows with bounds of one column, by default without nulls and NaN."""
    none = pa.array([0] * len(low))
    counts = {"null_count": none, "nan_count": none, **more}
    stats = ColumnStats(pa.array(low, kind), pa.array(high, kind), **counts)
    return FileStats(np.full(len(low), 10), {SCHEMA.field(name).id: stats})


INTS = files("i", [1, 5, 7], [3, 5, 9], pa.int32())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 5", ["no", "all", "no"]),
        ("i = 2", ["may", "no", "no"]),
        ("i != 5", ["all", "no", "all"]),
        ("i != 2", ["may", "all", "all"]),
        ("i < 3", ["may", "no", "no"]),
        ("i <= 3", ["all", "no", "no"]),
        ("i > 5", ["no", "no", "all"]),
        ("i >= 5", ["no", "all", "all"]),
        ("i IN (0, 4, 5, 6, 8)", ["no", "all", "may"]),
        ("i NOT IN (0, 4, 5, 6, 8)", ["all", "no", "may"]),
        ("i IS NULL", ["no", "no", "no"]),
        ("i IS NOT NULL", ["all", "all", "all"]),
        ("i < 3 OR i > 4", ["may", "all", "all"]),
        ("i > 2 AND i < 8", ["may", "all", "may"]),
        ("NOT (i > 2 AND i < 8)", ["may", "no", "may"]),
        ("i < 4 AND upper('x') = 'X'", ["may", "no", "no"]),
        ("i < 4 OR upper('x') = 'X'", ["all", "may", "may"]),
        ("TRUE", ["all", "all", "all"]),
        ("FALSE", ["no", "no", "no"]),
    ],
)
def test_bounds(text: str, expected: list[str]) -> None:
    assert verdict(text, INTS) == expected


def test_once_no_file_is_left_other_columns_are_not_looked_at() -> None:
    asked: list[int] = []

    def keep(column_id: int, make: Callable[[], PreparedColumn]) -> PreparedColumn:
        asked.append(column_id)
        return make()

    columns = {**INTS.columns, **files("x", [1.0] * 3, [2.0] * 3, pa.float64()).columns}
    stats = PreparedStats(FileStats(INTS.rows, columns), keep)
    first, second = (SCHEMA.field(name).id for name in ("i", "x"))
    for text, expected in (
        ("i = 4 AND x > 1.5", [first]),
        ("x > 5 AND i = 5", [second]),
        ("i = 5 AND x > 1.5", [first, second]),
        ("i = 4 AND x > 1.5 OR x > 1.5", [first, second]),
    ):
        asked.clear()
        prune(bind(parse_predicate(text), SCHEMA), stats)
        assert asked == expected, text


def test_nulls_satisfy_no_comparison() -> None:
    stats = files("i", [1, None, 1, 1], [1, None, 1, 1], pa.int32(), null_count=pa.array([0, 10, 3, None]))
    assert verdict("i = 1", stats) == ["all", "no", "may", "may"]
    assert verdict("i != 2", stats) == ["all", "no", "may", "may"]
    assert verdict("NOT i = 2", stats) == ["all", "no", "may", "may"]
    assert verdict("i IN (1, 2)", stats) == ["all", "no", "may", "may"]
    assert verdict("i NOT IN (2)", stats) == ["all", "no", "may", "may"]
    assert verdict("i <=> 1", stats) == ["all", "no", "may", "may"]
    assert verdict("NOT i <=> 1", stats) == ["no", "all", "may", "may"]
    assert verdict("i IS NULL", stats) == ["no", "all", "may", "may"]


def test_what_is_not_known_excludes_nothing() -> None:
    stats = files("i", [None, 1, None], [9, None, None], pa.int32())
    assert verdict("i > 9", stats) == ["no", "may", "may"]
    assert verdict("i < 1", stats) == ["may", "no", "may"]
    assert verdict("i <= 9", stats) == ["all", "may", "may"]
    assert verdict("i IN (-5)", stats) == ["may", "no", "may"]
    assert verdict("i IN (10)", stats) == ["no", "may", "may"]
    assert verdict("l = 1", stats) == ["may", "may", "may"]
    nothing = FileStats(np.full(2, 10), {1: ColumnStats()})
    assert verdict("i = 1 OR i IS NULL", nothing) == ["may", "may"]


def test_a_column_added_later() -> None:
    stats = files("late", [None, 1], [None, 1], pa.int32(), null_count=pa.array([None, 0]))
    assert verdict("late = 1", stats) == ["may", "all"]
    assert verdict("late IS NULL", stats) == ["may", "no"]
    told = files(
        "late", [None, 1], [None, 1], pa.int32(), null_count=pa.array([None, 0]), absent=np.array([True, False])
    )
    assert verdict("late = 1", told) == ["no", "all"]
    assert verdict("late IS NULL", told) == ["all", "no"]
    told = files("late", [None, 1], [None, 1], pa.int32(), absent=np.array([True, False]))
    assert verdict("late IS NOT NULL", told) == ["no", "all"]
    assert verdict("late IS NULL", told) == ["all", "no"]  # whatever the count says
    everywhere = FileStats(np.full(2, 10), {11: ColumnStats(absent=np.array([True, True]))})
    assert verdict("late = 1", everywhere) == ["no", "no"]


def test_empty_files_never_match() -> None:
    stats = FileStats(np.array([0, 5]), {})
    assert verdict("TRUE", stats) == ["no", "all"]
    assert verdict("i = 1", stats) == ["no", "may"]
    assert verdict("TRUE", FileStats(np.array([], dtype=np.int64))) == []


def test_nan_is_above_the_highest_value() -> None:
    stats = files("x", [1.0, 1.0, 1.0, None], [2.0, 2.0, 2.0, None], pa.float64(), nan_count=pa.array([0, 1, None, 10]))
    assert verdict("x > 2", stats) == ["no", "may", "may", "all"]
    assert verdict("x >= 1", stats) == ["all", "all", "all", "all"]
    assert verdict("x <= 2", stats) == ["all", "may", "may", "no"]
    assert verdict("x != 3", stats) == ["all", "all", "all", "all"]
    assert verdict("x < 3", stats) == ["all", "may", "may", "no"]
    assert verdict("x = CAST('NaN' AS DOUBLE)", stats) == ["no", "may", "may", "all"]
    assert verdict("x < CAST('NaN' AS DOUBLE)", stats) == ["all", "may", "may", "no"]
    assert verdict("x > CAST('NaN' AS DOUBLE)", stats) == ["no", "no", "no", "no"]
    assert verdict("x <= CAST('NaN' AS DOUBLE)", stats) == ["all", "all", "all", "all"]
    assert verdict("x IN (5, CAST('NaN' AS DOUBLE))", stats) == ["no", "may", "may", "all"]
    assert verdict("x NOT IN (5, CAST('NaN' AS DOUBLE))", stats) == ["all", "may", "may", "no"]


def test_one_value_and_nan() -> None:
    stats = files("x", [5.0, 5.0, 5.0], [5.0, 5.0, 5.0], pa.float64(), nan_count=pa.array([0, 1, None]))
    assert verdict("x = 5", stats) == ["all", "may", "may"]
    assert verdict("x != 5", stats) == ["no", "may", "may"]
    assert verdict("x IN (5, 6)", stats) == ["all", "may", "may"]
    assert verdict("x NOT IN (5, 6)", stats) == ["no", "may", "may"]
    assert verdict("x IN (5, CAST('NaN' AS DOUBLE))", stats) == ["all", "all", "all"]
    assert verdict("x NOT IN (5, CAST('NaN' AS DOUBLE))", stats) == ["no", "no", "no"]


def test_bounds_that_are_nan_are_no_bounds() -> None:
    stats = files("x", [math.nan], [math.nan], pa.float64(), nan_count=pa.array([None], pa.int64()))
    for text in ("x = 1", "x IN (1, 2)", "x > 1", "x < 1"):
        assert verdict(text, stats) == ["may"]


def test_the_two_zeros_are_equal() -> None:
    stats = files("x", [-0.0, 0.0], [-0.0, 0.0], pa.float64())
    assert verdict("x = 0", stats) == ["all", "all"]
    assert verdict("x = -0.0D", stats) == ["all", "all"]
    assert verdict("x < 0", stats) == ["no", "no"]
    assert verdict("x IN (0, 7)", stats) == ["all", "all"]


def test_truncated_strings_are_bounds_only() -> None:
    stats = files("s", ["ab", "ab", "ab"], ["ac", "ab", None], pa.string())
    assert verdict("s = 'ab'", stats) == ["may", "all", "may"]
    assert verdict("s LIKE 'ab%'", stats) == ["may", "all", "may"]
    assert verdict("s LIKE 'b%'", stats) == ["no", "no", "may"]
    assert verdict("s NOT LIKE 'b%'", stats) == ["all", "all", "may"]
    assert verdict("s LIKE 'b%c'", stats) == ["no", "no", "may"]
    assert verdict("s NOT LIKE 'b%c'", stats) == ["all", "all", "may"]
    assert verdict("s LIKE 'ab%c'", stats) == ["may", "may", "may"]
    assert verdict("s NOT LIKE 'ab%c'", stats) == ["may", "may", "may"]
    assert verdict("s NOT LIKE 'ab%'", stats) == ["may", "no", "may"]
    assert verdict("s LIKE '%'", stats) == ["all", "all", "all"]


def test_strings_are_ordered_by_code_point_not_by_utf16() -> None:
    stats = files("s", ["\uffff"], ["\U0001f600"], pa.string())
    assert verdict("s = '\U0001f600'", stats) == ["may"]
    assert verdict("s > '\uffff'", stats) == ["may"]
    assert verdict("startswith(s, '\U0001f5ff')", stats) == ["may"]
    assert verdict("s < '\U0001f601'", stats) == ["all"]


@pytest.mark.parametrize("kind", [pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(38, 2)])
def test_decimals_of_any_scale(kind: pa.DataType) -> None:
    stats = files("m", [Dec("-1.50"), Dec("1.00")], [Dec("1.50"), Dec("1.00")], kind)
    assert verdict("m = 1", stats) == ["may", "all"]
    assert verdict("m > 1.495", stats) == ["may", "no"]
    assert verdict("m > 1.505", stats) == ["no", "no"]
    assert verdict("m < -1.495", stats) == ["may", "no"]
    assert verdict("m >= -1.5", stats) == ["all", "all"]
    assert verdict("m IN (1, 2)", stats) == ["may", "all"]


def test_decimals_that_no_machine_integer_holds() -> None:
    low, high = Dec("-1234567890123456789012345.5"), Dec("1234567890123456789012345.5")
    stats = files("w", [low, high], [high, high], pa.decimal128(30, 5))
    assert verdict(f"w = {high}", stats) == ["may", "all"]
    assert verdict(f"w < {low}", stats) == ["no", "no"]
    assert verdict("w < 0", stats) == ["may", "no"]
    assert verdict(f"w IN ({low}, {high})", stats) == ["may", "all"]


def test_bounds_of_a_coarser_scale_than_the_literal() -> None:
    stats = files("m", [Dec(-2), Dec(1)], [Dec(-1), Dec(2)], pa.decimal128(10, 0))
    assert verdict("m < 1.01", stats) == ["all", "may"]
    assert verdict("m > -1.01", stats) == ["may", "all"]
    assert verdict("m = 1.01", stats) == ["no", "may"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_and_zone(unit: str) -> None:
    low, high = dt.datetime(2013, 1, 1, tzinfo=dt.UTC), dt.datetime(2013, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    stats = files("t", [low], [high], pa.timestamp(unit, tz="America/New_York"))
    assert verdict("t < TIMESTAMP '2013-01-01 00:00:00'", stats) == ["no"]
    assert verdict("t <= TIMESTAMP '2013-01-01 00:00:00'", stats) == ["may"]
    assert verdict("t <= TIMESTAMP '2013-01-01 00:00:00.999999'", stats) == ["may"]
    assert verdict("t < TIMESTAMP '2013-01-01 00:00:01.000001'", stats) == ["all"]
    assert verdict("t > TIMESTAMP '2013-01-01 00:00:01'", stats) == ["no"]
    assert verdict("t > DATE '2012-12-31'", stats) == ["all"]


def test_dates_before_the_epoch() -> None:
    stats = files("d", [dt.date(1, 1, 1)], [dt.date(1969, 12, 31)], pa.date32())
    assert verdict("d < '1970-01-01'", stats) == ["all"]
    assert verdict("d >= '1970-01-01'", stats) == ["no"]
    assert verdict("d IN (DATE '0001-01-01', DATE '1970-01-01')", stats) == ["may"]


def test_integers_that_a_double_cannot_tell_apart() -> None:
    stats = files("l", [(1 << 53) + 1], [(1 << 53) + 1], pa.int64())
    assert verdict(f"l = {1 << 53}", stats) == ["no"]
    assert verdict(f"l = {(1 << 53) + 1}", stats) == ["all"]
    assert verdict(f"l = {float(1 << 53)!r}D", stats) == ["may"]


def test_statistics_written_before_a_column_was_widened() -> None:
    assert verdict("l > 2000000000000", files("l", [1], [2], pa.int32())) == ["no"]
    assert verdict("x > 1.5", files("x", [1.0], [1.0], pa.float32())) == ["no"]
    whole = files("w", [1], [2], pa.int64())
    assert verdict("w < 100000000000000000000", whole) == ["all"]
    assert verdict("w > -100000000000000000000", whole) == ["all"]
    assert verdict("w > 100000000000000000000", whole) == ["no"]
    # A text says nothing of a number: no rule of any type makes it one here.
    assert verdict("s = 'a'", files("s", [1], [2], pa.int32())) == ["may"]


@pytest.mark.parametrize("dictionary", [False, True])
def test_partition_values_are_exact(dictionary: bool) -> None:
    values = pa.array(["JFK", None, "LGA", "J"])
    stats = FileStats(np.full(4, 10), partition={12: values.dictionary_encode() if dictionary else values})
    assert verdict("p = 'JFK'", stats) == ["all", "no", "no", "no"]
    assert verdict("p != 'JFK'", stats) == ["no", "no", "all", "all"]
    assert verdict("p IS NULL", stats) == ["no", "all", "no", "no"]
    assert verdict("p IN ('LGA', 'J')", stats) == ["no", "no", "all", "all"]
    assert verdict("p NOT IN ('LGA', 'J')", stats) == ["all", "no", "no", "no"]
    assert verdict("p LIKE 'J_K'", stats) == ["all", "no", "no", "no"]
    assert verdict("p NOT LIKE '%F%'", stats) == ["no", "no", "all", "all"]
    assert verdict("p LIKE 'J%'", stats) == ["all", "no", "no", "all"]


@pytest.mark.parametrize("dictionary", [False, True])
def test_partitions_of_nulls_only(dictionary: bool) -> None:
    values = pa.array([None, None], pa.string())
    stats = FileStats(np.full(2, 10), partition={12: values.dictionary_encode() if dictionary else values})
    for text in ("p = 'a'", "p IN ('a', 'b')", "p NOT IN ('a')", "p LIKE '%a_'", "p NOT LIKE '%a_'", "p < 'a'"):
        assert verdict(text, stats) == ["no", "no"]


def test_slices_of_arrays() -> None:
    whole = pa.array([Dec("9.00"), Dec("1.00"), None, Dec("2.00")], pa.decimal128(10, 2))
    long = whole.cast(pa.decimal128(38, 2))
    for array in (whole.slice(1), long.slice(1), pa.chunked_array([whole.slice(1, 1), whole.slice(2)])):
        stats = FileStats(np.full(3, 10), {6: ColumnStats(array, array, pa.array([0, 0, 0]))})
        assert verdict("m = 1", stats) == ["all", "may", "no"]


@pytest.mark.parametrize("kind", [pa.decimal128(10, 2), pa.decimal128(38, 2)])
def test_slices_without_nulls(kind: pa.DataType) -> None:
    array = pa.array([Dec("9.00"), Dec("1.00"), Dec("2.00")], kind).slice(1)
    stats = FileStats(np.full(2, 10), {6: ColumnStats(array, array, pa.array([0, 0]))})
    assert verdict("m = 1", stats) == ["all", "no"]


def test_prepared_statistics_give_the_same_answer() -> None:
    prepared = prepare(INTS)
    for text in ("i = 5", "i < 3", "i = 5"):
        expr = bind(parse_predicate(text), SCHEMA)
        first, again = prune(expr, INTS), prune(expr, prepared)
        assert isinstance(again, PruneResult)
        assert first.may_match.tolist() == again.may_match.tolist()
        assert first.all_match.tolist() == again.all_match.tolist()


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="not bound"):
        prune(Compare("=", ColumnRef(("i",)), Literal(1, BIGINT)), INTS)
    for bad in (
        ColumnStats(pa.array([1, 2]), pa.array([1, 2])),
        ColumnStats(null_count=pa.array([1, 2])),
        ColumnStats(pa.array([1]), pa.array([1.0])),
    ):
        with pytest.raises(ValueError, match=r"for 1 files|different types"):
            verdict("i = 1", FileStats(np.array([1]), {1: bad}))
