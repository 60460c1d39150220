"""Keys up to the limit, of bytes that no store can compress, work like short ones."""

from __future__ import annotations

import random

import pytest

from lakemark_server.kv import Conflict, Store, counter
from lakemark_server.kv.api import KEY_BYTES_MAX, KEYS_END

_bytes = random.Random(7)
STEM = b"k" + _bytes.randbytes(2_046)
# Around the length from which some stores treat keys differently; several share a prefix, with short ones between.
KEYS = sorted(
    [
        b"a",
        STEM,
        *(STEM + bytes([number]) for number in (0, 7, 255)),
        *(STEM + bytes([number]) + _bytes.randbytes(KEY_BYTES_MAX - len(STEM) - 1) for number in (0, 1, 7, 9, 255)),
        *(b"k" + _bytes.randbytes(length) for length in (2_047, 2_048, 3_000, KEY_BYTES_MAX - 1)),
        b"z",
    ]
)
LONG = [key for key in KEYS if len(key) > 2_048]


@pytest.fixture
def filled(store: Store) -> Store:
    store.transact(lambda tx: [tx.set(key, b"%d" % number) for number, key in enumerate(KEYS)])
    return store


def test_reads(filled: Store) -> None:
    pairs = [(key, b"%d" % number) for number, key in enumerate(KEYS)]
    absent = LONG[0][:-1] + bytes([LONG[0][-1] ^ 1])
    mixed = [*reversed(KEYS), absent]
    assert [filled.read(lambda tx, key=key: tx.get(key)) for key in KEYS] == [value for _, value in pairs]  # type: ignore[misc]
    assert filled.read(lambda tx: tx.get_many(mixed)) == [*(value for _, value in reversed(pairs)), None]
    for first in range(0, len(KEYS), 2):
        for last in range(first, len(KEYS), 3):
            for limit in (0, 1, 4):
                expected = pairs[first:last]
                ranges = filled.read(
                    lambda tx, begin=KEYS[first], end=KEYS[last], limit=limit: (  # type: ignore[misc]
                        tx.get_range(begin, end, limit=limit),
                        tx.get_range(begin, end, limit=limit, reverse=True),
                    )
                )
                assert ranges == (expected[: limit or None], expected[::-1][: limit or None])


def test_writes(filled: Store) -> None:
    one, two, three = LONG[1], LONG[3], LONG[5]
    filled.transact(lambda tx: [tx.set(one, b"new"), tx.clear(two), tx.clear(three), tx.add(three, 5)])
    filled.transact(lambda tx: tx.add(three, 2))
    assert filled.read(lambda tx: (tx.get(one), tx.get(two), counter(tx.get(three)))) == (b"new", None, 7)
    filled.transact(lambda tx: tx.clear_range(KEYS[2], KEYS[-2]))
    assert [key for key, _ in filled.read(lambda tx: tx.get_range(b"", KEYS_END))] == [*KEYS[:2], *KEYS[-2:]]


def test_conflicts(filled: Store) -> None:
    tx = filled.begin()
    tx.get(LONG[2])
    tx.set(b"a", b"")
    filled.transact(lambda other: other.set(LONG[3], b""))
    tx.commit()
    tx = filled.begin()
    tx.get_range(KEYS[1], LONG[2])
    tx.set(b"a", b"")
    filled.transact(lambda other: other.clear(LONG[0]))
    with pytest.raises(Conflict):
        tx.commit()
