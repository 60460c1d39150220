"""Functions of a column and arithmetic: files are pruned, but none with a row that matches in any session's zone."""

from __future__ import annotations

import datetime as dt
import math
import operator
import random
from collections.abc import Callable
from decimal import Decimal as Dec
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemark_core.expressions import And, Applied, Compare, Expr, In, Step, bind, normalize, parse_predicate
from lakemark_core.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    Decimal,
    Field,
    Schema,
    to_arrow,
)
from lakemark_server.file_index.entries.file_stats import ColumnStats, FileStats
from lakemark_server.file_index.pruning.rules import prune
from tests.lengths import examples
from tests.predicate_texts import call
from tests.unit.file_index.pruning.test_pruning_property import files, statistics, weakened
from tests.unit.predicates import SCHEMA, Row

COLUMNS = Schema.build(
    [
        Field(1, "day", DATE),
        Field(2, "at", TIMESTAMP),
        Field(3, "wall", TIMESTAMP_NTZ),
        Field(4, "i", INT),
        Field(5, "l", BIGINT),
        Field(6, "x", DOUBLE),
        Field(7, "m", Decimal(10, 2)),
        Field(8, "y", TINYINT),
        Field(9, "p", INT),
    ],
    ["p"],
)
ZONES = [dt.timedelta(0), dt.timedelta(hours=-12), dt.timedelta(hours=14), dt.timedelta(hours=5, minutes=45)]


def verdict(text: str, low: Any, high: Any, **more: Any) -> str:
    """``no``, ``may`` or ``all`` for a file of ten rows with these bounds of the column that the text names."""
    bound = normalize(bind(parse_predicate(text), COLUMNS))
    assert isinstance(bound, Applied)
    field = next(field for field in COLUMNS.columns if field.id == bound.columns[0].id)
    if field.name == "p":
        stats = FileStats(np.array([10]), {}, {field.id: pa.array([low], to_arrow(field.type))})
    else:
        bounds = [pa.array([one], to_arrow(field.type)) for one in (low, high)]
        counts = {"null_count": pa.array([0]), "nan_count": pa.array([0]), **more}
        stats = FileStats(np.array([10]), {field.id: ColumnStats(*bounds, **counts)})
    result = prune(bound, stats)
    return "all" if result.all_match[0] else "may" if result.may_match[0] else "no"


def _day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


def _at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


MAX, MIN = (1 << 31) - 1, -(1 << 31)


