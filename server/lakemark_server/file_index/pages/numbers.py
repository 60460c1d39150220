"""Integers and bytes as compact columns: offsets, differences, byte planes, zstd. Pure.

Frame of reference and delta coding as in column stores (Zukowski et al. 2006). Byte planes put the first bytes of all
values together, then the second bytes, and so on: high bytes of neighbours are alike and low ones are not, which a
general compressor exploits only when they are apart.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark_proto.store.v1.store_pb2 import PageColumn

Integers = npt.NDArray[np.int64]
_CODEC: Final = pa.Codec("zstd", compression_level=3)
_WORTH_IT: Final = 64  # fewer bytes are not compressed
_WIDTHS: Final = (1, 2, 4, 8)
_INT64: Final = 1 << 63


def encode_integers(values: Integers, reference: Integers | None = None, other: str = "") -> PageColumn:
    """The values in the smallest of the encodings.

    ``reference``: a column of the same page, named ``other``, that the values may be encoded relative to.
    """
    if not len(values):
        return PageColumn(kind=PageColumn.CONSTANT)
    best = _plain(values)
    if best.kind == PageColumn.CONSTANT:
        return best
    for candidate in _differences(values, reference, other):
        if (candidate.width, len(candidate.data)) < (best.width, len(best.data)):
            best = candidate
    return best


def _differences(values: Integers, reference: Integers | None, other: str) -> list[PageColumn]:
    candidates = []
    # Skip differences that do not fit into 64 bits.
    if int(values.max()) - int(values.min()) < _INT64:
        delta = _plain(np.diff(values, prepend=values[:1]))
        candidates.append(PageColumn(kind=PageColumn.DELTA, first=int(values[0])))
        candidates[-1].MergeFrom(
            PageColumn(offset=delta.offset, width=delta.width, data=delta.data, unpacked=delta.unpacked)
        )
    if reference is not None:
        low, high = int(values.min()) - int(reference.max()), int(values.max()) - int(reference.min())
        if low >= -_INT64 and high < _INT64:
            relative = _plain(values - reference)
            candidates.append(PageColumn(kind=PageColumn.RELATIVE, other=other))
            candidates[-1].MergeFrom(
                PageColumn(offset=relative.offset, width=relative.width, data=relative.data, unpacked=relative.unpacked)
            )
    return candidates


def _plain(values: Integers) -> PageColumn:
    low, high = int(values.min()), int(values.max())
    if low == high:
        return PageColumn(kind=PageColumn.CONSTANT, offset=low)
    width = next(width for width in _WIDTHS if high - low < 1 << (8 * width))
    # The difference is correct modulo 2^64, whatever the signs.
    differences = (values.view(np.uint64) - np.uint64(low & ((1 << 64) - 1))).astype(f"<u{width}")
    column = PageColumn(kind=PageColumn.PLAIN, offset=low, width=width)
    pack(column, planes(differences, width))
    return column


def decode_integers(column: PageColumn, entries: int, reference: Integers | None = None) -> Integers:
    """The values of a column. ``reference`` has the values of the column ``other``."""
    match column.kind:
        case PageColumn.CONSTANT:
            return np.full(entries, column.offset, np.int64)
        case PageColumn.DELTA:
            sums = np.cumsum(_unpacked(column, entries))
            return sums + np.int64(column.first - int(sums[0])) if entries else sums
        case PageColumn.RELATIVE if reference is not None:
            return _unpacked(column, entries) + reference
    return _unpacked(column, entries)


def _unpacked(column: PageColumn, entries: int) -> Integers:
    if not column.width:
        return np.full(entries, column.offset, np.int64)
    differences = unplaned(unpack(column), column.width).view(f"<u{column.width}")
    return (differences.astype(np.uint64) + np.uint64(column.offset & ((1 << 64) - 1))).view(np.int64)


def pack(column: PageColumn, data: bytes) -> None:
    """Stores the bytes in the column, compressed if that makes them smaller."""
    packed = _CODEC.compress(data, asbytes=True) if len(data) >= _WORTH_IT else data
    if len(packed) < len(data):
        column.data, column.unpacked = packed, len(data)
    else:
        column.data = data


def unpack(column: PageColumn) -> bytes:
    """The bytes that ``pack`` stored."""
    return _CODEC.decompress(column.data, column.unpacked, asbytes=True) if column.unpacked else column.data


def planes(values: npt.NDArray[Any], width: int) -> bytes:
    """The first bytes of all values, then all second bytes, and so on."""
    return values.tobytes() if width == 1 else values.view(np.uint8).reshape(-1, width).T.tobytes()


def unplaned(data: bytes, width: int) -> npt.NDArray[np.uint8]:
    """The inverse of ``planes``."""
    flat = np.frombuffer(data, np.uint8)
    return flat if width == 1 else np.ascontiguousarray(flat.reshape(width, -1).T).reshape(-1)
