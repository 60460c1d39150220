"""Cuts the pairs of a store into chunks, at places that depend on their content. Pure.

Whether a chunk ends after a pair depends on the pair's key and size alone. So a change moves only the boundaries next
to it, and all other chunks are byte by byte those of the backup before. This is content-defined chunking
(Muthitacharoen et al., LBFS, 2001), with keys instead of a rolling hash.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from lakemark_server.kv import KeyValue

CHUNK_BYTES_AIM: Final = 1 << 20
CHUNK_BYTES_MAX: Final = 4 << 20
_LENGTHS: Final = struct.Struct("<II")
_HASHES: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Chunk:
    """``data`` has, for each pair in the order of the keys, the lengths of key and value (4 bytes each), then both."""

    data: bytes
    pairs: int

    @property
    def name(self) -> str:
        return name_of(self.data)


def name_of(data: bytes) -> str:
    """The name of a chunk: its hash, in 64 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def ends_chunk(key: bytes, size_bytes: int) -> bool:
    """Whether a chunk ends after this pair: on average, after each CHUNK_BYTES_AIM bytes."""
    drawn = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
    return drawn * CHUNK_BYTES_AIM < size_bytes * _HASHES


def chunks(pairs: Iterable[KeyValue]) -> Iterator[Chunk]:
    """The chunks of the pairs, which must come in the order of their keys."""
    parts: list[bytes] = []
    size = count = 0
    for key, value in pairs:
        parts += (_LENGTHS.pack(len(key), len(value)), key, value)
        pair_bytes = _LENGTHS.size + len(key) + len(value)
        size += pair_bytes
        count += 1
        if size >= CHUNK_BYTES_MAX or ends_chunk(key, pair_bytes):
            yield Chunk(b"".join(parts), count)
            parts, size, count = [], 0, 0
    if parts:
        yield Chunk(b"".join(parts), count)


def pairs_of(data: bytes) -> Iterator[KeyValue]:
    """The pairs of a chunk, whose name must have been checked."""
    at = 0
    while at < len(data):
        key_bytes, value_bytes = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        yield data[at : at + key_bytes], data[at + key_bytes : at + key_bytes + value_bytes]
        at += key_bytes + value_bytes
