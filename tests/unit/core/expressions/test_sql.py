"""Spark SQL conditions as trees, and the errors for conditions that cannot be one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as Dec

import pytest

from lakemark_core.errors import InvalidPredicate
from lakemark_core.expressions import (
    FALSE,
    NULL,
    TRUE,
    And,
    ColumnRef,
    Compare,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Not,
    Or,
    StartsWith,
    Unknown,
    columns_of,
    parse_predicate,
    to_sql,
)
from lakemark_core.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    Decimal,
    Type,
)

BIG = Dec("34481119365007828498851692537074125690")
A = ColumnRef(("a",))
ONE = Literal(1, INT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", Compare("=", A, ONE)),
        ("a == 1", Compare("=", A, ONE)),
        ("a <> 1", Compare("!=", A, ONE)),
        ("a <=> NULL", Compare("<=>", A, Literal(None))),
        ("1 < a", Compare(">", A, ONE)),
        ("(1) >= (a)", Compare("<=", A, ONE)),
        ("NOT a = 1", Not(Compare("=", A, ONE))),
        ("a IS DISTINCT FROM 1", Not(Compare("<=>", A, ONE))),
        ("a IS NULL", IsNull(A)),
        ("a IS NOT NULL", Not(IsNull(A))),
        ("a", Compare("=", A, Literal(True, BOOLEAN))),
        ("NOT a IS TRUE", Not(Compare("<=>", A, Literal(True, BOOLEAN)))),
        ("a IN (1, NULL)", In(A, (ONE, Literal(None)))),
        ("a NOT IN (1)", Not(In(A, (ONE,)))),
        ("a BETWEEN 1 AND 1", And((Compare(">=", A, ONE), Compare("<=", A, ONE)))),
        ("a LIKE 'x\\\\%%'", Like(A, "x\\%%")),
        ("a NOT LIKE 'x%'", Not(Like(A, "x%"))),
        ("startswith(a, 'x')", StartsWith(A, "x")),
        ("a = 1 OR a = 1 AND a = 1", Or((Compare("=", A, ONE), And((Compare("=", A, ONE),) * 2)))),
        ("TRUE", TRUE),
        ("false", FALSE),
        ("null", NULL),
        ("a.b = 1", Compare("=", ColumnRef(("a", "b")), ONE)),
        ("`a.b`.`c d`.e.f.g.h = 1", Compare("=", ColumnRef(("a.b", "c d", "e", "f", "g", "h")), ONE)),
        ("a LIKE NULL", NULL),
    ],
)
def test_conditions(text: str, expected: Expr) -> None:
    assert parse_predicate(text) == expected


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("-1", -1, INT),
        ("-(1)", -1, INT),
        ("-9223372036854775808", -(1 << 63), BIGINT),
        ("9223372036854775808", Dec("9223372036854775808"), Decimal(19, 0)),
        ("1.50", Dec("1.50"), Decimal(3, 2)),
        ("-.5", Dec("-0.5"), Decimal(1, 1)),
        ("1e3", 1000.0, DOUBLE),
        ("5S", 5, SMALLINT),
        ("-9223372036854775808L", -(1 << 63), BIGINT),
        ("-128Y", -128, TINYINT),
        ("-(2147483648)", -(1 << 31), BIGINT),
        ("1 + 2 * 3", 7, INT),
        ("-34481119365007828498851692537074125690BD", BIG.copy_negate(), Decimal(38, 0)),
        ("-(-34481119365007828498851692537074125690BD)", BIG, Decimal(38, 0)),
        ("2.5D", 2.5, DOUBLE),
        ("2.5BD", Dec("2.5"), Decimal(2, 1)),
        ("'x'", "x", STRING),
        ('"x"', "x", STRING),
        ("'it\\'s'", "it's", STRING),
        ("r'a\\b'", "a\\b", STRING),
        ("X'00fF'", b"\x00\xff", BINARY),
        ("TRUE", True, BOOLEAN),
        ("DATE '2013-01-31'", dt.date(2013, 1, 31), DATE),
        ("CAST('2013-01-31' AS DATE)", dt.date(2013, 1, 31), DATE),
        ("TIMESTAMP '2013-01-31 01:00:00+02:00'", dt.datetime(2013, 1, 30, 23, tzinfo=dt.UTC), TIMESTAMP),
        ("TIMESTAMP '2013-01-31 01:00:00 Europe/Berlin'", dt.datetime(2013, 1, 31, tzinfo=dt.UTC), TIMESTAMP),
        ("TIMESTAMP_NTZ '2013-01-31T01:02:03.1234567'", dt.datetime(2013, 1, 31, 1, 2, 3, 123456), TIMESTAMP_NTZ),
        ("NULL", None, None),
    ],
)
def test_literals(text: str, value: LiteralValue, kind: Type | None) -> None:
    parsed = parse_predicate(f"a < {text}")
    assert parsed == Compare("<", A, Literal(value, kind))
    assert parse_predicate(to_sql(parsed)) in (parsed, Compare("<", A, Literal(value, INT)))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("upper(a) = 'X'", {"a"}),
        ("a = b", {"a", "b"}),
        ("CAST(a AS INT) = 1", {"a"}),
        ("a + b = 2", {"a", "b"}),
        ("concat(a, 'x') = 'ax'", {"a"}),
        ("concat('x', a) = 'ax'", {"a"}),
        ("abs(a) = -9223372036854775808L", {"a"}),
        ("a RLIKE 'x'", {"a"}),
        ("a LIKE 'x!%' ESCAPE '!'", {"a"}),
        ("a ILIKE 'x'", {"a"}),
        ("a LIKE ANY ('x', 'y')", {"a"}),
        ("a IN (b, 1)", {"a", "b"}),
        ("a BETWEEN b AND 1", {"a", "b"}),
        ("a[0] = 1", {"a"}),
        ("1 = 1.0", set()),
        ("a = CAST(300 AS TINYINT)", {"a"}),
        ("a = current_date()", {"a"}),
    ],
)
def test_what_only_the_engine_can_decide(text: str, names: set[str]) -> None:
    parsed = parse_predicate(text)
    assert isinstance(parsed, Unknown)
    assert {column.name for column in columns_of(parsed)} == names
    assert columns_of(parse_predicate(parsed.text)) == columns_of(parsed)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("a =", "line 1, column 3"),
        ("a = 1 AND\n(b = 2", r"line 2, column 6 near '2'"),
        ("a = 1; DROP TABLE t", "near 'DROP'"),
        ("a = '", "cannot be read"),
        ("1", "is a value, not a condition"),
        ("-1.5", "is a value, not a condition"),
        ("a IN (SELECT 1)", "SELECT 1"),
        ("a IN ()", "lists no values"),
        ("EXISTS (SELECT 1)", "cannot stand in a predicate"),
        ("a = :x", ":x"),
        ("a = ?", "cannot stand"),
        ("sum(a) > 1", "SUM"),
        ("d = DATE 'tomorrow'", "'tomorrow' is not a date"),
        ("d = DATE '2013-02-30'", "not a date"),
        ("t = TIMESTAMP '2013-01-01 25:00:00'", "not a timestamp"),
        ("t = TIMESTAMP '2013-01-01 10:00:00 Nowhere/Land'", "not a timestamp"),
        ("a = 'it''s'", "side by side"),
        ("a LIKE 'x\\\\y'", "backslash"),
        ("a LIKE 'x\\\\'", "backslash"),
        ("a = 1e", "'1e' is not a number"),
        ("a = 2.5e", "'2.5e' is not a number"),
        ("a = 1.e", "'1.e' is not a number"),
        ("a = 1e400", "beyond the range of a double"),
        ("a = " + "9" * 5_000, "more than 38 digits"),
        ("a = 1e999999999BD", "decimal precision"),
        ("a = '\ud800'", "lone surrogate U\\+D800"),
        ("a = X'0g'", "hexadecimal|cannot be read"),
        ("a = " + "9" * 39, "more than 38 digits"),
        ("(" * 5000 + "a = 1" + ")" * 5000, "nested too deeply"),
        ("a = '" + "x" * 1_000_001 + "'", "at most"),
    ],
)
def test_what_is_not_a_predicate(text: str, says: str) -> None:
    with pytest.raises(InvalidPredicate, match=says):
        parse_predicate(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1 = 1", TRUE), ("1 <> 1", FALSE), ("2 < 1", FALSE), ("'a' < 'b'", TRUE), ("NOT 1 <=> 1", Not(TRUE))],
)
def test_two_values_are_compared_at_once(text: str, expected: Expr) -> None:
    assert parse_predicate(text) == expected


def test_long_chains_are_flat() -> None:
    parsed = parse_predicate(" AND ".join(f"a != {number}" for number in range(5000)))
    assert isinstance(parsed, And)
    assert len(parsed.terms) == 5000


def test_the_text_of_a_column() -> None:
    assert ColumnRef.parse("a.b") == ColumnRef(("a", "b"))
    assert ColumnRef.parse("`a.b`.`c``d`") == ColumnRef(("a.b", "c`d"))
    for bad in ("", ".", "a.", ".a", "`a", "a..b"):
        with pytest.raises(InvalidPredicate):
            ColumnRef.parse(bad)


@pytest.mark.parametrize(
    "text", ["name = +'5'", "+'5' = name", 'name IN (1, + "5")', "name = +(('5'))", "+name = '5'", "id = - + '5'"]
)
def test_a_plus_that_makes_a_number_of_a_text_is_refused(text: str) -> None:
    """Spark compares numbers then. Without the plus, texts would be compared and files with '5.0' left out."""
    with pytest.raises(InvalidPredicate, match="has a plus before it"):
        parse_predicate(text)


@pytest.mark.parametrize(
    "text", ["id = +5", "id + 1 > 5", "id + (2) > 5", "name = '+5'", "1 + 1 = id", "id IN (+1, 2)"]
)
def test_other_pluses_are_taken(text: str) -> None:
    parse_predicate(text)
