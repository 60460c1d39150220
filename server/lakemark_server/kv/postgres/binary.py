"""PostgreSQL's binary formats of the types that the store sends and reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

_INT8: Final = Struct("!q")
_INT4: Final = Struct("!i")
# Dimensions, whether there are nulls, the type's oid (bytea: 17), then per dimension its length and lower bound.
_ARRAY: Final = Struct("!iiIii")
_BYTEA_OID: Final = 17
_EMPTY_ARRAY: Final = Struct("!iiI").pack(0, 0, _BYTEA_OID)


def int8(number: int) -> bytes:
    return _INT8.pack(number)


def from_int8(value: bytes) -> int:
    number: int = _INT8.unpack(value)[0]
    return number


def bytea_array(items: Sequence[bytes]) -> bytes:
    if not items:
        return _EMPTY_ARRAY
    pack = _INT4.pack
    parts = [_ARRAY.pack(1, 0, _BYTEA_OID, len(items), 1)]
    for item in items:
        parts.append(pack(len(item)))
        parts.append(item)
    return b"".join(parts)


def bytea_arrays(pairs: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Two arrays of equal length: the firsts and the seconds."""
    firsts, seconds = [], []
    for first, second in pairs:
        firsts.append(first)
        seconds.append(second)
    return bytea_array(firsts), bytea_array(seconds)