@pytest.mark.parametrize(
    ("text", "low", "high", "expected"),
    [
        ("month(day) = 3", _day("2026-03-01"), _day("2026-03-31"), "all"),
        ("month(day) = 3", _day("2026-01-01"), _day("2026-02-28"), "no"),
        ("month(day) = 3", _day("2026-02-01"), _day("2026-04-28"), "may"),
        ("month(day) = 3", _day("2025-12-01"), _day("2026-01-28"), "may"),  # of two years nothing is known
        ("month(day) IN (1, 2)", _day("2026-02-01"), _day("2026-02-28"), "all"),
        ("month(day) NOT IN (1, 2)", _day("2026-02-01"), _day("2026-02-28"), "no"),
        ("NOT month(day) = 3", _day("2026-03-01"), _day("2026-03-31"), "no"),
        ("month(day) > 12", None, None, "no"),
        ("dayofmonth(day) > 20", _day("1969-02-01"), _day("1969-02-20"), "no"),
        ("month(at) = 3", _at("2026-03-02"), _at("2026-03-30"), "all"),
        ("month(at) = 3", _at("2026-03-01"), _at("2026-03-30"), "may"),
        ("month(at) = 3", _at("2026-04-01T17:59"), _at("2026-04-30"), "may"),
        ("month(at) = 3", _at("2026-04-01T18:00"), _at("2026-04-30"), "no"),
        ("year(at) = 2026", _at("2027-01-01T17:00"), _at("2027-05-01"), "may"),
        ("year(at) = 2026", _at("2027-01-02"), _at("2027-05-01"), "no"),
        ("CAST(at AS DATE) < '2026-03-01'", _at("2026-03-03"), _at("2026-03-05"), "no"),
        ("hour(wall) = 10", dt.datetime(2026, 3, 1, 10), dt.datetime(2026, 3, 1, 10, 59), "all"),
        ("hour(wall) = 10", dt.datetime(2026, 3, 1, 11), dt.datetime(2026, 3, 2, 9), "may"),
        ("hour(wall) < 3", dt.datetime(1969, 12, 31, 3), dt.datetime(1969, 12, 31, 4), "no"),
        ("date_trunc('MONTH', at) = '2026-03-01'", _at("2026-05-02"), _at("2026-06-01"), "no"),
        ("date_trunc('MONTH', at) = '2026-03-01'", _at("2026-03-02"), _at("2026-03-30"), "may"),
        ("date_trunc('DAY', day) >= '2026-03-05'", _day("2026-03-01"), _day("2026-03-02"), "no"),
        ("date_add(day, 7) > '2026-03-07'", _day("2026-02-01"), _day("2026-02-28"), "no"),
        ("day - 7 > '2026-03-01'", _day("2026-03-09"), _day("2026-03-28"), "all"),
        ("x + 1 > 5", 1.0, 4.0, "no"),
        ("x + 1 > 5", 4.5, 5.0, "all"),
        ("1 - x > 5", -3.0, 0.0, "no"),
        ("x * -2 >= 10", -9.0, -5.0, "all"),
        ("i + 1 > 5", 1, 4, "no"),
        ("i + 1 > 5", 5, 9, "all"),
        ("i + 1 > 5", 5, MAX, "may"),  # one ends the query in Spark 4, and is negative in Spark 3.5
        ("i + 1 < 5", 5, MAX, "may"),
        ("i + 1L < 5", 5, MAX, "no"),
        ("-i < 0", MIN, -1, "may"),
        ("-i < 0", MIN + 1, -1, "no"),
        ("y - 1Y < 0", -128, -1, "may"),
        ("y - 1 < -129", -128, -1, "no"),
        ("l * 3 > 0", -(1 << 62), -1, "may"),
        ("l * 3 > 0", -(1 << 60), -1, "no"),
        ("i * 1.5 > 6", 1, 4, "no"),
        ("m * 1.5 > 6", Dec("4.01"), Dec("9.00"), "all"),
        ("(i + 1) * 2 > 10", 1, 4, "no"),
        ("p + 1 = 5", 4, 4, "all"),
        ("p + 1 = 5", 5, 5, "no"),
        ("p + 1 = 5", None, None, "no"),
    ],
)
def test_what_bounds_tell(text: str, low: Any, high: Any, expected: str) -> None:
    assert verdict(text, low, high) == expected


def test_nulls_nan_and_what_is_not_known() -> None:
    assert verdict("i + 1 > 5", 5, 9, null_count=pa.array([3])) == "may"
    assert verdict("i + 1 > 5", None, None, null_count=pa.array([10])) == "no"
    assert verdict("i + 1 > 5", 5, 9, null_count=None) == "may"
    assert verdict("x + 1 > 5", 1.0, 2.0, nan_count=pa.array([1])) == "may"
    assert verdict("x + 1 < 5", 1.0, 2.0, nan_count=pa.array([1])) == "may"
    assert verdict("x + 1 > 5", 1.0, None) == "may"
    assert verdict("x + 1 < 2", 1.0, None) == "no"
    assert verdict("i + 1 < 2", 1, None) == "may"
    assert verdict("x - 1 = 5", math.inf, math.inf) == "no"


