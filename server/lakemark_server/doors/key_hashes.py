"""Hashes of many keys at once, and their buckets: what ``lakemark_core.buckets`` computes for one key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark_core.buckets import SEED, hash_of_value
from lakemark_core.table_kind import TableKind
from lakemark_core.types import INTEGER_BITS, Decimal, Field, ValueKind
from lakemark_server.file_index.arrow import AnyArray

Hashes: TypeAlias = npt.NDArray[np.uint32]
Buckets: TypeAlias = npt.NDArray[np.int64]

LONG_BYTES: Final = 256
"""Texts and bytes that are longer are hashed one by one."""

_LONG_DECIMAL_DIGITS: Final = 18


def hashes_of(columns: Sequence[AnyArray], fields: Sequence[Field]) -> Hashes:
    """Spark's ``hash`` of each key, unsigned. ``columns`` are those of the fields, in their Arrow types, without nulls.

    As ``hash_of_key`` has it, of which a test is made of every type.
    """
    seeds = np.full(len(columns[0]), SEED, np.uint32)
    for column, field in zip(columns, fields, strict=True):
        if column.null_count:
            raise ValueError(f"column {field.name!r} of a key has nulls")
        seeds = _hash(field)(column, field, seeds)
    return seeds


def buckets_of(hashes: Hashes, kind: TableKind) -> Buckets:
    """The bucket into which rows of each hash are written now."""
    signed = hashes.astype(np.int32).astype(np.int64)
    if kind.directory is None:
        return np.mod(signed, kind.buckets)
    depths = np.frombuffer(kind.directory.depths(), np.uint8)
    sizes = np.left_shift(np.int64(1), depths[signed & len(depths) - 1].astype(np.int64))
    return cast(Buckets, sizes | signed & sizes - 1)


def _of_ints(numbers: npt.NDArray[Any], seeds: Hashes) -> Hashes:
    return _finished(_mixed(seeds, numbers.astype(np.int32).view(np.uint32)), np.uint32(4))


def _of_longs(numbers: npt.NDArray[Any], seeds: Hashes) -> Hashes:
    halves = np.ascontiguousarray(numbers.astype("<i8")).view("<u4").reshape(-1, 2)
    return _finished(_mixed(_mixed(seeds, halves[:, 0]), halves[:, 1]), np.uint32(8))


def _of_bytes(column: AnyArray, field: Field, seeds: Hashes) -> Hashes:
    """Word by word for all texts together, which takes as many steps as the longest of them has."""
    whole = cast(Any, column).cast(pa.large_binary())
    offsets = np.frombuffer(whole.buffers()[1], np.int64)[whole.offset : whole.offset + len(whole) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = np.frombuffer(whole.buffers()[2] or b"", np.uint8)
    hashes = seeds.copy()
    short = lengths <= LONG_BYTES
    for at in range(0, int(lengths[short].max(initial=0)) & ~3, 4):
        rows = np.flatnonzero(short & (lengths & ~3 > at))
        places = starts[rows] + at
        words = sum(data[places + byte].astype(np.uint32) << np.uint32(8 * byte) for byte in range(4))
        hashes[rows] = _mixed(hashes[rows], cast(Hashes, words))
    for rest in range(3):
        rows = np.flatnonzero(short & (lengths & 3 > rest))
        last = data[starts[rows] + (lengths[rows] & ~3) + rest]
        hashes[rows] = _mixed(hashes[rows], last.view(np.int8).astype(np.int32).view(np.uint32))
    hashes = _finished(hashes, lengths.astype(np.uint32))
    for row in np.flatnonzero(~short).tolist():
        hashes[row] = hash_of_value(column[row].as_py(), field, int(seeds[row]))
    return hashes


def _mixed(seeds: Hashes, words: Hashes) -> Hashes:
    words = _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(seeds ^ words, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(hashes: Hashes, lengths: Any) -> Hashes:
    hashes = hashes ^ lengths
    hashes = (hashes ^ hashes >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ hashes >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return hashes ^ hashes >> np.uint32(16)


def _rotated(words: Hashes, bits: int) -> Hashes:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)


def _numbers(column: AnyArray) -> npt.NDArray[Any]:
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _integers(column: AnyArray, field: Field, seeds: Hashes) -> Hashes:
    return (_of_longs if INTEGER_BITS[field.type] > 32 else _of_ints)(_numbers(column), seeds)


def _moments(column: AnyArray, _: Field, seeds: Hashes) -> Hashes:
    return _of_longs(_numbers(cast(Any, column).cast(pa.int64())), seeds)


def _decimals(column: AnyArray, field: Field, seeds: Hashes) -> Hashes:
    if isinstance(field.type, Decimal) and field.type.precision <= _LONG_DECIMAL_DIGITS:
        # 128 bits each, of which the lower half has the whole number.
        numbers = np.frombuffer(cast(Any, column).buffers()[1], "<i8").reshape(-1, 2)
        return _of_longs(numbers[column.offset : column.offset + len(column), 0], seeds)
    values = zip(column.to_pylist(), seeds.tolist(), strict=True)
    return np.array([hash_of_value(value, field, seed) for value, seed in values], np.uint32)


def _hash(field: Field) -> Callable[[AnyArray, Field, Hashes], Hashes]:
    if field.type.kind is None:  # no column of a key is nested
        raise TypeError(field.type)
    return _HASHES[field.type.kind]


_HASHES: Final[dict[ValueKind, Callable[[AnyArray, Field, Hashes], Hashes]]] = {
    ValueKind.BOOLEAN: lambda column, _, seeds: _of_ints(_numbers(column), seeds),
    ValueKind.INTEGER: _integers,
    ValueKind.TEXT: _of_bytes,
    ValueKind.BINARY: _of_bytes,
    ValueKind.DECIMAL: _decimals,
    ValueKind.DATE: lambda column, _, seeds: _of_ints(_numbers(cast(Any, column).cast(pa.int32())), seeds),
    ValueKind.TIMESTAMP: _moments,
    ValueKind.TIMESTAMP_NTZ: _moments,
}
