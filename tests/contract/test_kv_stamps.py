"""Versionstamped keys and values: an ordered log whose writers neither wait for nor conflict with each other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_server.kv import (
    STAMP_BYTES,
    Conflict,
    KeyTooLarge,
    ReservedKey,
    Space,
    Store,
    Transaction,
    ValueTooLarge,
    pack,
    stamp_of,
    stamped_key,
)
from lakemark_server.kv.api import KEY_BYTES_MAX, VALUE_BYTES_MAX

LOG = Space.of("log")
END = pack("end")
THREADS = 6
TURNS = 40


def log_of(store: Store) -> list[tuple[bytes, bytes]]:
    return store.read(lambda tx: tx.get_range(*LOG.range()))


def append(store: Store, value: bytes) -> None:
    def body(tx: Transaction) -> None:
        tx.set_versionstamped_key(LOG.prefix, 0, value)
        tx.set_versionstamped_value(END, value)

    store.transact(body)


def test_keys_are_in_the_order_of_commits_and_of_their_numbers(store: Store) -> None:
    for turn in range(5):
        store.transact(
            lambda tx, turn=turn: [  # type: ignore[misc]
                tx.set_versionstamped_key(LOG.prefix, number, b"%d.%d" % (turn, number)) for number in (1, 0, 65_535)
            ]
        )
    pairs = log_of(store)
    assert [value for _, value in pairs] == [b"%d.%d" % (turn, n) for turn in range(5) for n in (0, 1, 65_535)]
    stamps = [stamp_of(key, LOG.prefix) for key, _ in pairs]
    assert len({stamp for stamp, _ in stamps}) == 5
    assert [number for _, number in stamps] == [0, 1, 65_535] * 5
    assert all(stamped_key(LOG.prefix, *parts) == key for parts, (key, _) in zip(stamps, pairs, strict=True))


def test_the_value_is_the_stamp_of_the_keys_of_its_transaction(store: Store) -> None:
    append(store, b"one")
    append(store, b"two")
    value = store.read(lambda tx: tx.get(END))
    assert value is not None
    assert value[STAMP_BYTES:] == b"two"
    assert value[:STAMP_BYTES] == stamp_of(log_of(store)[-1][0], LOG.prefix)[0]


def test_many_writers_write_one_log_without_conflicts(store: Store) -> None:
    """Each appends without retries, to a log and an end that the others write, too."""

    def work(writer: int) -> None:
        for turn in range(TURNS):
            tx = store.begin()
            tx.get(pack("own", writer))  # a snapshot, so that a conflict would be found
            tx.set(pack("own", writer), b"%d" % turn)
            tx.set_versionstamped_key(LOG.prefix, 0, b"%d %d" % (writer, turn))
            tx.set_versionstamped_value(END, b"")
            tx.commit()

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(THREADS)))
    pairs = log_of(store)
    assert len(pairs) == THREADS * TURNS
    for writer in range(THREADS):
        mine = [value for _, value in pairs if value.startswith(b"%d " % writer)]
        assert mine == [b"%d %d" % (writer, turn) for turn in range(TURNS)]
    end = store.read(lambda tx: tx.get(END))
    assert end == stamp_of(pairs[-1][0], LOG.prefix)[0]


def test_a_transaction_does_not_see_its_own(store: Store) -> None:
    def body(tx: Transaction) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        tx.set_versionstamped_key(LOG.prefix, 0, b"1")
        tx.set_versionstamped_value(END, b"1")
        return tx.get_range(*LOG.range(), snapshot=True), tx.get(END, snapshot=True)

    assert store.transact(body) == ([], None)
    assert [value for _, value in log_of(store)] == [b"1"]


@pytest.mark.parametrize(
    "read", [lambda tx: tx.get_range(*LOG.range()), lambda tx: tx.get(END)], ids=["range of keys", "value"]
)
def test_who_has_read_the_log_conflicts_with_an_append(store: Store, read: Callable[[Transaction], object]) -> None:
    append(store, b"1")
    tx = store.begin()
    read(tx)
    tx.set(b"other", b"")
    append(store, b"2")
    with pytest.raises(Conflict):
        tx.commit()


def test_a_cleared_log_is_written_anew(store: Store) -> None:
    append(store, b"1")

    def body(tx: Transaction) -> None:
        tx.set_versionstamped_key(LOG.prefix, 0, b"2")
        tx.clear_range(*LOG.range())

    store.transact(body)
    assert [value for _, value in log_of(store)] == [b"2"]


def test_an_aborted_transaction_leaves_nothing(store: Store) -> None:
    tx = store.begin()
    tx.set_versionstamped_key(LOG.prefix, 0, b"1")
    tx.set_versionstamped_value(END, b"1")
    tx.cancel()
    assert log_of(store) == []
    assert store.read(lambda tx: tx.get(END)) is None


def test_a_change_of_the_value_wakes_who_waits(store: Store) -> None:
    with ThreadPoolExecutor(1) as threads:
        woken = threads.submit(store.wait_for_change, END, None, 60.0)
        append(store, b"1")
        assert woken.result()


def test_what_cannot_be_stored_is_refused(store: Store) -> None:
    tx = store.begin()
    with pytest.raises(KeyTooLarge):
        tx.set_versionstamped_key(b"k" * (KEY_BYTES_MAX - 12), 0, b"")
    with pytest.raises(ReservedKey):
        tx.set_versionstamped_key(b"\xff", 0, b"")
    with pytest.raises(ValueTooLarge):
        tx.set_versionstamped_key(b"k", 0, b"v" * (VALUE_BYTES_MAX + 1))
    with pytest.raises(ValueTooLarge):
        tx.set_versionstamped_value(b"k", b"v" * (VALUE_BYTES_MAX - STAMP_BYTES + 1))
    for number in (-1, 1 << 16):
        with pytest.raises(InvalidArgument):
            tx.set_versionstamped_key(b"k", number, b"")
    tx.cancel()
