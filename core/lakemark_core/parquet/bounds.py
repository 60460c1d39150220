"""Bounds in parquet footers as column values. A bound that cannot be trusted or represented is UNKNOWN."""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from lakemark_core.types import CODECS, ColumnValue, Decimal, Type, ValueKind

TEXT_LENGTH_MAX: Final = 64
"""Characters (or bytes) of a bound that are kept: enough to prune, small enough to keep a million of them."""

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
    match column_type.kind:
        case ValueKind.INTEGER if isinstance(raw, int):
            unsigned = logical.get("Type") == "Int" and not logical.get("isSigned", True)
            return Bound(raw % (1 << int(logical["bitWidth"])) if unsigned else raw)
        case ValueKind.FLOATING if isinstance(raw, float):
            return UNKNOWN if math.isnan(raw) else Bound(raw)
        case ValueKind.TEXT if isinstance(raw, bytes):
            return cut_text(raw.decode(), is_max=is_max)
        case ValueKind.BINARY if isinstance(raw, bytes):
            return cut_bytes(raw, is_max=is_max)
        case ValueKind.BOOLEAN if isinstance(raw, bool):
            return Bound(raw)
        case ValueKind.DATE if isinstance(raw, int):
            return Bound(CODECS[ValueKind.DATE].from_plain(raw))
        case ValueKind.TIMESTAMP | ValueKind.TIMESTAMP_NTZ if isinstance(raw, int):
            return _read_timestamp(raw, logical, column_type.kind, is_max=is_max)
        case ValueKind.DECIMAL if isinstance(column_type, Decimal):
            return _read_decimal(raw, logical, column_type)
    return UNKNOWN


def _read_timestamp(raw: int, logical: dict[str, Any], kind: ValueKind, *, is_max: bool) -> Bound:
    unit = _UNITS.get(logical.get("timeUnit", ""))
    if unit is None or logical.get("isAdjustedToUTC") != (kind is ValueKind.TIMESTAMP):
        return UNKNOWN
    exact = raw * unit
    micros = math.ceil(exact) if is_max else math.floor(exact)
    return Bound(CODECS[kind].from_plain(micros), micros != exact)


def _read_decimal(raw: Any, logical: dict[str, Any], column_type: Decimal) -> Bound:
    if logical.get("Type") != "Decimal" or logical.get("scale") != column_type.scale:
        return UNKNOWN
    digits = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
    if not isinstance(digits, int):
        return UNKNOWN
    with decimal.localcontext(prec=80):
        return Bound(decimal.Decimal(digits).scaleb(-column_type.scale))


def cut_text(text: str, *, is_max: bool) -> Bound:
    """The text itself, or a shorter one if it is too long; UNKNOWN if there is none.

    The shorter one is not above the text, or with ``is_max`` not below it.

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
    """Like ``cut_text``, for bytes."""
    if len(data) <= TEXT_LENGTH_MAX:
        return Bound(data)
    kept = data[:TEXT_LENGTH_MAX]
    if not is_max:
        return Bound(kept, truncated=True)
    kept = kept.rstrip(b"\xff")
    return Bound(kept[:-1] + bytes([kept[-1] + 1]), truncated=True) if kept else UNKNOWN
