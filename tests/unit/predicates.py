"""Random tables and predicates, and an evaluator in SQL's logic row by row, to compare the fast code with."""

from __future__ import annotations

import datetime as dt
import math
import re
import zlib
from decimal import Decimal as Dec
from typing import Any

from hypothesis import strategies as st

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
    Not,
    Or,
    StartsWith,
    Unknown,
    like_tokens,
)
from lakemark_core.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    Decimal,
    Field,
    Schema,
    is_floating,
)
from lakemark_core.wildcards import Wildcard

Row = dict[str, Any]

SCHEMA = Schema.build(
    [
        Field(1, "i", INT),
        Field(2, "l", BIGINT),
        Field(3, "x", DOUBLE),
        Field(4, "f", FLOAT),
        Field(5, "s", STRING),
        Field(6, "m", Decimal(10, 2)),
        Field(7, "w", Decimal(30, 5)),
        Field(8, "d", DATE),
        Field(9, "t", TIMESTAMP),
        Field(10, "b", BOOLEAN),
        Field(11, "late", INT),
        Field(12, "p", STRING),
        Field(13, "q", Decimal(5, 1)),
        Field(14, "n", TIMESTAMP_NTZ),
        Field(15, "y", TINYINT),
        Field(16, "z", Decimal(38, 0)),
    ],
    ["p", "q"],
)
PARTITIONS = ("p", "q")

LONG = Dec("34481119365007828498851692537074125690")
"""With more digits than Python's own context of decimals keeps."""
_DAYS = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2013, 1, 31), dt.date(2013, 2, 1)]
_MOMENTS = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2013, 1, 31, tzinfo=dt.UTC),
    dt.datetime(2013, 1, 31, 0, 0, 0, 1, tzinfo=dt.UTC),
    dt.datetime(2013, 2, 1, 12, tzinfo=dt.UTC),
]
_STRINGS = [
    "",
    "a",
    "ab",
    "abc",
    "abd",
    "b",
    "a%",
    "a_b",
    "a\\",
    "ä",
    "aé",
    "\uffff",
    "\U0001f600",
    "a\U0001f600",
    "ab\n",
    "'",
]
POOLS: dict[str, list[Any]] = {
    "i": [-(1 << 31), -1, 0, 1, 2, 5, (1 << 31) - 1],
    "l": [-(1 << 63), -(1 << 53) - 1, -1, 0, 1, 2, (1 << 53) + 1, (1 << 63) - 1],
    "x": [-math.inf, -1e300, -1.5, -0.0, 0.0, 0.1, 1.0, 1.5, 2.0, math.inf, math.nan],
    "f": [-math.inf, -1.5, -0.0, 0.0, 0.10000000149011612, 1.0, 2.0, math.inf, math.nan],
    "s": _STRINGS,
    "m": [Dec("-99999999.99"), Dec("-0.01"), Dec("0.00"), Dec("0.10"), Dec("1.00"), Dec("1.01"), Dec("99999999.99")],
    "w": [Dec("-" + "9" * 25 + ".99999"), Dec("-0.00001"), Dec("0.00000"), Dec("1.50000"), Dec("9" * 25 + ".99999")],
    "d": _DAYS,
    "t": _MOMENTS,
    "b": [False, True],
    "late": [0, 1, 2],
    "p": ["", "a", "ab", "b", "ä"],
    "q": [Dec("-0.5"), Dec("0.0"), Dec("1.5"), Dec("2.0")],
    "n": [moment.replace(tzinfo=None) for moment in _MOMENTS],
    "y": [-128, -1, 0, 1, 2, 5, 127],
    "z": [LONG.copy_negate(), Dec(-1), Dec(0), Dec(2), LONG, Dec("9" * 38)],
}
_NUMBERS: list[Literal] = [
    *(Literal(n, BIGINT) for n in (-(1 << 63), -(1 << 31) - 1, -1, 0, 1, 2, 5, 1 << 31, (1 << 53) + 1, (1 << 63) - 1)),
    *(
        Literal(Dec(n), Decimal(38, 5))
        for n in ("-0.5", "0.10", "0.105", "1.0", "1.5", "2.00001", "99999999.99", "1" + "0" * 20)
    ),
    *(Literal(number, Decimal(38, 0)) for number in (LONG, LONG.copy_negate())),
    *(
        Literal(n, DOUBLE)
        for n in (-math.inf, -1.5, -0.0, 0.1, 1.0, 1.5, 9007199254740992.0, 1e300, math.inf, math.nan)
    ),
]
_LITERALS: dict[str, list[Literal]] = {
    **dict.fromkeys(("i", "l", "x", "m", "w", "late", "q", "y", "z"), _NUMBERS),
    # Of integers that a float cannot hold, Spark's modes think differently; bind makes them Unknown.
    "f": [one for one in _NUMBERS if not isinstance(one.value, int) or abs(one.value) < 100],
    **{name: [Literal(text, STRING) for text in _STRINGS] for name in ("s", "p")},
    "d": [Literal(day, DATE) for day in _DAYS] + [Literal(day.isoformat(), STRING) for day in _DAYS],
    "t": [Literal(one, TIMESTAMP) for one in _MOMENTS] + [Literal(day, DATE) for day in _DAYS],
    "n": [Literal(one.replace(tzinfo=None), TIMESTAMP_NTZ) for one in _MOMENTS] + [Literal(day, DATE) for day in _DAYS],
    "b": [Literal(False, BOOLEAN), Literal(True, BOOLEAN), Literal("true", STRING)],
}
_PATTERNS = ["", "%", "a", "a%", "ab%", "a%b", "_", "a_", "%b", "a\\%", "a\\%%", "a\\_b", "\U0001f600%", "a\\\\", "%\n"]
_OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "<=>"]
_NAMES = [column.name for column in SCHEMA.columns]


