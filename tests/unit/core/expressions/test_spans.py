"""Functions whose value is a span of dates become comparisons of the column with the same meaning."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.expressions import Unknown, bind, normalize, parse_predicate, to_sql
from lakemark_core.expressions.tree import MIRRORED
from lakemark_core.types import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, Field, Schema
from tests.unit.predicates import SCHEMA, holds

COLUMNS = Schema.build(
    [Field(1, "day", DATE), Field(2, "at", TIMESTAMP), Field(3, "wall", TIMESTAMP_NTZ), Field(4, "text", STRING)]
)
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<=>": lambda left, right: left == right,
}
FUNCTIONS: dict[str, Callable[[dt.date], Any]] = {
    "year(d)": lambda day: day.year,
    "to_date(d)": lambda day: day,
    "CAST(d AS DATE)": lambda day: day,
    "trunc(d, 'YEAR')": lambda day: day.replace(month=1, day=1),
    "trunc(d, 'quarter')": lambda day: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
    "trunc(d, 'MM')": lambda day: day.replace(day=1),
}
days = st.dates(dt.date(2019, 11, 1), dt.date(2021, 2, 28))


@given(st.sampled_from(sorted(FUNCTIONS)), st.sampled_from(sorted(OPERATORS)), days, st.none() | days, st.booleans())
def test_a_function_says_what_its_span_says(
    function: str, operator: str, named: dt.date, day: dt.date | None, mirrored: bool
) -> None:
    value = FUNCTIONS[function](named)
    constant = str(value) if isinstance(value, int) else f"DATE '{value}'"
    text = f"{constant} {MIRRORED[operator]} {function}" if mirrored else f"{function} {operator} {constant}"
    bound = bind(parse_predicate(text), SCHEMA)
    assert not isinstance(bound, Unknown)
    if day is None:
        expected = False if operator == "<=>" else None
    else:
        expected = OPERATORS[operator](FUNCTIONS[function](day), value)
    for predicate, wanted in ((bound, expected), (bind(parse_predicate(f"NOT ({text})"), SCHEMA), _negated(expected))):
        assert holds(predicate, {"d": day}) == wanted
        assert holds(normalize(predicate), {"d": day}) == wanted


def _negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("year(day) = 2026", "`day` >= DATE '2026-01-01' AND `day` < DATE '2027-01-01'"),
        ("2026 < year(day)", "`day` >= DATE '2027-01-01'"),
        ("year(wall) <= 2026", "`wall` < TIMESTAMP_NTZ '2027-01-01 00:00:00'"),
        ("(year(day)) BETWEEN 2020 AND 2021", "`day` >= DATE '2020-01-01' AND `day` < DATE '2022-01-01'"),
        ("date(wall) >= '2026-03-01'", "`wall` >= TIMESTAMP_NTZ '2026-03-01 00:00:00'"),
        ("trunc(day, 'month') = '2026-12-01'", "`day` >= DATE '2026-12-01' AND `day` < DATE '2027-01-01'"),
    ],
)
def test_what_a_plan_compares_with(text: str, meant: str) -> None:
    assert to_sql(normalize(bind(parse_predicate(text), COLUMNS))) == meant


def test_several_years() -> None:
    listed = bind(parse_predicate("year(d) IN (2019, 2021)"), SCHEMA)
    others = bind(parse_predicate("year(d) NOT IN (2019, 2021)"), SCHEMA)
    for year in range(2018, 2023):
        row = {"d": dt.date(year, 12, 31)}
        assert (holds(listed, row), holds(others, row)) == (year in (2019, 2021), year not in (2019, 2021))


@pytest.mark.parametrize(
    "text",
    [
        "to_date(text) = '2026-03-01'",  # texts are dates in many ways
        "to_date(text, 'yyyyMMdd') = '2026-03-01'",
        "trunc(day, 'century') = DATE '2026-03-02'",
        "hour(at) = 3",  # the session's zone decides it
        "year(day) = year(wall)",
    ],
)
def test_what_is_no_span_stays_with_the_engine(text: str) -> None:
    found = bind(parse_predicate(text), COLUMNS)
    terms = getattr(found, "terms", (found,))
    assert all(type(term) is Unknown for term in terms)
