"""Spark SQL conditions to predicate trees, by sqlglot (an extra of the server: imported when it is needed)."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lakemark_core.errors import InvalidPredicate
from lakemark_core.expressions.patterns import like_tokens
from lakemark_core.expressions.sql_calls import applied
from lakemark_core.expressions.sql_values import checked_text, column_of, literal_of, text_of
from lakemark_core.expressions.tree import (
    FALSE,
    MIRRORED,
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
    Operator,
    Or,
    StartsWith,
    Unknown,
    between,
)
from lakemark_core.types import BOOLEAN, DOUBLE

if TYPE_CHECKING:
    from sqlglot import exp

TEXT_LENGTH_MAX: Final = 1_000_000
WORDS_MAX: Final = 100_000
"""Words, texts, numbers and signs of a predicate: to read so many takes one or two seconds."""
_WORD: Final = re.compile(r"""'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?|`[^`]*+`?|\w+|[^\w\s]""", re.DOTALL)
_DECIDED: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<=>": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def parse_predicate(text: str) -> Expr:
    """The tree of a condition as in Spark's WHERE; names are not looked up, ``bind`` does that.

    Instants and strings compared with instants are in UTC unless they name a zone. What a plan cannot use (functions,
    casts of columns, two columns in one comparison) becomes Unknown. Raises InvalidPredicate with the position of
    what cannot be read.
    """
    import sqlglot
    from sqlglot import errors, exp

    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidPredicate(f"the predicate has {len(text)} characters; at most {TEXT_LENGTH_MAX} are read")
    if not checked_text(text).strip():
        raise InvalidPredicate("the predicate is empty")
    words = sum(1 for _ in _WORD.finditer(text))
    if words > WORDS_MAX:
        raise InvalidPredicate(
            f"the predicate has {words} words, values and signs; at most {WORDS_MAX} are read: ask several times, for "
            "some of them each"
        )
    try:
        _check_signs(text)
        parsed = sqlglot.parse_one(text, dialect="spark", into=exp.Condition)
        return _condition(parsed)
    except errors.ParseError as error:
        raise _syntax_error(text, error) from None
    except errors.SqlglotError as error:
        raise InvalidPredicate(f"predicate '{_shorten(text)}' cannot be read: {error}") from None
    except RecursionError:
        raise InvalidPredicate("the predicate is nested too deeply") from None


def _check_signs(text: str) -> None:
    """A plus before a text or a column makes a number of it in Spark; sqlglot leaves the plus out, and it would be
    compared as what it is without.

    Raises InvalidPredicate for a plus as a sign of anything but a number.
    """
    if "+" not in text:
        return
    import sqlglot
    from sqlglot import TokenType as Kind

    before_signs = {
        Kind.L_PAREN, Kind.COMMA, Kind.EQ, Kind.NEQ, Kind.NULLSAFE_EQ, Kind.LT, Kind.LTE, Kind.GT, Kind.GTE,
        Kind.PLUS, Kind.DASH, Kind.STAR, Kind.SLASH, Kind.MOD, Kind.DIV, Kind.AND, Kind.OR, Kind.NOT, Kind.IN,
        Kind.LIKE, Kind.BETWEEN, Kind.CASE, Kind.WHEN, Kind.THEN, Kind.ELSE, Kind.DPIPE, Kind.PIPE, Kind.AMP,
        Kind.CARET, Kind.TILDE,
    }  # fmt: skip
    tokens = sqlglot.tokenize(text, read="spark")
    for before, sign, after in zip([None, *tokens], tokens, tokens[1:], strict=False):
        is_sign = sign.token_type is Kind.PLUS and (before is None or before.token_type in before_signs)
        if is_sign and after.token_type is not Kind.NUMBER:
            raise InvalidPredicate(
                f"'{_shorten(after.text)}' has a plus before it, which makes a number of it in Spark; leave the plus "
                "out, or write CAST(… AS DOUBLE)"
            )


def _syntax_error(text: str, error: Exception) -> InvalidPredicate:
    found = (getattr(error, "errors", None) or [{}])[0]
    line, column = found.get("line") or 1, found.get("col") or 1
    near = f" near '{found['highlight']}'" if found.get("highlight") else ""
    return InvalidPredicate(
        f"predicate '{_shorten(text)}' cannot be read at line {line}, column {column}{near}",
        line=str(line),
        column=str(column),
    )


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"


@functools.cache
def _operators() -> dict[type[exp.Expr], Operator]:
    from sqlglot import exp

    return {
        exp.EQ: "=",
        exp.NEQ: "!=",
        exp.LT: "<",
        exp.LTE: "<=",
        exp.GT: ">",
        exp.GTE: ">=",
        exp.NullSafeEQ: "<=>",
    }