def values(name: str) -> st.SearchStrategy[Any]:
    """A value of a column, or null."""
    return st.none() | st.sampled_from(POOLS[name])


def literals(name: str) -> st.SearchStrategy[Literal]:
    """A literal that Spark would compare with the column, or NULL."""
    return st.sampled_from(_LITERALS[name]) | st.just(Literal(None)) if name else st.nothing()


@st.composite
def leaves(draw: st.DrawFn, decidable: bool = False) -> Expr:
    """A condition on one column. ``decidable``: only conditions that bounds of a single row decide."""
    name = draw(st.sampled_from(_NAMES))
    column = ColumnRef((name,))
    kinds = ["compare", "compare", "compare", "in", "null"]
    if name in ("s", "p"):
        kinds += ["starts", *([] if decidable else ["like", "like"])]
    match draw(st.sampled_from(kinds if decidable else [*kinds, "constant"])):
        case "compare":
            return Compare(draw(st.sampled_from(_OPERATORS)), column, draw(literals(name)))
        case "in":
            return In(column, tuple(draw(st.lists(literals(name), min_size=1, max_size=4))), draw(st.booleans()))
        case "null":
            return IsNull(column, draw(st.booleans()))
        case "starts":
            return StartsWith(column, draw(st.sampled_from(_STRINGS)), draw(st.booleans()))
        case "like":
            return Like(column, draw(st.sampled_from(_PATTERNS)), draw(st.booleans()))
        case _:
            return draw(st.sampled_from([TRUE, FALSE, NULL, Unknown("f(a)"), Unknown("g(a)")]))


def predicates(*, decidable: bool = False) -> st.SearchStrategy[Expr]:
    """Predicates of a few conditions, negated and nested."""
    return st.recursive(
        leaves(decidable),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda terms: And(tuple(terms))),
            st.lists(inner, min_size=1, max_size=3).map(lambda terms: Or(tuple(terms))),
            inner.map(Not),
        ),
        max_leaves=5,
    )


def holds(expr: Expr, row: Row) -> bool | None:
    """The truth of a predicate for a row in SQL's logic, with Spark's casts. Unknown is true for some rows."""
    match expr:
        case And(terms):
            truths = [holds(term, row) for term in terms]
            return False if False in truths else None if None in truths else True
        case Or(terms):
            truths = [holds(term, row) for term in terms]
            return True if True in truths else None if None in truths else False
        case Not(term):
            return _negated(holds(term, row))
        case Compare(op, column, literal):
            return _compare(op, column.name, row[column.name], literal.value)
        case In(column, items, negated):
            truths = [_compare("=", column.name, row[column.name], item.value, _all_double(items)) for item in items]
            found = True if True in truths else None if None in truths else False
            return _negated(found) if negated else found
        case IsNull(column, negated):
            return (row[column.name] is None) != negated
        case Like(column, pattern, negated):
            text = row[column.name]
            if text is None:
                return None
            return (re.fullmatch(_regex(pattern), text, re.DOTALL) is not None) != negated
        case StartsWith(column, prefix, negated):
            text = row[column.name]
            return None if text is None else text.startswith(prefix) != negated
        case Unknown(text):
            seen = text.removeprefix("NOT ").strip("()") + str(row)
            return (zlib.crc32(seen.encode("utf-8", "surrogatepass")) % 2 == 0) != text.startswith("NOT")
    return {TRUE: True, FALSE: False, NULL: None}[expr]


def _negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _all_double(items: tuple[Literal, ...]) -> bool:
    return any(isinstance(item.value, float) for item in items)


def _regex(pattern: str) -> str:
    return "".join(
        {Wildcard.ANY: ".*", Wildcard.ONE: "."}[one] if isinstance(one, Wildcard) else re.escape(one)
        for one in like_tokens(pattern)
    )


def _compare(op: str, name: str, value: Any, literal: Any, as_double: bool = False) -> bool | None:
    if value is None or literal is None:
        return (value is None and literal is None) if op == "<=>" else None
    left, right = _common(name, value, literal, as_double)
    return {
        "=": left == right,
        "<=>": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


def _common(name: str, value: Any, literal: Any, as_double: bool) -> tuple[Any, Any]:
    column_type = SCHEMA.field(name).type
    if isinstance(value, str):
        return value.encode(), literal.encode()
    if isinstance(value, bool):
        return value, literal == "true" if isinstance(literal, str) else literal
    if isinstance(value, dt.datetime):
        if not isinstance(literal, dt.datetime):
            literal = dt.datetime(literal.year, literal.month, literal.day, tzinfo=value.tzinfo)
        return value, literal
    if isinstance(value, dt.date):
        return value, dt.date.fromisoformat(literal) if isinstance(literal, str) else literal
    if is_floating(column_type) or isinstance(literal, float) or as_double:
        left, right = float(value), float(literal)
        return (math.isnan(left), 0.0 if math.isnan(left) else left), (
            math.isnan(right),
            0.0 if math.isnan(right) else right,
        )
    return value, literal
