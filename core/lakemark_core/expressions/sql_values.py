"""Names and constants in Spark SQL, as sqlglot reads them."""

from __future__ import annotations

import datetime
import decimal
import functools
import math
import re
from typing import TYPE_CHECKING, Final

from lakemark_core.errors import InvalidPredicate, InvalidSchema
from lakemark_core.expressions.casts import DECIMAL_DIGITS_MAX, cast, combined, decimal_type_of, negated
from lakemark_core.expressions.render import typed_sql
from lakemark_core.expressions.tree import ColumnRef, Literal
from lakemark_core.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTEGER_BITS,
    PRIMITIVES,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Decimal,
    Primitive,
    Type,
)

if TYPE_CHECKING:
    from sqlglot import exp

_NUMBER: Final = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER: Final = re.compile(r"-?\d+", re.ASCII)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SIZE_CHARS_MAX: Final = 18
_DECIMAL_DEFAULT: Final = Decimal(10, 0)
_DAY: Final = datetime.timedelta(days=1)


def checked_text(text: str) -> str:
    """The text itself. Raises InvalidPredicate for a half of a surrogate pair: no UTF-8 can hold it."""
    surrogate = _SURROGATE.search(text)
    if surrogate is not None:
        raise InvalidPredicate(
            f"the predicate has the lone surrogate U+{ord(surrogate[0]):04X}, which is no character; leave it "
            "out, or write the whole character"
        )
    return text


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
    """The value of a constant, with the type that Spark gives it; None for what is none, or what only Spark can tell.

    Raises InvalidPredicate for what no version of Spark reads.
    """
    from sqlglot import exp

    match node:
        case exp.Paren():
            return literal_of(node.this)
        case exp.Null():
            return Literal(None)
        case exp.Boolean():
            return Literal(bool(node.this), BOOLEAN)
        case exp.Literal():
            return Literal(checked_text(node.this), STRING) if node.is_string else _number(node.this)
        case exp.RawString():
            return Literal(checked_text(node.this), STRING)
        case exp.HexString():
            return Literal(_hex(node.this), BINARY)
        case exp.Neg():
            return _negated(node.this)
        case exp.Cast() if not node.args.get("format"):
            return _cast(node)
        case exp.Add() | exp.Sub() | exp.Mul():
            return _combined(node)
        case exp.Concat() if not node.args.get("safe") and all(
            isinstance(one, exp.Literal) for one in node.expressions
        ):
            # Spark 3 joins adjacent strings, Spark 4 takes '' as a quote; the function concat is marked as safe.
            raise InvalidPredicate("two strings stand side by side; write a quote within a string as \\'")
    return None


def _cast(node: exp.Cast) -> Literal | None:
    inner, target = literal_of(node.this), type_of(node.args["to"])
    if inner is None or target is None:
        return None
    try:
        return cast(inner, target)
    except InvalidPredicate:
        if node.args.get("safe"):  # TRY_CAST, which is null then
            return None
        raise


def _negated(node: exp.Expr) -> Literal | None:
    """The sign belongs to the number: it decides whether it fits its type, also with the type's letter behind it."""
    from sqlglot import exp

    if isinstance(node, exp.Literal) and not node.is_string:
        return _number(f"-{node.this}")
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        target = type_of(node.args["to"])
        number = _number(f"-{node.this.this}")
        if target in INTEGER_BITS and number.type in INTEGER_BITS:
            return cast(number, target)
    inner = literal_of(node)
    return None if inner is None else negated(inner)


def _combined(node: exp.Binary) -> Literal | None:
    """``1 + 1`` and ``DATE '2026-01-31' + 1``."""
    left = literal_of(node.this)
    right = None if left is None else literal_of(node.expression)
    if left is None or right is None:
        return None
    sign = {"add": "+", "sub": "-", "mul": "*"}[node.key]
    if left.type == DATE and right.type in (INT, SMALLINT, TINYINT) and sign != "*":
        return _day_after(left, right, 1 if sign == "+" else -1)
    return combined(sign, left, right)


def _day_after(day: Literal, days: Literal, direction: int) -> Literal | None:
    if not isinstance(day.value, datetime.date) or not isinstance(days.value, int):
        return None
    try:
        return Literal(day.value + direction * days.value * _DAY, DATE)
    except OverflowError:
        return None


def _number(text: str) -> Literal:
    """A number without a type's letter behind it: int, bigint or decimal by its digits, double with an exponent."""
    if not _NUMBER.fullmatch(text):
        raise InvalidPredicate(f"'{text}' is not a number: digits are missing, or letters are too many")
    if "e" in text.lower():
        number = float(text)
        if math.isinf(number):
            raise InvalidPredicate(f"{text} is beyond the range of a double")
        return Literal(number, DOUBLE)
    digits = len(text.lstrip("-0"))
    if _INTEGER.fullmatch(text) and digits <= DECIMAL_DIGITS_MAX:
        whole = int(text)
        for kind in (INT, BIGINT):
            if -(1 << (INTEGER_BITS[kind] - 1)) <= whole < 1 << (INTEGER_BITS[kind] - 1):
                return Literal(whole, kind)
    exact = decimal.Decimal(text)
    exact = exact if exact else exact.copy_abs()
    return Literal(exact, decimal_type_of(exact))


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)
    except ValueError:
        raise InvalidPredicate(f"X'{text}' is not a hexadecimal string") from None


def type_of(node: exp.DataType) -> Type | None:
    """The type that a cast names; None for one that constants are not brought to here.

    Raises InvalidPredicate for a decimal type that Spark does not have.
    """
    from sqlglot import exp

    if node.this != exp.DataType.Type.DECIMAL:
        return _simple_types().get(node.this)
    if any(len(size.name) > _SIZE_CHARS_MAX for size in node.expressions):
        raise InvalidPredicate("a decimal type has a precision or a scale of too many digits")
    sizes = [int(size.name) for size in node.expressions]
    if not sizes:
        return _DECIMAL_DEFAULT
    try:
        return Decimal(sizes[0], sizes[1] if len(sizes) > 1 else 0)
    except InvalidSchema as error:
        raise InvalidPredicate(f"'{text_of(node)}': {error.message}, or the number has too many digits") from None


@functools.cache
def _simple_types() -> dict[object, Type]:
    """Types without parameters by sqlglot's names."""
    from sqlglot import exp

    kind = exp.DataType.Type
    # CHAR(n) and VARCHAR(n) are TEXT to sqlglot, too: Spark's casts to them do not look at the length.
    named = {
        exp.DataType.build(name, dialect="spark").this: Primitive(record.name)
        for record in PRIMITIVES.values()
        for name in (record.name, *record.aliases)
    }
    return {**named, kind.TIMESTAMP: TIMESTAMP, kind.DATE32: DATE}


def text_of(node: exp.Expr) -> str:
    """Spark SQL that all versions of Spark read alike."""
    return str(node.transform(_plain).sql(dialect="spark"))


def _plain(node: exp.Expr) -> exp.Expr:
    """Numbers with a type's letter are casts to sqlglot, and -9223372036854775808L the sign of one."""
    from sqlglot import exp

    number = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(number, exp.Cast) or not isinstance(number.this, exp.Literal) or number.this.is_string:
        return node
    literal = literal_of(node)
    if literal is None or (literal.type not in INTEGER_BITS and literal.type != DOUBLE):
        return node
    return exp.Var(this=typed_sql(literal))
