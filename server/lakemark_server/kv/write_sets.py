"""Encodes which keys and ranges a commit wrote, for the logs that shared stores keep."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from .resolver import KeyRange

_HEADER: Final = struct.Struct("<II")


def encode_writes(keys: Sequence[bytes], ranges: Sequence[KeyRange]) -> bytes:
    """The numbers of keys and of ranges, the lengths of all keys and bounds (2 bytes each), then all of these."""
    items = [*keys, *(bound for both in ranges for bound in both)]
    lengths = struct.pack(f"<{len(items)}H", *map(len, items))
    return b"".join((_HEADER.pack(len(keys), len(ranges)), lengths, *items))


def decode_writes(data: bytes) -> tuple[list[bytes], list[KeyRange]]:
    """The inverse of ``encode_writes``. The first entry of a log has no bytes, and so no writes."""
    if not data:
        return [], []
    keys, ranges = _HEADER.unpack_from(data)
    lengths = struct.unpack_from(f"<{keys + 2 * ranges}H", data, _HEADER.size)
    items = []
    start = _HEADER.size + 2 * len(lengths)
    for length in lengths:
        items.append(data[start : start + length])
        start += length
    return items[:keys], list(zip(items[keys::2], items[keys + 1 :: 2], strict=True))
