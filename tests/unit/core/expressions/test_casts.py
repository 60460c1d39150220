"""Casts of constants. Spark's results for the same casts: tests/e2e/lake_spark/test_predicates.py."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from decimal import Decimal as Dec
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import InvalidPredicate
from lakemark_core.expressions import Literal, LiteralValue, bind, normalize, parse_predicate, to_sql
from lakemark_core.expressions.casts import cast, negated, to_float32
from lakemark_core.messages.predicates import predicate_to_proto
from lakemark_core.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TINYINT,
    Decimal,
    Field,
    Schema,
    Type,
)

LONG = "34481119365007828498851692537074125690"


@given(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=12),
    st.integers(0, 10),
    st.integers(1, 38),
    st.booleans(),
)
def test_decimals_are_rounded_half_away_from_zero_or_do_not_fit(
    number: Dec, scale: int, whole: int, text: bool
) -> None:
    kind = Decimal(min(38, scale + whole), scale)
    exact = abs(Fraction(number)) * 10**scale
    units = int(exact) + (exact - int(exact) >= Fraction(1, 2))
    found = cast(Literal(f"{number:f}" if text else number, STRING), kind)
    if units >= 10**kind.precision:
        assert found is None, "Spark 4 ends the query, Spark 3.5 makes null of it"
    else:
        assert found is not None
        assert isinstance(found.value, Dec)
        assert Fraction(found.value) == Fraction(units if number > 0 else -units, 10**scale)
        assert found.value.as_tuple().exponent == -scale


@given(
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.sampled_from(["{}BD", "CAST({} AS DECIMAL(38,0))", "CAST('{}' AS DECIMAL(38,0))"]),
)
def test_no_digit_of_a_long_decimal_is_lost(number: int, form: str) -> None:
    schema = Schema.build([Field(1, "z", Decimal(38, 0))])
    bound = normalize(bind(parse_predicate(f"z = {form.format(number)}"), schema))
    assert to_sql(bound) == f"`z` = {number}BD"


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("1.5", Decimal(10, 0), Dec(2)),
        (Dec("1.6"), Decimal(10, 0), Dec(2)),
        ("12345", Decimal(3, 1), None),
        (Dec("9.95"), Decimal(2, 1), None),
        ("1e-400", Decimal(10, 2), Dec("0.00")),
        ("1e999999999", Decimal(38, 0), None),
        (f"-{LONG}", Decimal(38, 0), Dec(f"-{LONG}")),
        (1.05, Decimal(3, 1), Dec("1.1")),
        (2.82879384806159e17, Decimal(38, 5), None),  # Java 17 writes it with three digits more
        ("1_5", DOUBLE, None),
        ("٣", DOUBLE, None),
        ("+nan", DOUBLE, None),
        ("-NAN", DOUBLE, None),
        ("1.5d", DOUBLE, 1.5),
        ("-infinity", DOUBLE, -math.inf),
        ("1e400", DOUBLE, math.inf),
        ("1_5", INT, None),
        ("٣", INT, None),
        ("1.5", INT, None),  # Spark 3.5 cuts it off
        (" 5\n", INT, 5),
        (Dec("-1.9"), INT, -1),
        (300, TINYINT, None),
        (16777217, FLOAT, 16777216.0),
        (Dec("16777217.0000000001"), FLOAT, 16777218.0),
        ("yes", BOOLEAN, True),
        ("on", BOOLEAN, None),
        (True, INT, 1),
        (Dec("1.50"), STRING, "1.50"),
        (cast(Literal("-0.0"), Decimal(2, 1)).value, STRING, "0.0"),  # type: ignore[union-attr]
        (Dec("0.00000001"), STRING, None),  # 1E-8 in one mode
        (1.5, STRING, None),
        ("2013-01-31 x", DATE, dt.date(2013, 1, 31)),
    ],
)
def test_casts(value: LiteralValue, kind: Type, expected: LiteralValue) -> None:
    found = cast(Literal(value), kind)
    assert (None if found is None else found.value) == expected


def test_a_sign_rounds_nothing_and_overflows_as_spark_does() -> None:
    with decimal.localcontext(prec=3):
        assert negated(Literal(Dec(LONG), Decimal(38, 0))) == Literal(Dec(f"-{LONG}"), Decimal(38, 0))
    assert negated(Literal(-128, TINYINT)) is None
    assert negated(Literal(True, BOOLEAN)) is None
    assert negated(Literal("5", STRING)) == Literal(-5.0, DOUBLE)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_what_is_a_float_stays_one(number: float) -> None:
    assert to_float32(Dec(number)) == number


@pytest.mark.parametrize("text", ["a = '\ud800'", "\udfff = 1"])
def test_halves_of_characters_are_refused(text: str) -> None:
    for read in (parse_predicate, predicate_to_proto):
        with pytest.raises(InvalidPredicate, match="lone surrogate"):
            read(text)


def test_a_decimal_type_that_spark_does_not_have() -> None:
    with pytest.raises(InvalidPredicate, match="decimal precision 39"):
        parse_predicate("a = CAST(1 AS DECIMAL(39,0))")
