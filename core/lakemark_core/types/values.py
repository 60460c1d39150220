"""How the values of each kind are written: as plain values in messages, and as text in the names of partitions.

Values are Python's own (``ColumnValue``). Plain values are what ``lakemark.v1.Value`` carries: a bool, a number, a text
or bytes; dates are days and timestamps are microseconds since 1970.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, NoReturn, TypeAlias, TypeVar

from lakemark_core.errors import InvalidArgument
from lakemark_core.types.model import DECIMAL_PRECISION_MAX, INTEGER_BITS, ColumnValue, Decimal, Type
from lakemark_core.types.primitives import ValueKind
from lakemark_core.types.text import format_type

T = TypeVar("T")
PlainValue: TypeAlias = bool | int | float | str | bytes

_EPOCH_DAY: Final = datetime.date(1970, 1, 1)
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_DATE: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?Z?", re.ASCII
)


class ValueCodec(ABC):
    """How the values of one kind are written and read. None is not among the values.

    Writing raises TypeError for what is not a value of the kind, InvalidArgument for a value that the type cannot hold.
    Reading raises ValueError, ArithmeticError or InvalidArgument for what stands for no value of the type.
    """

    names_partitions: ClassVar[bool] = True
    """Whether each value has exactly one text, so that a column of such values may partition a table."""
    may_be_cut: ClassVar[bool] = False
    """Whether writers may shorten the bounds of a column."""

    @abstractmethod
    def to_plain(self, value: Any) -> PlainValue:
        """The value as messages carry it."""

    @abstractmethod
    def from_plain(self, plain: Any) -> ColumnValue:
        """The value that a message carries."""

    @abstractmethod
    def to_text(self, value: Any, column_type: Any) -> str:
        """The text of a partition's value, as Spark writes it in a session whose time zone is UTC."""

    @abstractmethod
    def from_text(self, text: str, column_type: Any) -> ColumnValue:
        """The partition's value that a text stands for."""


class _Boolean(ValueCodec):
    def to_plain(self, value: Any) -> PlainValue:
        return _of_class(value, bool)

    def from_plain(self, plain: bool) -> ColumnValue:
        return plain

    def to_text(self, value: Any, column_type: Type) -> str:
        return "true" if _of_class(value, bool) else "false"

    def from_text(self, text: str, column_type: Type) -> ColumnValue:
        return text.lower() == "true" if text.lower() in ("true", "false") else _reject(text)


class _Integer(ValueCodec):
    def to_plain(self, value: Any) -> PlainValue:
        return _of_class(_not_boolean(value), int)

    def from_plain(self, plain: int) -> ColumnValue:
        return plain

    def to_text(self, value: Any, column_type: Type) -> str:
        return str(self._in_range(_of_class(_not_boolean(value), int), column_type))

    def from_text(self, text: str, column_type: Type) -> ColumnValue:
        if not _INTEGER.fullmatch(text):
            _reject(text)
        return self._in_range(int(text), column_type)

    @staticmethod
    def _in_range(value: int, column_type: Type) -> int:
        limit = 1 << (INTEGER_BITS[column_type] - 1)
        if not -limit <= value < limit:
            raise InvalidArgument(f"{value} is out of the range of {format_type(column_type)}")
        return value


class _Floating(ValueCodec):
    names_partitions = False

    def to_plain(self, value: Any) -> PlainValue:
        return _of_class(value, int, float)

    def from_plain(self, plain: float) -> ColumnValue:
        return plain

    def to_text(self, value: Any, column_type: Type) -> str:
        return _java_double(float(_of_class(_not_boolean(value), int, float)))

    def from_text(self, text: str, column_type: Type) -> ColumnValue:
        return float(text)


class _Text(ValueCodec):
    may_be_cut = True

    def to_plain(self, value: Any) -> PlainValue:
        return _of_class(value, str)

    def from_plain(self, plain: str) -> ColumnValue:
        return plain

    def to_text(self, value: Any, column_type: Type) -> str:
        return _of_class(value, str)

    def from_text(self, text: str, column_type: Type) -> ColumnValue:
        return text


class _Binary(ValueCodec):
    names_partitions = False
    may_be_cut = True

    def to_plain(self, value: Any) -> PlainValue:
        return _of_class(value, bytes)

    def from_plain(self, plain: bytes) -> ColumnValue:
        return plain

    def to_text(self, value: Any, column_type: Type) -> str:
        return _of_class(value, bytes).decode("utf-8", "replace")

    def from_text(self, text: str, column_type: Type) -> ColumnValue:
        return text.encode()


