"""FoundationDB's limits hold on every store, to the byte, and a refused call changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_server.kv import (
    InvertedRange,
    KeyTooLarge,
    OpenTransaction,
    ReservedKey,
    Store,
    TransactionTooLarge,
    TransactionTooOld,
    ValueTooLarge,
)
from lakemark_server.kv.api import KEY_BYTES_MAX, KEYS_END, TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX

LONGEST = b"k" * KEY_BYTES_MAX
Call = Callable[[OpenTransaction, bytes], object]

KEY_CALLS: dict[str, Call] = {
    "get": lambda tx, key: tx.get(key),
    "get_many": lambda tx, key: tx.get_many([b"a", key]),
    "set": lambda tx, key: tx.set(key, b""),
    "clear": lambda tx, key: tx.clear(key),
    "add": lambda tx, key: tx.add(key, 1),
}
RANGE_CALLS: dict[str, Callable[[OpenTransaction, bytes, bytes], object]] = {
    "get_range": lambda tx, begin, end: tx.get_range(begin, end),
    "clear_range": lambda tx, begin, end: tx.clear_range(begin, end),
    "add_read_conflict": lambda tx, begin, end: tx.add_read_conflict(begin, end),
    "add_write_conflict": lambda tx, begin, end: tx.add_write_conflict(begin, end),
}


@pytest.fixture
def tx(store: Store):  # type: ignore[no-untyped-def]
    transaction = store.begin()
    yield transaction
    transaction.cancel()


@pytest.mark.parametrize("call", KEY_CALLS)
def test_keys(tx: OpenTransaction, call: str) -> None:
    KEY_CALLS[call](tx, LONGEST)
    with pytest.raises(KeyTooLarge, match="9901 bytes"):
        KEY_CALLS[call](tx, LONGEST + b"k")
    with pytest.raises(ReservedKey):
        KEY_CALLS[call](tx, KEYS_END)
    with pytest.raises(InvalidArgument, match="must be bytes, not str"):
        KEY_CALLS[call](tx, "text")  # type: ignore[arg-type]


@pytest.mark.parametrize("call", RANGE_CALLS)
def test_ranges(tx: OpenTransaction, call: str) -> None:
    RANGE_CALLS[call](tx, LONGEST, LONGEST + b"\0")
    RANGE_CALLS[call](tx, b"", KEYS_END)
    RANGE_CALLS[call](tx, b"b", b"b")
    with pytest.raises(InvertedRange):
        RANGE_CALLS[call](tx, b"b\0", b"b")
    with pytest.raises(KeyTooLarge):
        RANGE_CALLS[call](tx, b"", LONGEST + b"kk")
    with pytest.raises(ReservedKey):
        RANGE_CALLS[call](tx, b"a", KEYS_END + b"\0")
    with pytest.raises(InvalidArgument, match="must be bytes, not str"):
        RANGE_CALLS[call](tx, b"a", "text")  # type: ignore[arg-type]


def test_reads_outside_of_transactions_have_the_same_limits(store: Store) -> None:
    with pytest.raises(KeyTooLarge):
        store.read(lambda tx: tx.get(LONGEST + b"k"))
    with pytest.raises(KeyTooLarge):
        store.read(lambda tx: tx.get_many([LONGEST + b"k"]))
    with pytest.raises(InvertedRange):
        store.read(lambda tx: tx.get_range(b"b", b"a"))
    with pytest.raises(InvalidArgument, match="negative"):
        store.read(lambda tx: tx.get_range(b"a", b"b", limit=-1))


def test_the_largest_key_and_value_are_stored(store: Store) -> None:
    value = bytes(VALUE_BYTES_MAX)
    store.transact(lambda tx: tx.set(LONGEST, value))
    assert store.read(lambda tx: tx.get(LONGEST)) == value


def test_values(tx: OpenTransaction) -> None:
    with pytest.raises(ValueTooLarge, match="100001 bytes"):
        tx.set(b"a", bytes(VALUE_BYTES_MAX + 1))
    with pytest.raises(InvalidArgument, match="must be bytes, not int"):
        tx.set(b"a", 1)  # type: ignore[arg-type]
    assert tx.get(b"a") is None


@pytest.mark.parametrize("delta", [1 << 63, -(1 << 63) - 1])
def test_deltas(tx: OpenTransaction, delta: int) -> None:
    with pytest.raises(InvalidArgument, match="64 bits"):
        tx.add(b"n", delta)


def test_written_bytes_are_counted(tx: OpenTransaction) -> None:
    for number in range(TRANSACTION_BYTES_MAX // VALUE_BYTES_MAX - 1):
        tx.set(b"%d" % number, bytes(VALUE_BYTES_MAX))
    with pytest.raises(TransactionTooLarge):
        tx.set(b"last", bytes(VALUE_BYTES_MAX))


def test_conflict_ranges_are_counted(store: Store) -> None:
    tx = store.begin()
    tx.set(b"a", b"")
    for number in range(TRANSACTION_BYTES_MAX // (2 * KEY_BYTES_MAX) + 1):
        tx.get(b"%05d" % number + LONGEST[5:])
    with pytest.raises(TransactionTooLarge):
        tx.commit()
    assert store.read(lambda tx: tx.get(b"a")) is None


def test_reading_much_without_writing_is_no_large_transaction(store: Store) -> None:
    tx = store.begin()
    for number in range(TRANSACTION_BYTES_MAX // (2 * KEY_BYTES_MAX) + 1):
        tx.get(b"%05d" % number + LONGEST[5:])
    tx.commit()


def test_age(store: Store, clock) -> None:  # type: ignore[no-untyped-def]
    reading, writing, idle, in_time = (store.begin() for _ in range(4))
    reading.get(b"a")
    writing.set(b"b", b"1")
    in_time.set(b"c", b"1")
    clock.advance(5.0)
    in_time.commit()
    assert idle.get(b"c") == b"1"
    clock.advance(0.001)
    for read in (
        lambda: reading.get(b"a"),
        lambda: reading.get_many([b"a"]),
        lambda: reading.get_range(b"a", b"b"),
        lambda: idle.get(b"a", snapshot=True),
        lambda: idle.add_read_conflict(b"a", b"b"),
    ):
        with pytest.raises(TransactionTooOld):
            read()
    with pytest.raises(TransactionTooOld):
        writing.commit()
    assert store.read(lambda tx: tx.get(b"b")) is None
    reading.commit()
    idle.cancel()


def test_age_of_a_read(store: Store, clock) -> None:  # type: ignore[no-untyped-def]
    def slow(tx: object) -> None:
        clock.advance(5.001)
        tx.get(b"a")  # type: ignore[attr-defined]

    with pytest.raises(TransactionTooOld):
        store.read(slow)
