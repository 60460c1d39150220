"""Retries, bodies that raise, transactions that have ended, stores that are closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_server.kv import Conflict, Store, StoreClosed, Transaction, TransactionFinished, TransactionTooOld
from lakemark_server.kv.api import KEYS_END


def test_the_result_of_the_body_is_returned(store: Store) -> None:
    assert store.transact(lambda tx: tx.set(b"a", b"1") or "done") == "done"
    assert store.read(lambda tx: tx.get(b"a")) == b"1"


def test_a_conflict_is_retried_on_a_new_snapshot(store: Store) -> None:
    seen: list[bytes | None] = []

    def body(tx: Transaction) -> int:
        seen.append(tx.get(b"a"))
        if len(seen) < 4:
            store.transact(lambda other: other.set(b"a", b"%d" % len(seen)))
        tx.set(b"b", b"attempt %d" % len(seen))
        return len(seen)

    assert store.transact(body) == 4
    assert seen == [None, b"1", b"2", b"3"]
    assert store.read(lambda tx: tx.get(b"b")) == b"attempt 4"


def test_the_last_conflict_is_raised(store: Store) -> None:
    attempts = []

    def body(tx: Transaction) -> None:
        attempts.append(tx.get(b"a"))
        store.transact(lambda other: other.set(b"a", b"1"))
        tx.set(b"b", b"1")

    with pytest.raises(Conflict):
        store.transact(body, attempts_max=3)
    assert len(attempts) == 3
    assert store.read(lambda tx: tx.get(b"b")) is None
    with pytest.raises(InvalidArgument, match="attempts_max"):
        store.transact(body, attempts_max=0)


def test_a_transaction_that_was_too_slow_is_retried(store: Store, clock) -> None:  # type: ignore[no-untyped-def]
    pauses = [6.0, 6.0, 0.0]

    def body(tx: Transaction) -> int:
        tx.get(b"a")
        clock.advance(pauses.pop(0))
        tx.set(b"a", b"1")
        return len(pauses)

    assert store.transact(body) == 0
    pauses[:] = [6.0] * 2
    with pytest.raises(TransactionTooOld):
        store.transact(body, attempts_max=2)


def test_a_body_that_raises_applies_nothing_and_runs_once(store: Store) -> None:
    runs = []

    def body(tx: Transaction) -> None:
        runs.append(tx.get(b"a"))
        tx.set(b"a", b"1")
        tx.clear_range(b"", KEYS_END)
        raise KeyError("mine")

    store.transact(lambda tx: tx.set(b"kept", b"1"))
    with pytest.raises(KeyError, match="mine"):
        store.transact(body)
    assert len(runs) == 1
    assert store.read(lambda tx: tx.get_range(b"", KEYS_END)) == [(b"kept", b"1")]


def test_a_read_that_raises_gives_its_snapshot_back(store: Store) -> None:
    def body(tx: object) -> None:
        tx.get(b"a")  # type: ignore[attr-defined]
        raise KeyError("mine")

    for _ in range(300):  # more than any pool of readers has
        with pytest.raises(KeyError, match="mine"):
            store.read(body)
    assert store.read(lambda tx: tx.get(b"a")) is None


def test_dropped_transactions_use_nothing_up(store: Store) -> None:
    for number in range(300):  # more than any pool of readers has
        tx = store.begin()
        assert tx.get(b"a") == (b"%d" % (number - 1) if number else None), "the snapshot of an earlier one"
        store.transact(lambda other, value=b"%d" % number: other.set(b"a", value))  # type: ignore[misc]


@pytest.mark.parametrize("end", ["commit", "cancel"])
def test_an_ended_transaction_cannot_be_used(store: Store, end: str) -> None:
    tx = store.begin()
    tx.get(b"a")
    tx.set(b"a", b"1")
    getattr(tx, end)()
    for use in (
        lambda: tx.get(b"a"),
        lambda: tx.get_range(b"a", b"b"),
        lambda: tx.set(b"a", b"2"),
        lambda: tx.add(b"a", 2),
        lambda: tx.clear_range(b"a", b"b"),
        tx.commit,
    ):
        with pytest.raises(TransactionFinished):
            use()
    tx.cancel()
    assert store.read(lambda tx: tx.get(b"a")) == (b"1" if end == "commit" else None)


def test_a_transaction_does_not_outlive_its_body(store: Store) -> None:
    leaked = store.read(lambda tx: [tx, tx.get(b"a")])[0]
    with pytest.raises(TransactionFinished):
        leaked.get(b"a")
    leaked = store.transact(lambda tx: tx)
    with pytest.raises(TransactionFinished):
        leaked.set(b"a", b"1")


def test_data_is_there_after_a_restart(store: Store, open_again: Callable[[], Store]) -> None:
    store.transact(lambda tx: [tx.set(b"a", b"1"), tx.add(b"n", 1)])
    store.close()
    again = open_again()
    try:
        again.transact(lambda tx: tx.add(b"n", 1))
        assert again.read(lambda tx: tx.get_range(b"", KEYS_END)) == [(b"a", b"1"), (b"n", (2).to_bytes(8, "little"))]
    finally:
        again.close()


def test_a_closed_store_says_so(store: Store) -> None:
    reading, idle, writing = store.begin(), store.begin(), store.begin()
    reading.get(b"a")
    writing.set(b"a", b"1")
    store.close()
    store.close()
    for use in (
        store.begin,
        writing.commit,
        lambda: idle.get(b"b"),
        lambda: store.read(lambda tx: None),
        lambda: store.transact(lambda tx: None),
    ):
        with pytest.raises(StoreClosed):
            use()
    reading.cancel()