@settings(max_examples=examples(75), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), files(), st.integers(0, 1 << 30), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.booleans())
def test_no_row_that_matches_is_lost(
    data: st.DataObject, table: list[list[Row]], seed: int, sign: str, negated: bool
) -> None:
    value, constant = call(random.Random(seed))
    text = f"NOT ({value} {sign} {constant})" if negated else f"{value} {sign} {constant}"
    bound = normalize(bind(parse_predicate(text), SCHEMA))
    if not isinstance(bound, Applied):
        return  # it is about the column itself, or left to the engine
    result = prune(bound, data.draw(weakened(statistics(table))))
    name = bound.columns[0].name
    for index, file in enumerate(table):
        for zone in ZONES:
            truths = [_holds(bound, row[name], zone) for row in file]
            if None in truths and any(row[name] is not None for row in file):
                continue  # beyond what Python's dates, or the type, can hold
            if True in truths:
                assert result.may_match[index], (text, zone)
            if result.all_match[index]:
                assert truths, "an empty file matches nothing"
                assert all(truths), (text, zone)


def _holds(bound: Applied, value: Any, zone: dt.timedelta) -> bool | None:
    """Null if the value is null, and if the query would fail."""
    for step in bound.call:
        value = None if value is None else _after(step, value, zone)
    return None if value is None or bound.condition is None else _condition(bound.condition, value, zone)


def _condition(condition: Expr, value: Any, zone: dt.timedelta) -> bool | None:
    signs: dict[str, Callable[[Any, Any], bool]] = {
        "=": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }
    match condition:
        case And(terms):
            return all(_condition(term, value, zone) for term in terms)
        case Compare(op, _, literal):
            other: Any = literal.value
            if isinstance(value, float) or isinstance(other, float):
                one, two = (
                    (math.isnan(number), 0.0 if math.isnan(number) else number) for number in (float(value), other)
                )
                return signs[op](one, two)
            if isinstance(other, dt.datetime):
                other = other.replace(tzinfo=None)  # a text without a zone is of the session's, as the value is
            return signs[op](value, other)
        case In(_, literals, negated):
            return (value in [literal.value for literal in literals]) != negated
    return True if "IsNull" in repr(condition) and "negated=True" in repr(condition) else None


def _after(step: Step, value: Any, zone: dt.timedelta) -> Any:
    try:
        if isinstance(value, dt.datetime) and value.tzinfo is not None:
            value = (value + zone).replace(tzinfo=None)
        if step.constant is not None:
            return _arithmetic(step, value)
        day = value.date() if isinstance(value, dt.datetime) else value
        moment = value if isinstance(value, dt.datetime) else dt.datetime(day.year, day.month, day.day)
        first = {
            "year": day.replace(month=1, day=1),
            "quarter": day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
            "month": day.replace(day=1),
            "week": day - dt.timedelta(days=day.weekday()),
        }
        match step.name:
            case "date":
                return day
            case "trunc":
                return first[step.unit]
            case "date_trunc" if step.unit in first:
                return dt.datetime.combine(first[step.unit], dt.time())
            case "date_trunc":
                lost = {"day": "hour minute second microsecond", "hour": "minute second microsecond"}[step.unit]
                return moment.replace(**dict.fromkeys(lost.split(), 0))
            case "quarter":
                return (day.month + 2) // 3
            case "dayofyear":
                return day.timetuple().tm_yday
        return getattr(moment, step.name)
    except (OverflowError, ValueError):
        return None


def _arithmetic(step: Step, value: Any) -> Any:
    assert step.constant is not None
    other: Any = step.constant.value
    if isinstance(value, dt.date):
        other = dt.timedelta(days=other)
    elif isinstance(value, float) or isinstance(other, float):
        value, other = float(value), float(other)
    match step.name:
        case "add":
            found = value + other
        case "subtract":
            found = value - other
        case "subtract_from":
            found = other - value
        case _:
            found = value * other
    # An integer that no type holds ends the query; of smaller ones, their type decides that.
    return None if type(found) is int and abs(found) > 127 else found