class _Decimal(ValueCodec):
    def to_plain(self, value: Any) -> PlainValue:
        return format(self._number(value), "f")

    def from_plain(self, plain: str) -> ColumnValue:
        return decimal.Decimal(plain)

    def to_text(self, value: Any, column_type: Decimal) -> str:
        return f"{self._fitted(self._number(_not_boolean(value)), column_type, str(value)):f}"

    def from_text(self, text: str, column_type: Decimal) -> ColumnValue:
        return self._fitted(decimal.Decimal(text), column_type, text)

    @staticmethod
    def _number(value: Any) -> decimal.Decimal:
        if not isinstance(value, decimal.Decimal | int):
            raise TypeError
        return decimal.Decimal(value)

    @staticmethod
    def _fitted(number: decimal.Decimal, column_type: Decimal, text: str) -> decimal.Decimal:
        """The number with all digits of the type's scale."""
        if number.is_finite():
            with decimal.localcontext(prec=2 * DECIMAL_PRECISION_MAX + 2):
                fitted = number.quantize(decimal.Decimal(1).scaleb(-column_type.scale))
            if fitted == number and len(fitted.as_tuple().digits) <= max(column_type.precision, column_type.scale + 1):
                return fitted
        raise InvalidArgument(f"{text} is not a value of type {format_type(column_type)}")


class _Date(ValueCodec):
    def to_plain(self, value: Any) -> PlainValue:
        return (self._day(value) - _EPOCH_DAY).days

    def from_plain(self, plain: int) -> ColumnValue:
        return _EPOCH_DAY + datetime.timedelta(days=plain)

    def to_text(self, value: Any, column_type: Type) -> str:
        return self._day(value).isoformat()

    def from_text(self, text: str, column_type: Type) -> ColumnValue:
        match = _DATE.fullmatch(text) or _reject(text)
        return datetime.date(*map(int, match.groups()))

    @staticmethod
    def _day(value: Any) -> datetime.date:
        if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
            raise TypeError
        return value


class _TimestampNtz(ValueCodec):
    """Wall-clock times, which have no time zone."""

    def to_plain(self, value: Any) -> PlainValue:
        moment = _of_class(value, datetime.datetime)
        if moment.tzinfo is not None:
            raise TypeError
        return (moment - _EPOCH) // _MICROSECOND

    def from_plain(self, plain: int) -> ColumnValue:
        return _EPOCH + datetime.timedelta(microseconds=plain)

    def to_text(self, value: Any, column_type: Type) -> str:
        text = _of_class(value, datetime.datetime).replace(tzinfo=None).isoformat(sep=" ")
        return text.rstrip("0") if "." in text else text

    def from_text(self, text: str, column_type: Type) -> ColumnValue:
        return self._parsed(text)

    @staticmethod
    def _parsed(text: str) -> datetime.datetime:
        match = _TIMESTAMP.fullmatch(text) or _reject(text)
        *parts, fraction = match.groups()
        microsecond = int((fraction or "").ljust(6, "0")[:6])
        year, month, day, hour, minute, second = (int(part or 0) for part in parts)
        return datetime.datetime(year, month, day, hour, minute, second, microsecond)


class _Timestamp(_TimestampNtz):
    """Instants; texts of them are in UTC."""

    def to_plain(self, value: Any) -> PlainValue:
        moment = _of_class(value, datetime.datetime)
        if moment.tzinfo is None:
            raise TypeError
        return super().to_plain(moment.astimezone(datetime.UTC).replace(tzinfo=None))

    def from_plain(self, plain: int) -> ColumnValue:
        return (_EPOCH + datetime.timedelta(microseconds=plain)).replace(tzinfo=datetime.UTC)

    def to_text(self, value: Any, column_type: Type) -> str:
        moment = _of_class(value, datetime.datetime)
        return super().to_text(moment if moment.tzinfo is None else moment.astimezone(datetime.UTC), column_type)

    def from_text(self, text: str, column_type: Type) -> ColumnValue:
        return self._parsed(text).replace(tzinfo=datetime.UTC)


CODECS: Final[dict[ValueKind, ValueCodec]] = {
    ValueKind.BOOLEAN: _Boolean(),
    ValueKind.INTEGER: _Integer(),
    ValueKind.FLOATING: _Floating(),
    ValueKind.TEXT: _Text(),
    ValueKind.BINARY: _Binary(),
    ValueKind.DECIMAL: _Decimal(),
    ValueKind.DATE: _Date(),
    ValueKind.TIMESTAMP: _Timestamp(),
    ValueKind.TIMESTAMP_NTZ: _TimestampNtz(),
}


def may_be_cut(column_type: Type) -> bool:
    """Whether writers may shorten the bounds of such a column: those of texts and bytes."""
    return column_type.kind is not None and CODECS[column_type.kind].may_be_cut


def _of_class(value: Any, *classes: type[T]) -> T:
    if not isinstance(value, classes):
        raise TypeError
    return value


def _not_boolean(value: Any) -> Any:
    """Python's booleans are integers; here they are no numbers."""
    if isinstance(value, bool):
        raise TypeError
    return value


def _reject(text: str) -> NoReturn:
    raise ValueError(text)


def _java_double(value: float) -> str:
    """Java's ``Double.toString``, which Spark and Hive use: scientific from 10^7 on and below 10^-3."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = decimal.Decimal(repr(value)).normalize().as_tuple()
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = f"{decimal.Decimal(repr(value)):f}"
        return plain if "." in plain else plain + ".0"
    mantissa = "".join(map(str, digits))
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{power}"
