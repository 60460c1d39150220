"""Spark SQL conditions to predicate trees, by sqlglot (an extra of the server: imported when it is needed)."""

from __future__ import annotations

import decimal
import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lakemark.errors import InvalidPredicate
from lakemark.expressions.literals import parse_date, parse_timestamp
from lakemark.expressions.patterns import like_tokens
from lakemark.expressions.tree import (
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
from lakemark.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER_BITS,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Decimal,
    Primitive,
    Type,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

TEXT_LENGTH_MAX = 1_000_000
_DECIMAL_DIGITS_MAX = 38
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
    if not text.strip():
        raise InvalidPredicate("the predicate is empty")
    try:
        parsed = sqlglot.parse_one(text, dialect="spark", into=exp.Condition)
        return _condition(parsed)
    except errors.ParseError as error:
        raise _syntax_error(text, error) from None
    except errors.SqlglotError as error:
        raise InvalidPredicate(f"predicate '{_shorten(text)}' cannot be read: {error}") from None
    except RecursionError:
        raise InvalidPredicate("the predicate is nested too deeply") from None


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
            column = _column(node)
            return _unknown(node) if column is None else Compare("=", column, Literal(True, BOOLEAN))
        case exp.Literal() | exp.Neg():
            raise InvalidPredicate(f"'{_text(node)}' is a value, not a condition")
    leaf = _leaf(node)
    # Some releases keep NOT as a mark on the node, others wrap the node in Not.
    return Not(leaf) if node.args.get("negate") else leaf


def _leaf(node: exp.Expr) -> Expr:
    from sqlglot import exp

    if type(node) in _operators():
        return _comparison(node, _operators()[type(node)])
    column = _column(node.this) if isinstance(node.args.get("this"), exp.Expr) else None
    if column is None:
        return _unknown(node)
    match node:
        case exp.NullSafeNEQ():
            literal = _literal(node.expression)
            return _unknown(node) if literal is None else Not(Compare("<=>", column, literal))
        case exp.Is():
            if isinstance(node.expression, exp.Null):
                return IsNull(column)
            if isinstance(node.expression, exp.Boolean):
                return Compare("<=>", column, Literal(bool(node.expression.this), BOOLEAN))
        case exp.In() if not any(node.args.get(name) for name in ("expressions", "query", "unnest", "field")):
            raise InvalidPredicate(f"'{_text(node)}' lists no values: Spark refuses it, too")
        case exp.In() if node.expressions and not node.args.get("query"):
            literals = [_literal(item) for item in node.expressions]
            if None not in literals:
                return In(column, tuple(literal for literal in literals if literal is not None))
        case exp.Between() if not node.args.get("symmetric"):
            low, high = _literal(node.args["low"]), _literal(node.args["high"])
            if low is not None and high is not None:
                return between(column, low, high)
        case exp.Like() | exp.StartsWith():
            literal = _literal(node.expression)
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
    column, literal = _column(left), _literal(right)
    if column is None:
        column, literal, op = _column(right), _literal(left), MIRRORED[op]
    if column is not None and literal is not None:
        return Compare(op, column, literal)
    return _of_values(_literal(left), _operators()[type(node)], _literal(right)) or _unknown(node)


def _of_values(left: Literal | None, op: Operator, right: Literal | None) -> Expr | None:
    """``1 = 1``, which programs write; None unless both are whole numbers or both are texts."""
    if left is None or right is None or type(left.value) is not type(right.value):
        return None
    if isinstance(left.value, bool) or not isinstance(left.value, int | str):
        return None
    return TRUE if _DECIDED[op](left.value, right.value) else FALSE


def _column(node: exp.Expr) -> ColumnRef | None:
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _column(node.this)
    if isinstance(node, exp.Dot):
        outer = _column(node.this)
        if outer is not None and isinstance(node.expression, exp.Identifier):
            return ColumnRef((*outer.path, node.expression.name))
        return None
    if isinstance(node, exp.Column) and all(isinstance(part, exp.Identifier) for part in node.parts):
        return ColumnRef(tuple(part.name for part in node.parts))
    return None


def _literal(node: exp.Expr) -> Literal | None:
    from sqlglot import exp

    match node:
        case exp.Paren():
            return _literal(node.this)
        case exp.Null():
            return Literal(None)
        case exp.Boolean():
            return Literal(bool(node.this), BOOLEAN)
        case exp.Literal():
            return Literal(node.this, STRING) if node.is_string else _number(node.this)
        case exp.RawString():
            return Literal(node.this, STRING)
        case exp.HexString():
            return Literal(_hex(node.this), BINARY)
        case exp.Neg():
            inner = _literal(node.this)
            if (
                inner is None
                or isinstance(inner.value, bool)
                or not isinstance(inner.value, int | float | decimal.Decimal)
            ):
                return None
            # The sign decides whether a number fits a bigint.
            return _number(f"-{node.this.this}") if isinstance(node.this, exp.Literal) else _negated(inner)
        case exp.Cast():
            return _cast(node)
        case exp.Concat() if any(isinstance(one, exp.Literal) for one in node.expressions):
            # Spark 3 joins adjacent strings, Spark 4 takes '' as a quote.
            raise InvalidPredicate("two strings stand side by side; write a quote within a string as \\'")
    return None


def _negated(literal: Literal) -> Literal:
    if isinstance(literal.value, int | float | decimal.Decimal):
        return Literal(-literal.value, literal.type)
    return literal


def _number(text: str) -> Literal:
    if "e" in text.lower():
        return Literal(float(text), DOUBLE)
    number = decimal.Decimal(text)
    if "." not in text and -(1 << 63) <= int(number) < 1 << 63:
        return Literal(int(number), BIGINT)
    return _decimal(number)


def _decimal(number: decimal.Decimal) -> Literal:
    _, digits, exponent = number.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale, 1)
    if precision > _DECIMAL_DIGITS_MAX:
        raise InvalidPredicate(f"{number} has more than {_DECIMAL_DIGITS_MAX} digits")
    return Literal(number, Decimal(precision, scale))


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)
    except ValueError:
        raise InvalidPredicate(f"X'{text}' is not a hexadecimal string") from None


