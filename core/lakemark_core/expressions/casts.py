"""Constants as constants of another type, as Spark's CAST makes them: the one place where constants are computed.

No column is involved here; ``comparisons`` brings a constant to the type of the column that it is compared with.

Spark 4 is strict (ANSI): what does not fit, or is no number, ends the query. Spark 3.5 gives null, wraps around or cuts
off instead. Where they differ, where a session's settings decide, or where Java's rules are not known here, the answer
is None: only the engine can tell. Sources: ``Cast`` and ``Decimal`` of Spark 3.5 and 4, and what both say in the tests.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import re
import struct
from typing import Final

from lakemark_core.errors import InvalidPredicate
from lakemark_core.expressions.literals import parse_date, parse_local, parse_timestamp, trim
from lakemark_core.expressions.tree import Literal, LiteralValue
from lakemark_core.types import DOUBLE, FLOAT, INTEGER_BITS, STRING, Decimal, Type, ValueKind

DECIMAL_DIGITS_MAX: Final = 38
EXACT: Final = decimal.Context(prec=200, traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow])
"""Python's own context rounds to 28 digits; no value of Spark needs more than these."""

_JAVA_SPACE: Final = "".join(map(chr, range(33)))
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_SPECIAL: Final = {
    **dict.fromkeys(("nan", "+NaN", "-NaN"), math.nan),
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
}
_TRUE: Final = frozenset(("t", "true", "y", "yes", "1"))
_FALSE: Final = frozenset(("f", "false", "n", "no", "0"))
# Beyond these, Java 17 writes a double with other digits than the shortest ones, which a cast to decimal shows.
_DOUBLE_DIGITS_MAX: Final = 15
_DOUBLE_PLAIN: Final = (1e-5, float(1 << 53))
_SCIENTIFIC_BELOW: Final = -6


def cast(literal: Literal, to: Type) -> Literal | None:
    """``CAST(literal AS to)``, or None if only the engine can tell. Instants and texts of instants are in UTC.

    Raises InvalidPredicate for a text that is to be a date or a timestamp and is none.
    """
    if literal.value is None:
        return Literal(None)
    value = _value(literal.value, to)
    return None if value is None else Literal(value, to)


def _value(value: LiteralValue, to: Type) -> LiteralValue:
    match to.kind:
        case ValueKind.INTEGER:
            return _to_integer(value, INTEGER_BITS[to])
        case ValueKind.FLOATING:
            return _to_float(value) if to == FLOAT else _to_double(value)
        case ValueKind.DECIMAL:
            return _to_decimal(value, to) if isinstance(to, Decimal) else None
        case ValueKind.BOOLEAN:
            return _to_boolean(value)
        case ValueKind.TEXT:
            return _to_text(value) if to == STRING else None
        case ValueKind.BINARY:
            return _to_bytes(value)
        case ValueKind.DATE:
            return _to_date(value)
        case ValueKind.TIMESTAMP:
            return _to_timestamp(value)
        case ValueKind.TIMESTAMP_NTZ:
            return _to_local(value)
        case None:
            return None


def negated(literal: Literal) -> Literal | None:
    """``-literal`` in the same type; a text becomes a double first. None as in ``cast``."""
    value, kind = literal.value, literal.type
    match value:
        case None:
            return literal
        case str():
            number = cast(literal, DOUBLE)
            return None if number is None else negated(number)
        case bool():
            return None
        case int():
            fits = kind not in INTEGER_BITS or _fits(-value, INTEGER_BITS[kind])
            return Literal(-value, kind) if fits else None
        case float():
            return Literal(-value, kind)
        case decimal.Decimal():
            return Literal(value.copy_negate() if value else value, kind)
    return None


def combined(sign: str, left: Literal, right: Literal) -> Literal | None:
    """``left + right``, ``-`` or ``*`` of two integers, in the wider of their types. None as in ``cast``."""
    first, second = left.value, right.value
    if type(first) is not int or type(second) is not int or left.type is None or right.type is None:
        return None
    wider = max(left.type, right.type, key=lambda each: INTEGER_BITS[each])
    result = {"+": first + second, "-": first - second, "*": first * second}[sign]
    return Literal(result, wider) if _fits(result, INTEGER_BITS[wider]) else None


def number_of_text(text: str) -> float | None:
    """What Spark's cast of a text to double gives, None for a text that is no number to it, or that is unusual."""
    plain = text.strip(_JAVA_SPACE)
    special = _SPECIAL.get(plain, _SPECIAL.get(plain.lower()) if plain[1:].lower() != "nan" else None)
    if special is not None:
        return special
    if plain[-1:] in ("d", "D", "f", "F") and plain[-2:-1] not in ("", "d", "D", "f", "F"):
        plain = plain[:-1]
    return float(plain) if _NUMBER.fullmatch(plain) else None


def decimal_of_text(text: str) -> decimal.Decimal | None:
    """The number that a text stands for, exactly; None as in ``number_of_text``."""
    plain = text.strip(_JAVA_SPACE)
    return decimal.Decimal(plain) if _NUMBER.fullmatch(plain) else None


def integer_of_text(text: str) -> int | None:
    """None for what is not written in digits alone, or in too many of them."""
    plain = trim(text)
    return int(plain) if len(plain) <= DECIMAL_DIGITS_MAX and _INTEGER.fullmatch(plain) else None


def boolean_of_text(text: str) -> bool | None:
    plain = trim(text).lower()
    return True if plain in _TRUE else False if plain in _FALSE else None


