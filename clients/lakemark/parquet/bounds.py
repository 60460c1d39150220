"""Bounds in parquet footers as column values. What cannot be trusted or represented is None: unknown."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from lakemark_core.types import (
    BINARY,
    BOOLEAN,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ColumnValue,
    Decimal,
    Type,
    is_floating,
    is_integer,
    is_textual,
)

TEXT_LENGTH_MAX: Final = 64
"""Characters (or bytes) of a bound that are kept: enough to prune, small enough to keep a million of them."""

_EPOCH_DAY: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1)
_UNITS: Final = {"milliseconds": Fraction(1000), "microseconds": Fraction(1), "nanoseconds": Fraction(1, 1000)}
_LAST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Bound:
    value: ColumnValue
    truncated: bool = False


UNKNOWN: Final = Bound(None)


def read_bound(raw: Any, logical: dict[str, Any], physical: str, column_type: Type, *, is_max: bool) -> Bound:
    """The value that a footer's statistic stands for.

    ``raw`` is the physical value as pyarrow gives it (``min_raw``, ``max_raw``); ``logical`` the column's logical type
    in pyarrow's JSON, ``physical`` the name of its physical type. The bound is one of the values, rounded outwards
    where the table's type is coarser or the value too long.
    """
    if physical == "INT96" or raw is None:
        return UNKNOWN  # INT96 has no order that writers agree on
    try:
        return _read(raw, logical, column_type, is_max=is_max)
    except (OverflowError, UnicodeDecodeError, ValueError):
        return UNKNOWN  # for instance a year that Python's dates do not have


def _read(raw: Any, logical: dict[str, Any], column_type: Type, *, is_max: bool) -> Bound:
    if is_integer(column_type) and isinstance(raw, int):
        unsigned = logical.get("Type") == "Int" and not logical.get("isSigned", True)
        return Bound(raw % (1 << int(logical["bitWidth"])) if unsigned else raw)
    if is_floating(column_type) and isinstance(raw, float):
        return UNKNOWN if math.isnan(raw) else Bound(raw)
    if is_textual(column_type) and isinstance(raw, bytes):
        return cut_text(raw.decode(), is_max=is_max)
    if column_type == BINARY and isinstance(raw, bytes):
        return cut_bytes(raw, is_max=is_max)
    if column_type == BOOLEAN and isinstance(raw, bool):
        return Bound(raw)
    if column_type == DATE and isinstance(raw, int):
        return Bound(_EPOCH_DAY + dt.timedelta(days=raw))
    if column_type in (TIMESTAMP, TIMESTAMP_NTZ) and isinstance(raw, int):
        return _read_timestamp(raw, logical, column_type, is_max=is_max)
    if isinstance(column_type, Decimal):
        return _read_decimal(raw, logical, column_type)
    return UNKNOWN


def _read_timestamp(raw: int, logical: dict[str, Any], column_type: Type, *, is_max: bool) -> Bound:
    unit = _UNITS.get(logical.get("timeUnit", ""))
    if unit is None or logical.get("isAdjustedToUTC") != (column_type == TIMESTAMP):
        return UNKNOWN
    exact = raw * unit
    micros = math.ceil(exact) if is_max else math.floor(exact)
    value = _EPOCH + dt.timedelta(microseconds=micros)
    return Bound(value.replace(tzinfo=dt.UTC) if column_type == TIMESTAMP else value, micros != exact)


def _read_decimal(raw: Any, logical: dict[str, Any], column_type: Decimal) -> Bound:
    if logical.get("Type") != "Decimal" or logical.get("scale") != column_type.scale:
        return UNKNOWN
    digits = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
    if not isinstance(digits, int):
        return UNKNOWN
    with decimal.localcontext(prec=80):
        return Bound(decimal.Decimal(digits).scaleb(-column_type.scale))


def cut_text(text: str, *, is_max: bool) -> Bound:
    """The text, or if it is too long one that is not above it or (``is_max``) not below it; None if there is none.

    Texts are ordered by code points, which is the order of their UTF-8 bytes.
    """
    if len(text) <= TEXT_LENGTH_MAX:
        return Bound(text)
    kept = text[:TEXT_LENGTH_MAX]
    if not is_max:
        return Bound(kept, truncated=True)
    while kept:
        point = ord(kept[-1]) + 1
        if _SURROGATES[0] <= point <= _SURROGATES[1]:
            point = _SURROGATES[1] + 1
        if point <= _LAST_CODE_POINT:
            return Bound(kept[:-1] + chr(point), truncated=True)
        kept = kept[:-1]
    return UNKNOWN


def cut_bytes(data: bytes, *, is_max: bool) -> Bound:
    """As ``cut_text``, for bytes."""
    if len(data) <= TEXT_LENGTH_MAX:
        return Bound(data)
    kept = data[:TEXT_LENGTH_MAX]
    if not is_max:
        return Bound(kept, truncated=True)
    kept = kept.rstrip(b"\xff")
    return Bound(kept[:-1] + bytes([kept[-1] + 1]), truncated=True) if kept else UNKNOWN
