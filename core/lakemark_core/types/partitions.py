"""Partition values as Hive writes them: as text in the metastore, and escaped in paths (``month=1/origin=JFK``).

The texts and the set of escaped characters are those of Hive's and Spark's own path utilities, so that paths written by
either are understood and the other way round.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Sequence
from typing import NoReturn

from lakemark_core.errors import InvalidArgument
from lakemark_core.types.model import (
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER_BITS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ColumnValue,
    Decimal,
    Field,
    Type,
    is_floating,
    is_nested,
    is_textual,
)
from lakemark_core.types.text import format_type

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The text of null. Hive and Spark write the empty string as null, too."""

# ASCII control characters, DEL, and what means something in a path, a URL or a glob.
_ESCAPED = frozenset([*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"])
_TO_ESCAPE = re.compile("[" + re.escape("".join(sorted(_ESCAPED))) + "]")
_ESCAPE_SEQUENCE = re.compile("%([0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?Z?", re.ASCII
)


def escape_path_name(text: str) -> str:
    """One column name or value as a part of a path; the empty string becomes the default partition."""
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match.group()):02X}", text) if text else DEFAULT_PARTITION


def unescape_path_name(text: str) -> str:
    """What ``escape_path_name`` was given; a ``%`` without two hexadecimal digits stays as it is."""
    return _ESCAPE_SEQUENCE.sub(lambda match: chr(int(match.group(1), 16)), text)


def partition_name(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """``month=1/origin=JFK``: a partition's name and its path below the table. Values are texts, or None for null."""
    if len(columns) != len(values):
        raise InvalidArgument(
            f"{len(values)} partition values for the {len(columns)} partition columns {list(columns)}"
        )
    pairs = zip(columns, values, strict=True)
    return "/".join(f"{escape_path_name(column)}={escape_path_name(value or '')}" for column, value in pairs)


def parse_partition_name(name: str) -> list[tuple[str, str]]:
    """Columns and texts of the values, unescaped, in order; null is the text of the default partition."""
    pairs: list[tuple[str, str]] = []
    for part in name.strip("/").split("/"):
        column, equals, value = part.partition("=")
        if not equals or not column:
            raise InvalidArgument(f"partition name '{name}': '{part}' is not of the form column=value")
        pairs.append((unescape_path_name(column), unescape_path_name(value) or DEFAULT_PARTITION))
    return pairs


def partition_value_to_string(value: ColumnValue, column_type: Type) -> str:
    """The text of a value: what Spark writes under an UTC session.

    Dates are ``2013-01-31``, instants ``2013-01-31 12:00:00[.fraction]`` in UTC, decimals have all digits of their
    scale. Raises InvalidArgument if the value is not one of the type, and for the text that stands for null.
    """
    if value is None or value == "":
        return DEFAULT_PARTITION
    match value:
        case bool() if column_type == BOOLEAN:
            return "true" if value else "false"
        case int() if column_type in INTEGER_BITS and not isinstance(value, bool):
            return str(_check_range(value, column_type))
        case decimal.Decimal() | int() if isinstance(column_type, Decimal) and not isinstance(value, bool):
            return f"{_fit_decimal(decimal.Decimal(value), column_type, str(value)):f}"
        case float() | int() if is_floating(column_type) and not isinstance(value, bool):
            return _java_double(float(value))
        case str() if is_textual(column_type):
            if value == DEFAULT_PARTITION:
                raise InvalidArgument(
                    f"the text {value!r} stands for null in the names of partitions, and no partition has it as a value"
                )
            return value
        case bytes() if column_type == BINARY:
            return value.decode("utf-8", "replace")
        case datetime.datetime() if column_type in (TIMESTAMP, TIMESTAMP_NTZ):
            if column_type == TIMESTAMP and value.tzinfo is not None:
                value = value.astimezone(datetime.UTC)
            text = value.replace(tzinfo=None).isoformat(sep=" ")
            return text.rstrip("0") if "." in text else text
        case datetime.date() if column_type == DATE and not isinstance(value, datetime.datetime):
            return value.isoformat()
        case _:
            raise InvalidArgument(f"{value!r} is not a value of type {format_type(column_type)}")


def partition_value_from_string(text: str, column_type: Type) -> ColumnValue:
    """The value that a partition's text stands for; ``timestamp`` texts are taken as UTC.

    Raises InvalidArgument if the text is not a value of the type.
    """
    if text == DEFAULT_PARTITION:
        return None
    try:
        return _parse_value(text, column_type)
    except (ValueError, ArithmeticError, InvalidArgument):
        message = f"partition value '{text}' is not a value of type {format_type(column_type)}"
        raise InvalidArgument(message) from None


def partition_field_value(text: str, field: Field) -> ColumnValue:
    """Like ``partition_value_from_string``; the error names the column."""
    try:
        return partition_value_from_string(text, field.type)
    except InvalidArgument as error:
        raise InvalidArgument(f"partition column {field.name}: {error.message}", column=field.name) from None


def _parse_value(text: str, column_type: Type) -> ColumnValue:
    if is_textual(column_type):
        return text
    if column_type in INTEGER_BITS:
        if not _INTEGER.fullmatch(text):
            raise ValueError(text)
        return _check_range(int(text), column_type)
    if isinstance(column_type, Decimal):
        return _fit_decimal(decimal.Decimal(text), column_type, text)
    if is_floating(column_type):
        return float(text)
    if column_type == BOOLEAN:
        return text.lower() == "true" if text.lower() in ("true", "false") else _reject(text)
    if column_type == BINARY:
        return text.encode()
    if column_type == DATE:
        match = _DATE.fullmatch(text) or _reject(text)
        return datetime.date(*map(int, match.groups()))
    if is_nested(column_type):
        _reject(text)
    match = _TIMESTAMP.fullmatch(text) or _reject(text)
    *parts, fraction = match.groups()
    microsecond = int((fraction or "").ljust(6, "0")[:6])
    zone = datetime.UTC if column_type == TIMESTAMP else None
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    return datetime.datetime(year, month, day, hour, minute, second, microsecond, tzinfo=zone)


def _reject(text: str) -> NoReturn:
    raise ValueError(text)


def _check_range(value: int, column_type: Type) -> int:
    limit = 1 << (INTEGER_BITS[column_type] - 1)
    if not -limit <= value < limit:
        raise InvalidArgument(f"{value} is out of the range of {format_type(column_type)}")
    return value


def _fit_decimal(value: decimal.Decimal, column_type: Decimal, text: str) -> decimal.Decimal:
    if value.is_finite():
        with decimal.localcontext(prec=2 * 38 + 2):
            fitted = value.quantize(decimal.Decimal(1).scaleb(-column_type.scale))
        if fitted == value and len(fitted.as_tuple().digits) <= max(column_type.precision, column_type.scale + 1):
            return fitted
    raise InvalidArgument(f"{text} is not a value of type {format_type(column_type)}")


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
