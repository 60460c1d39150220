"""Single transactions: order, own writes, ranges, counters, keys and blobs."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from lakemark_core.errors import CorruptStore
from lakemark_server.kv import Space, Store, Transaction, blob, counter, pack, range_of, strinc
from lakemark_server.kv.api import KEYS_END, VALUE_BYTES_MAX

PAIRS = [(b"k%d" % number, b"v%d" % number) for number in range(5)]


def fill(store: Store) -> None:
    store.transact(lambda tx: [tx.set(key, value) for key, value in PAIRS])


def everything(store: Store) -> dict[bytes, bytes]:
    return dict(store.read(lambda tx: tx.get_range(b"", KEYS_END)))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.dictionaries(st.binary(max_size=6).filter(lambda key: key < KEYS_END), st.binary(max_size=3)))
def test_keys_are_ordered_as_bytes(store: Store, pairs: dict[bytes, bytes]) -> None:
    def replace(tx: Transaction) -> None:
        tx.clear_range(b"", KEYS_END)
        for key, value in pairs.items():
            tx.set(key, value)

    store.transact(replace)
    assert store.read(lambda tx: tx.get_range(b"", KEYS_END)) == sorted(pairs.items())
    assert store.read(lambda tx: tx.get_range(b"", KEYS_END, reverse=True)) == sorted(pairs.items(), reverse=True)
    some = [*itertools.islice(pairs, 3), b"absent"]
    assert store.read(lambda tx: tx.get_many(some)) == [pairs.get(key) for key in some]


def test_absent_empty_and_zero_bytes_are_different_things(store: Store) -> None:
    store.transact(lambda tx: [tx.set(b"", b""), tx.set(b"zero", b"\0")])
    assert store.read(lambda tx: [tx.get(b""), tx.get(b"zero"), tx.get(b"absent")]) == [b"", b"\0", None]


def test_get_many_keeps_the_order_and_repeats(store: Store) -> None:
    fill(store)
    many = [b"k3", b"absent", b"k1", b"k3"] * 200
    assert store.read(lambda tx: tx.get_many(many)) == [b"v3", None, b"v1", b"v3"] * 200
    assert store.read(lambda tx: tx.get_many([])) == []


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 9])
def test_limit_and_direction(store: Store, limit: int, reverse: bool) -> None:
    fill(store)
    inside = sorted(PAIRS[1:4], reverse=reverse)[: limit or None]
    assert store.read(lambda tx: tx.get_range(b"k1", b"k4", limit=limit, reverse=reverse)) == inside


def test_a_transaction_reads_its_own_writes(store: Store) -> None:
    fill(store)
    tx = store.begin()
    tx.set(b"k0", b"new")
    tx.clear(b"k1")
    tx.set(b"k9", b"more")
    tx.add(b"n", 5)
    assert tx.get_many([b"k0", b"k1", b"k2", b"k9"]) == [b"new", None, b"v2", b"more"]
    assert counter(tx.get(b"n")) == 5
    tx.clear_range(b"k2", b"k4")
    tx.set(b"k3", b"back")
    assert tx.get_range(b"k", b"l") == [(b"k0", b"new"), (b"k3", b"back"), (b"k4", b"v4"), (b"k9", b"more")]
    before = everything(store)
    assert before == dict(PAIRS), "nothing is visible before the commit"
    tx.commit()
    assert everything(store) == {
        b"k0": b"new",
        b"k3": b"back",
        b"k4": b"v4",
        b"k9": b"more",
        b"n": (5).to_bytes(8, "little"),
    }


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", range(7))
def test_a_limited_range_looks_past_the_pairs_that_own_writes_hide(store: Store, limit: int, reverse: bool) -> None:
    fill(store)
    tx = store.begin()
    tx.clear(b"k0")
    tx.clear_range(b"k1", b"k2")
    tx.set(b"k15", b"between")
    tx.clear(b"k4")
    expected = sorted([(b"k15", b"between"), *PAIRS[2:4]], reverse=reverse)[: limit or None]
    assert tx.get_range(b"", KEYS_END, limit=limit, reverse=reverse) == expected
    tx.cancel()


def test_the_last_write_of_a_key_wins(store: Store) -> None:
    def body(tx: Transaction) -> None:
        tx.set(b"a", b"1")
        tx.clear_range(b"a", b"b")
        tx.set(b"b", b"1")
        tx.clear(b"b")
        tx.clear(b"c")
        tx.set(b"c", b"2")
        tx.set(b"d", b"x" * 9)
        tx.clear(b"d")
        tx.add(b"d", 3)

    fill(store)
    store.transact(body)
    assert store.read(lambda tx: tx.get_range(b"a", b"e")) == [(b"c", b"2"), (b"d", (3).to_bytes(8, "little"))]


def test_an_add_after_a_clear_begins_at_zero(store: Store) -> None:
    store.transact(lambda tx: [tx.add(b"n", 5), tx.add(b"m", 5)])
    tx = store.begin()
    tx.clear_range(b"n", b"o")
    tx.clear(b"m")
    tx.add(b"n", 1)
    tx.add(b"m", 1)
    tx.add(b"m", 1)
    assert [counter(value) for value in tx.get_many([b"m", b"n"])] == [2, 1]
    assert [counter(value) for _, value in tx.get_range(b"m", b"o")] == [2, 1]
    tx.commit()
    assert [counter(value) for value in store.read(lambda tx: tx.get_many([b"m", b"n"]))] == [2, 1]


@pytest.mark.parametrize(
    ("stored", "delta", "then"),
    [
        (None, 0, 0),
        (None, -1, -1),
        (b"\xff" * 8, 1, 0),
        (((1 << 63) - 1).to_bytes(8, "little"), 1, -(1 << 63)),
        (b"\x05", 2, 7),
        (b"\x05" + b"\0" * 7 + b"cut off", 2, 7),
        (b"", 4, 4),
    ],
)
def test_add(store: Store, stored: bytes | None, delta: int, then: int) -> None:
    if stored is not None:
        store.transact(lambda tx: tx.set(b"n", stored))
    store.transact(lambda tx: tx.add(b"n", delta))
    value = store.read(lambda tx: tx.get(b"n"))
    assert value is not None
    assert len(value) == 8
    assert counter(value) == then


def test_a_counter_that_was_never_added_to_is_zero() -> None:
    assert counter(None) == 0


def test_strinc_ends_a_prefix(store: Store) -> None:
    store.transact(lambda tx: [tx.set(key, b"") for key in (b"a", b"a\xfe", b"a\xff\xff", b"b")])
    assert [key for key, _ in store.read(lambda tx: tx.get_range(b"a", strinc(b"a")))] == [b"a", b"a\xfe", b"a\xff\xff"]


def test_spaces_keep_apart_and_sort_as_tuples(store: Store) -> None:
    items = [(1,), (1, "x"), (1, "x", 2), (1, "x", 10), (1, "y"), (2, "x")]
    store.transact(lambda tx: [tx.set(pack(*item), b"") for item in reversed(items)])
    space = Space.of(1)
    found = store.read(lambda tx: tx.get_range(*space.range()))
    assert [space.unpack(key) for key, _ in found] == [item[1:] for item in items[1:5]]
    assert [key for key, _ in store.read(lambda tx: tx.get_range(*range_of(1, "x")))] == [pack(*i) for i in items[2:4]]


@pytest.mark.parametrize("size", [0, 1, 99_997, 99_998, 99_999, 199_998, 199_999, 1_000_000])
def test_a_blob_of_any_size_comes_back(store: Store, size: int) -> None:
    space = Space.of("blob", 1)
    value = (b"0123456789abcdef!" * (size // 17 + 1))[:size]
    store.transact(lambda tx: [blob.put(tx, space, value), tx.set(Space.of("blob", 2).key(0), b"neighbour")])
    assert store.read(lambda tx: blob.get(tx, space)) == value
    store.transact(lambda tx: blob.clear(tx, space))
    assert store.read(lambda tx: blob.get(tx, space)) is None
    assert list(everything(store).values()) == [b"neighbour"]


def test_a_smaller_blob_leaves_nothing_of_the_larger_one(store: Store) -> None:
    space = Space.of("blob")
    store.transact(lambda tx: blob.put(tx, space, b"x" * (5 * VALUE_BYTES_MAX)))
    store.transact(lambda tx: blob.put(tx, space, b"y" * (VALUE_BYTES_MAX + 1)))
    assert len(everything(store)) == 2
    store.transact(lambda tx: blob.put(tx, space, b"small"))
    assert store.read(lambda tx: blob.get(tx, space)) == b"small"
    assert len(everything(store)) == 1


def test_a_blob_with_a_missing_chunk_is_an_error_not_a_short_value(store: Store) -> None:
    space = Space.of("blob")
    store.transact(lambda tx: blob.put(tx, space, b"x" * (3 * VALUE_BYTES_MAX)))
    store.transact(lambda tx: tx.clear(space.key(1)))
    with pytest.raises(CorruptStore, match="4 chunks has only 3"):
        store.read(lambda tx: blob.get(tx, space))
