"""Names and constants in Spark SQL, as sqlglot reads them."""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lakemark.errors import InvalidPredicate
from lakemark.expressions.literals import parse_date, parse_timestamp
from lakemark.expressions.tree import ColumnRef, Literal
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
    from sqlglot import exp

_DECIMAL_DIGITS_MAX: Final = 38


def column_of(node: exp.Expr) -> ColumnRef | None:
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return column_of(node.this)
    if isinstance(node, exp.Dot):
        outer = column_of(node.this)
        if outer is not None and isinstance(node.expression, exp.Identifier):
            return ColumnRef((*outer.path, node.expression.name))
        return None
    if isinstance(node, exp.Column) and all(isinstance(part, exp.Identifier) for part in node.parts):
        return ColumnRef(tuple(part.name for part in node.parts))
    return None


def literal_of(node: exp.Expr) -> Literal | None:
    from sqlglot import exp

    match node:
        case exp.Paren():
            return literal_of(node.this)
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
            inner = literal_of(node.this)
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

    inner = literal_of(node.this)
    target = cast_types().get(node.args["to"].this)
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
def cast_types() -> dict[object, Type]:
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


def text_of(node: exp.Expr) -> str:
    return str(node.sql(dialect="spark"))
