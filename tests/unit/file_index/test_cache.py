"""Caches that are bounded by bytes: shared values count once, and entries in memory count with their real size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakemark_server.file_index.cache import SharingLru
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.pages.blocks import packed, unpacked
from lakemark_server.file_index.pages.contents import MemoryEntries, with_version
from tests.lakes import ID, NAME, SCHEMA, file, stat

INSTANT = 1_800_000_000_000
BYTES_MAX = 40


@dataclass(frozen=True, eq=False)
class Piece:
    size: int


@dataclass(frozen=True, eq=False)
class Value:
    parts: tuple[Piece, ...]

    def pieces(self) -> Iterator[tuple[object, int]]:
        yield self, 2
        for part in self.parts:
            yield part, part.size


PIECES = [Piece(size) for size in (1, 3, 7, 12, 30)]


def taken(values: list[Value]) -> int:
    return 2 * len(set(values)) + sum(piece.size for piece in {piece for value in values for piece in value.parts})


@given(st.lists(st.tuples(st.integers(0, 6), st.lists(st.sampled_from(PIECES), max_size=4)), max_size=30))
def test_pieces_count_once_and_the_bound_holds(puts: list[tuple[int, list[Piece]]]) -> None:
    cache: SharingLru[int, Value] = SharingLru(BYTES_MAX, Value.pieces)
    kept: dict[int, Value] = {}
    for key, parts in puts:
        value = Value(tuple(parts))
        cache.put(key, value)
        kept.pop(key, None)
        if sum(size for _, size in value.pieces()) <= BYTES_MAX:
            kept[key] = value
        while taken(list(kept.values())) > BYTES_MAX:
            del kept[next(iter(kept))]  # what was used longest ago
        assert cache.keys() == list(kept)
        assert cache.bytes == taken(list(kept.values()))
    cache.clear()
    assert (cache.bytes, cache.keys()) == (0, [])


def test_one_value_under_two_names_counts_once() -> None:
    cache: SharingLru[str, Value] = SharingLru(BYTES_MAX, Value.pieces)
    value = Value((PIECES[3],))
    cache.put("by origin", value)
    cache.put("any", value)
    assert cache.bytes == 14


def few() -> pa.RecordBatch:
    given = [file(INSTANT, f"g{n}", n, stats=[stat(ID, n, n + 1, 0), stat(NAME, nulls=5)]) for n in (1, 2)]
    return from_messages(given, SCHEMA)


def test_what_is_packed_comes_back() -> None:
    for batch in (few(), from_messages([file(INSTANT, "g", 1)], SCHEMA)):
        assert unpacked(packed(batch), SCHEMA).equals(batch)


def test_entries_of_one_schema_share_it_and_count_their_columns() -> None:
    one, other = (MemoryEntries(with_version(few(), version), SCHEMA) for version in (1, 2))
    assert one.column("added_version").to_pylist() == [1, 1]
    assert one.memory_bytes == other.memory_bytes
    assert one.memory_bytes > 400 * one.batch().num_columns, "most of what few entries take is not their values"