def _cast(node: exp.Expr) -> Literal | None:
    """Typed literals: ``DATE '…'``, ``5L``, ``2.5BD``, and casts of a constant that say the same."""
    from sqlglot import exp

    inner = _literal(node.this)
    target = _cast_types().get(node.args["to"].this)
    if inner is None or target is None:
        return None
    if isinstance(inner.value, str):
        return _cast_text(inner.value, target)
    if not isinstance(inner.value, int | decimal.Decimal | float) or isinstance(inner.value, bool):
        return None
    if target == DOUBLE:
        return Literal(float(inner.value), DOUBLE)
    if target in INTEGER_BITS and isinstance(inner.value, int):
        limit = 1 << (INTEGER_BITS[target] - 1)
        return Literal(inner.value, target) if -limit <= inner.value < limit else None
    if node.args["to"].this == exp.DataType.Type.DECIMAL and isinstance(inner.value, decimal.Decimal):
        return inner
    return None


def _cast_text(text: str, target: Type) -> Literal | None:
    if target == DATE:
        return Literal(parse_date(text), DATE)
    if target == TIMESTAMP:
        return Literal(parse_timestamp(text), TIMESTAMP)
    if target == TIMESTAMP_NTZ:
        return Literal(parse_timestamp(text).replace(tzinfo=None), TIMESTAMP_NTZ)
    if target == DOUBLE:
        return _parsed(lambda: Literal(float(text), DOUBLE))
    if isinstance(target, Decimal):
        return _parsed(lambda: _decimal(decimal.Decimal(f"{decimal.Decimal(text):f}")))
    return Literal(text, STRING) if target == STRING else None


def _parsed(parse: Callable[[], Literal]) -> Literal | None:
    try:
        return parse()
    except (ValueError, ArithmeticError):
        return None


@functools.cache
def _cast_types() -> dict[object, Type]:
    from sqlglot import exp

    kind = exp.DataType.Type
    return {
        kind.DATE: DATE,
        kind.DATE32: DATE,
        kind.TIMESTAMP: TIMESTAMP,
        kind.TIMESTAMPTZ: TIMESTAMP,
        kind.TIMESTAMPLTZ: TIMESTAMP,
        kind.TIMESTAMPNTZ: TIMESTAMP_NTZ,
        kind.TINYINT: Primitive("tinyint"),
        kind.SMALLINT: Primitive("smallint"),
        kind.INT: Primitive("int"),
        kind.BIGINT: BIGINT,
        kind.DOUBLE: DOUBLE,
        kind.DECIMAL: Decimal(_DECIMAL_DIGITS_MAX, 0),
        kind.TEXT: STRING,
    }


def _unknown(node: exp.Expr) -> Unknown:
    from sqlglot import exp

    refused = node.find(exp.Query, exp.Placeholder, exp.Parameter, exp.Star, exp.AggFunc, exp.Window)
    if refused is not None:
        raise InvalidPredicate(f"'{_text(refused)}' cannot stand in a predicate over the rows of one table")
    columns = (_column(found) for found in node.find_all(exp.Column))
    return Unknown(_text(node), tuple(dict.fromkeys(column for column in columns if column is not None)))


def _text(node: exp.Expr) -> str:
    return str(node.sql(dialect="spark"))