def _condition(node: exp.Expr) -> Expr:
    from sqlglot import exp

    match node:
        case exp.Paren():
            return _condition(node.this)
        case exp.And():
            return And(tuple(map(_condition, node.flatten())))
        case exp.Or():
            return Or(tuple(map(_condition, node.flatten())))
        case exp.Not():
            return Not(_condition(node.this))
        case exp.Boolean():
            return TRUE if node.this else FALSE
        case exp.Null():
            return NULL
        case exp.Column() | exp.Dot():
            column = column_of(node)
            return _unknown(node) if column is None else Compare("=", column, Literal(True, BOOLEAN))
        case exp.Literal() | exp.Neg():
            raise InvalidPredicate(f"'{text_of(node)}' is a value, not a condition")
    leaf = _leaf(node)
    # Some releases keep NOT as a mark on the node, others wrap the node in Not.
    return Not(leaf) if node.args.get("negate") else leaf


def _leaf(node: exp.Expr) -> Expr:
    from sqlglot import exp

    if type(node) in _operators():
        return _comparison(node, _operators()[type(node)])
    asked = _of_column(node)
    if asked is not None:
        return asked
    column = column_of(node.this) if isinstance(node.args.get("this"), exp.Expr) else None
    if column is None:
        return applied(node) or _unknown(node)
    match node:
        case exp.NullSafeNEQ():
            literal = literal_of(node.expression)
            return _unknown(node) if literal is None else Not(Compare("<=>", column, literal))
        case exp.Is():
            if isinstance(node.expression, exp.Null):
                return IsNull(column)
            if isinstance(node.expression, exp.Boolean):
                return Compare("<=>", column, Literal(bool(node.expression.this), BOOLEAN))
        case exp.In() if not any(node.args.get(name) for name in ("expressions", "query", "unnest", "field")):
            raise InvalidPredicate(f"'{text_of(node)}' lists no values: Spark refuses it, too")
        case exp.In() if node.expressions and not node.args.get("query"):
            literals = [literal_of(item) for item in node.expressions]
            if None not in literals:
                return In(column, tuple(literal for literal in literals if literal is not None))
        case exp.Between() if not node.args.get("symmetric"):
            low, high = literal_of(node.args["low"]), literal_of(node.args["high"])
            if low is not None and high is not None:
                return between(column, low, high)
        case exp.Like() | exp.StartsWith():
            literal = literal_of(node.expression)
            if literal is not None and literal.value is None:
                return NULL
            if literal is not None and isinstance(literal.value, str):
                return _pattern(column, literal.value, starts_with=isinstance(node, exp.StartsWith))
    return _unknown(node)


def _pattern(column: ColumnRef, text: str, *, starts_with: bool) -> Expr:
    if starts_with:
        return StartsWith(column, text)
    for _ in like_tokens(text):  # raises for a pattern that Spark would refuse
        pass
    return Like(column, text)


def _comparison(node: exp.Expr, op: Operator) -> Expr:
    left, right = node.this, node.expression
    for one, way, other in ((left, op, right), (right, MIRRORED[op], left)):
        column, literal = column_of(one), literal_of(other)
        if column is not None and literal is not None:
            return Compare(way, column, literal)
    return (
        _of_values(literal_of(left), op, literal_of(right))
        or _with_itself(column_of(left), op, column_of(right))
        or applied(node, op)
        or _unknown(node)
    )


def _with_itself(left: ColumnRef | None, op: Operator, right: ColumnRef | None) -> Expr | None:
    """``x != x``, which asks for nothing: NaN equals itself in Spark."""
    if left is None or right is None or [part.lower() for part in left.path] != [part.lower() for part in right.path]:
        return None
    if op == "<=>":
        return Or((IsNull(left), IsNull(left, negated=True)))  # true, but there has to be such a column
    if op in ("=", "<=", ">="):
        return Or((IsNull(left, negated=True), NULL))
    return And((IsNull(left), NULL))


def _of_column(node: exp.Expr) -> Expr | None:
    """``isnan(x)``, which is false for null, ``isnull(x)`` and ``isnotnull(x)``."""
    from sqlglot import exp

    match node:
        case exp.IsNan():
            column = column_of(node.this)
            return None if column is None else Compare("<=>", column, Literal(math.nan, DOUBLE))
        case exp.Anonymous(this=str() as name, expressions=[only]) if name.lower() in ("isnull", "isnotnull"):
            column = column_of(only)
            return None if column is None else IsNull(column, negated=name.lower() == "isnotnull")
    return None


def _of_values(left: Literal | None, op: Operator, right: Literal | None) -> Expr | None:
    """``1 = 1``, which programs write; None unless both are whole numbers or both are texts."""
    if left is None or right is None or type(left.value) is not type(right.value):
        return None
    if isinstance(left.value, bool) or not isinstance(left.value, int | str):
        return None
    return TRUE if _DECIDED[op](left.value, right.value) else FALSE


def _unknown(node: exp.Expr) -> Unknown:
    from sqlglot import exp

    refused = node.find(exp.Query, exp.Placeholder, exp.Parameter, exp.Star, exp.AggFunc, exp.Window)
    if refused is not None:
        raise InvalidPredicate(f"'{text_of(refused)}' cannot stand in a predicate over the rows of one table")
    columns = (column_of(found) for found in node.find_all(exp.Column))
    return Unknown(text_of(node), tuple(dict.fromkeys(column for column in columns if column is not None)))
