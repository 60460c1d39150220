"""Two concurrent transactions: what conflicts, what does not, and the anomalies that must not happen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakemark_server.kv import Conflict, OpenTransaction, Store, counter

Step = Callable[[OpenTransaction], object]


def seed(store: Store, *keys: bytes) -> None:
    store.transact(lambda tx: [tx.set(key, b"0") for key in keys])


def commits_after(store: Store, first: Step, other: Step, *, write: bool = True) -> bool:
    """Whether a transaction that did ``first`` can commit after another one that did ``other`` has."""
    one, two = store.begin(), store.begin()
    first(one)
    if write:
        one.set(b"elsewhere", b"1")
    other(two)
    two.commit()
    try:
        one.commit()
    except Conflict:
        assert store.read(lambda tx: tx.get(b"elsewhere")) is None, "a refused transaction left something"
        return False
    return True


CONFLICTS: dict[str, tuple[Step, Step]] = {
    "get, set": (lambda tx: tx.get(b"b"), lambda tx: tx.set(b"b", b"1")),
    "get of an absent key, set": (lambda tx: tx.get(b"bb"), lambda tx: tx.set(b"bb", b"1")),
    "get, the same value set": (lambda tx: tx.get(b"b"), lambda tx: tx.set(b"b", b"0")),
    "get, clear": (lambda tx: tx.get(b"b"), lambda tx: tx.clear(b"b")),
    "get, clear of a range": (lambda tx: tx.get(b"b"), lambda tx: tx.clear_range(b"a", b"c")),
    "get, add": (lambda tx: tx.get(b"b"), lambda tx: tx.add(b"b", 1)),
    "get_many, set": (lambda tx: tx.get_many([b"a", b"b"]), lambda tx: tx.set(b"b", b"1")),
    "range, set": (lambda tx: tx.get_range(b"a", b"c"), lambda tx: tx.set(b"b", b"1")),
    "range, insert into it": (lambda tx: tx.get_range(b"a", b"c"), lambda tx: tx.set(b"ax", b"1")),
    "empty range, insert into it": (lambda tx: tx.get_range(b"x", b"y"), lambda tx: tx.set(b"xx", b"1")),
    "range, clear of its edge": (lambda tx: tx.get_range(b"b", b"c"), lambda tx: tx.clear_range(b"a", b"b\0")),
    "limited range, the last pair": (lambda tx: tx.get_range(b"a", b"z", limit=2), lambda tx: tx.set(b"b", b"1")),
    "reversed range, the last pair": (
        lambda tx: tx.get_range(b"a", b"z", limit=2, reverse=True),
        lambda tx: tx.set(b"c", b"1"),
    ),
    "limit not reached, the rest": (lambda tx: tx.get_range(b"a", b"z", limit=9), lambda tx: tx.set(b"y", b"1")),
    "added read conflict": (lambda tx: tx.add_read_conflict(b"p", b"q"), lambda tx: tx.set(b"pp", b"1")),
    "added write conflict": (lambda tx: tx.get(b"b"), lambda tx: tx.add_write_conflict(b"a", b"c")),
    "own add that was read": (
        lambda tx: [tx.add(b"n", 1), tx.get(b"n")],
        lambda tx: tx.add(b"n", 1),
    ),
}

NO_CONFLICTS: dict[str, tuple[Step, Step]] = {
    "nothing read": (lambda tx: None, lambda tx: tx.set(b"b", b"1")),
    "another key": (lambda tx: tx.get(b"b"), lambda tx: tx.set(b"b\0", b"1")),
    "the end of a range": (lambda tx: tx.get_range(b"a", b"c"), lambda tx: tx.set(b"c", b"1")),
    "behind the limit": (lambda tx: tx.get_range(b"a", b"z", limit=2), lambda tx: tx.set(b"b\0", b"1")),
    "behind the limit, reversed": (
        lambda tx: tx.get_range(b"a", b"z", limit=2, reverse=True),
        lambda tx: tx.set(b"bz", b"1"),
    ),
    "snapshot get": (lambda tx: tx.get(b"b", snapshot=True), lambda tx: tx.set(b"b", b"1")),
    "snapshot get_many": (lambda tx: tx.get_many([b"b"], snapshot=True), lambda tx: tx.set(b"b", b"1")),
    "snapshot range": (lambda tx: tx.get_range(b"a", b"c", snapshot=True), lambda tx: tx.set(b"b", b"1")),
    "own write that was read": (lambda tx: [tx.set(b"b", b"2"), tx.get(b"b")], lambda tx: tx.set(b"b", b"1")),
    "own cleared range that was read": (
        lambda tx: [tx.clear_range(b"a", b"c"), tx.get(b"b")],
        lambda tx: tx.set(b"b", b"1"),
    ),
    "blind writes of one key": (lambda tx: tx.set(b"b", b"2"), lambda tx: tx.set(b"b", b"1")),
    "adds to one counter": (lambda tx: tx.add(b"n", 1), lambda tx: tx.add(b"n", 1)),
    "the other only reads": (lambda tx: tx.get(b"b"), lambda tx: tx.get(b"b")),
    "empty conflict ranges": (
        lambda tx: [tx.get(b"b"), tx.add_read_conflict(b"c", b"c")],
        lambda tx: [tx.set(b"c", b"1"), tx.add_write_conflict(b"b", b"b")],
    ),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_refused(store: Store, case: str) -> None:
    seed(store, b"a", b"b", b"c", b"d")
    assert not commits_after(store, *CONFLICTS[case])


@pytest.mark.parametrize("case", NO_CONFLICTS)
def test_admitted(store: Store, case: str) -> None:
    seed(store, b"a", b"b", b"c", b"d")
    assert commits_after(store, *NO_CONFLICTS[case])


@pytest.mark.parametrize("case", CONFLICTS)
def test_what_was_written_before_the_snapshot_is_no_conflict(store: Store, case: str) -> None:
    first, other = CONFLICTS[case]
    seed(store, b"a", b"b", b"c", b"d")
    store.transact(other)
    one = store.begin()
    first(one)
    one.set(b"elsewhere", b"1")
    one.commit()


def test_a_transaction_that_writes_nothing_is_never_refused(store: Store) -> None:
    seed(store, b"a", b"b")
    assert commits_after(store, lambda tx: tx.get_range(b"a", b"c"), lambda tx: tx.set(b"b", b"1"), write=False)


def test_a_write_conflict_range_alone_is_committed(store: Store) -> None:
    seed(store, b"a")
    one, two = store.begin(), store.begin()
    one.get(b"a")
    one.set(b"b", b"1")
    two.add_write_conflict(b"a", b"b")
    two.commit()
    with pytest.raises(Conflict):
        one.commit()


def test_the_snapshot_is_taken_at_the_first_read_and_stays(store: Store) -> None:
    seed(store, b"a", b"b")
    tx = store.begin()
    store.transact(lambda other: other.set(b"a", b"1"))
    assert tx.get(b"a") == b"1", "nothing was read before"
    store.transact(lambda other: [other.set(b"b", b"1"), other.set(b"bb", b"1"), other.clear(b"a")])
    assert tx.get_range(b"", b"z") == [(b"a", b"1"), (b"b", b"0")]
    assert tx.get_many([b"bb", b"b"], snapshot=True) == [None, b"0"]
    tx.cancel()


def test_lost_update(store: Store) -> None:
    seed(store, b"balance")
    one, two = store.begin(), store.begin()
    for tx, value in ((one, b"1"), (two, b"2")):
        tx.get(b"balance")
        tx.set(b"balance", value)
    one.commit()
    with pytest.raises(Conflict):
        two.commit()
    assert store.read(lambda tx: tx.get(b"balance")) == b"1"


def test_write_skew(store: Store) -> None:
    """Two doctors on call; each may leave if the other stays."""
    seed(store, b"call/alice", b"call/bob")
    one, two = store.begin(), store.begin()
    for tx, name in ((one, b"alice"), (two, b"bob")):
        assert len(tx.get_range(b"call/", b"call0")) == 2
        tx.clear(b"call/" + name)
    one.commit()
    with pytest.raises(Conflict):
        two.commit()
    assert len(store.read(lambda tx: tx.get_range(b"call/", b"call0"))) == 1


def test_phantom(store: Store) -> None:
    """Both count the rows, see none, and insert one each."""
    one, two = store.begin(), store.begin()
    for tx, name in ((one, b"1"), (two, b"2")):
        assert tx.get_range(b"row/", b"row0") == []
        tx.set(b"row/" + name, b"")
    two.commit()
    with pytest.raises(Conflict):
        one.commit()


def test_read_skew(store: Store) -> None:
    """A reader between two writes of one transaction sees both or none, however late it reads the second."""
    seed(store, b"x", b"y")

    def body(tx: object) -> tuple[bytes | None, bytes | None]:
        x = reader.get(b"x")
        store.transact(lambda other: [other.set(b"x", b"1"), other.set(b"y", b"1")])
        return x, reader.get(b"y")

    reader = store.begin()
    assert body(reader) == (b"0", b"0")
    reader.cancel()
    assert store.read(lambda tx: (tx.get(b"x"), tx.get(b"y"))) == (b"1", b"1")


def test_read_only_transaction_anomaly(store: Store) -> None:
    """Fekete, O'Neil, O'Neil 2004: with snapshot isolation alone, a reader can see a state that no order explains."""
    seed(store, b"checking", b"savings")
    withdraw = store.begin()
    assert withdraw.get_many([b"checking", b"savings"]) == [b"0", b"0"]
    store.transact(lambda tx: [tx.get(b"savings"), tx.set(b"savings", b"20")])
    assert store.read(lambda tx: tx.get_many([b"checking", b"savings"])) == [b"0", b"20"]
    withdraw.set(b"checking", b"-11")
    with pytest.raises(Conflict):
        withdraw.commit()


def test_adds_of_concurrent_transactions_add_up(store: Store) -> None:
    handles = [store.begin() for _ in range(5)]
    for number, tx in enumerate(handles):
        tx.add(b"n", 10**number)
    for tx in handles:
        tx.commit()
    assert counter(store.read(lambda tx: tx.get(b"n"))) == 11_111