def decimal_type_of(number: decimal.Decimal) -> Decimal:
    """The type of a decimal that is written out. Raises InvalidPredicate for more than 38 digits."""
    _, digits, exponent = number.as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits) + max(int(exponent), 0), scale, 1)
    if precision > DECIMAL_DIGITS_MAX:
        shown = str(number) if precision <= 2 * DECIMAL_DIGITS_MAX else "a number"
        raise InvalidPredicate(f"{shown} has more than {DECIMAL_DIGITS_MAX} digits")
    return Decimal(precision, scale)


def to_float32(number: int | float | decimal.Decimal) -> float:
    """The nearest value of Spark's float, ties to even, rounded once; infinite beyond them."""
    near = _packed_float32(float(number))
    if isinstance(number, float) or math.isinf(near):
        return near
    exact = fractions.Fraction(number)
    # Through double it was rounded twice: a neighbour may be nearer.
    neighbours = (near, _next_float32(near, -1), _next_float32(near, 1))
    return min(neighbours, key=lambda each: abs(fractions.Fraction(each) - exact))


def _packed_float32(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _next_float32(number: float, direction: int) -> float:
    (bits,) = struct.unpack("<i", struct.pack("<f", number))
    ordered = bits if bits >= 0 else -(bits & 0x7FFFFFFF)
    ordered += direction
    moved = ordered if ordered >= 0 else -ordered | -0x80000000
    neighbour = float(struct.unpack("<f", struct.pack("<i", moved))[0])
    return neighbour if math.isfinite(neighbour) else number


def _fits(number: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= number < 1 << (bits - 1)


def _to_integer(value: LiteralValue, bits: int) -> int | None:
    match value:
        case bool() | int():
            number = int(value)
        case decimal.Decimal():
            number = int(value)  # towards zero
        case float() if math.isfinite(value):
            number = int(value)
        case str():
            whole = integer_of_text(value)
            if whole is None:
                return None
            number = whole
        case _:
            return None
    return number if _fits(number, bits) else None


def _to_decimal(value: LiteralValue, to: Decimal) -> decimal.Decimal | None:
    match value:
        case bool() | int():
            number: decimal.Decimal | None = decimal.Decimal(int(value))
        case decimal.Decimal():
            number = value
        case float():
            number = decimal_of_double(value)
        case str():
            number = decimal_of_text(value)
        case _:
            return None
    if number is None or number.adjusted() >= DECIMAL_DIGITS_MAX:
        return None
    unit = decimal.Decimal(1).scaleb(-to.scale, EXACT)
    # A number that is far smaller than the unit is zero: its digits do not count.
    small = number.adjusted() < -to.scale - 1
    rounded = decimal.Decimal(0).quantize(unit) if small else number.quantize(unit, decimal.ROUND_HALF_UP, EXACT)
    if not rounded:
        return rounded.copy_abs()  # there is one zero only
    return rounded if rounded.adjusted() < to.precision - to.scale else None


def decimal_of_double(value: float) -> decimal.Decimal | None:
    """The decimal that Spark makes of a double; None where Java's text of a double may have other digits."""
    if value == 0:
        return decimal.Decimal(0)
    if not math.isfinite(value) or not _DOUBLE_PLAIN[0] <= abs(value) < _DOUBLE_PLAIN[1]:
        return None
    shortest = decimal.Decimal(repr(value))
    return shortest if significant_digits(shortest) <= _DOUBLE_DIGITS_MAX else None


def significant_digits(number: decimal.Decimal) -> int:
    """Without zeros at either end."""
    return len(number.normalize(EXACT).as_tuple().digits)


def _to_double(value: LiteralValue) -> float | None:
    match value:
        case bool() | int() | float() | decimal.Decimal():
            return float(value)
        case str():
            return number_of_text(value)
    return None


def _to_float(value: LiteralValue) -> float | None:
    match value:
        case bool() | int() | float() | decimal.Decimal():
            return to_float32(value)
        case str():
            exact = decimal_of_text(value)
            number = number_of_text(value)
            if exact is None or number is None or math.isinf(number) or not number:
                return number
            return to_float32(exact)
    return None


def _to_boolean(value: LiteralValue) -> bool | None:
    match value:
        case bool() | int() | float() | decimal.Decimal():
            return bool(value != 0)
        case str():
            return boolean_of_text(value)
    return None


def _to_text(value: LiteralValue) -> str | None:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case decimal.Decimal():
            return f"{value:f}" if is_plain_text(value) else None
        case bytes():
            return _decoded(value)
        case datetime.datetime():
            if value.tzinfo is not None:
                return None
            text = value.isoformat(sep=" ")
            return text.rstrip("0") if "." in text else text
        case datetime.date():
            return value.isoformat()
    return None


def is_plain_text(number: decimal.Decimal) -> bool:
    """Whether all of Spark's modes write a decimal without an exponent."""
    return int(number.as_tuple().exponent) <= 0 and (number.adjusted() if number else -_scale(number)) >= (
        _SCIENTIFIC_BELOW
    )


def _scale(number: decimal.Decimal) -> int:
    return -int(number.as_tuple().exponent)


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _to_bytes(value: LiteralValue) -> bytes | None:
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None


def _to_date(value: LiteralValue) -> datetime.date | None:
    match value:
        case str():
            return parse_date(value)
        case datetime.datetime():
            return value.date() if value.tzinfo is None else None  # on which day it lies, the session's zone decides
        case datetime.date():
            return value
    return None


def _to_timestamp(value: LiteralValue) -> datetime.datetime | None:
    if isinstance(value, str):
        return parse_timestamp(value)
    local = _to_local(value)
    return None if local is None else local.replace(tzinfo=datetime.UTC)


def _to_local(value: LiteralValue) -> datetime.datetime | None:
    match value:
        case str():
            return parse_local(value)
        case datetime.datetime():
            return (value.astimezone(datetime.UTC) if value.tzinfo else value).replace(tzinfo=None)
        case datetime.date():
            return datetime.datetime.combine(value, datetime.time())
    return None
