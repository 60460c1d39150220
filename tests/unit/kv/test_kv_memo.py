"""Cached results equal those of a new read, whatever was written meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_server.kv import ReadMemo, ReadTransaction, Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/kv.db")
    yield opened
    opened.close()


class Follow:
    """Reads a name, then what it refers to. Counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, tx: ReadTransaction, name: bytes) -> bytes | None:
        self.runs += 1
        target = tx.get(name)
        if target is None:
            raise KeyError(name)
        return tx.get_many([target])[0]


def test_an_answer_is_kept_until_something_that_it_read_changes(store: Store) -> None:
    follow = Follow()
    memo = ReadMemo(follow, entries_max=10)
    store.transact(lambda tx: (tx.set(b"name", b"one"), tx.set(b"one", b"1"), tx.set(b"two", b"2")))

    def look() -> tuple[bytes | None, int]:
        return store.read(lambda tx: memo.get(tx, b"name")), follow.runs

    assert [look(), look()] == [(b"1", 1), (b"1", 1)]
    store.transact(lambda tx: tx.set(b"two", b"22"))
    assert look() == (b"1", 1)
    store.transact(lambda tx: tx.set(b"one", b"11"))
    assert look() == (b"11", 2)
    store.transact(lambda tx: tx.set(b"name", b"two"))
    assert look() == (b"22", 3)
    store.transact(lambda tx: tx.clear(b"two"))
    assert look() == (None, 4)
    store.transact(lambda tx: tx.set(b"two", b"2"))
    assert look() == (b"2", 5)
    store.transact(lambda tx: tx.clear(b"name"))
    with pytest.raises(KeyError):
        look()


def test_own_writes_of_a_transaction_are_seen(store: Store) -> None:
    memo = ReadMemo(Follow(), entries_max=10)
    store.transact(lambda tx: (tx.set(b"name", b"one"), tx.set(b"one", b"1")))
    store.read(lambda tx: memo.get(tx, b"name"))

    def body(tx: object) -> bytes | None:
        tx.set(b"one", b"mine")  # type: ignore[attr-defined]
        return memo.get(tx, b"name")  # type: ignore[arg-type]

    assert store.transact(body) == b"mine"
    store.transact(lambda tx: tx.set(b"one", b"theirs"))
    assert store.read(lambda tx: memo.get(tx, b"name")) == b"theirs"


def test_what_reads_ranges_is_not_kept(store: Store) -> None:
    memo = ReadMemo(lambda tx, key: len(tx.get_range(key, b"z")), entries_max=10)
    assert store.read(lambda tx: memo.get(tx, b"a")) == 0
    store.transact(lambda tx: tx.set(b"b", b""))
    assert store.read(lambda tx: memo.get(tx, b"a")) == 1


def test_only_so_many_are_kept(store: Store) -> None:
    runs = []
    memo = ReadMemo(lambda tx, key: runs.append(key) or tx.get(key), entries_max=2)
    for key in (b"a", b"b", b"c", b"c", b"b", b"a"):
        store.read(lambda tx, key=key: memo.get(tx, key))  # type: ignore[misc]
    assert runs == [b"a", b"b", b"c", b"a"]


def test_at_once_is_never_stale_and_reads_nothing_while_nothing_is_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = Follow()
    memo = ReadMemo(follow, entries_max=10)
    assert memo.get_at_once(store, b"name") is None
    store.transact(lambda tx: (tx.set(b"name", b"one"), tx.set(b"one", b"1"), tx.set(b"two", b"2")))
    store.read(lambda tx: memo.get(tx, b"name"))
    read: list[int] = []
    at_once = store.read_at_once
    monkeypatch.setattr(store, "read_at_once", lambda keys: read.append(len(keys)) or at_once(keys))
    assert [memo.get_at_once(store, b"name") for _ in range(3)] == [b"1"] * 3
    assert read == [2]
    store.transact(lambda tx: tx.set(b"two", b"22"))
    assert [memo.get_at_once(store, b"name") for _ in range(2)] == [b"1"] * 2
    assert read == [2, 2]
    store.transact(lambda tx: tx.set(b"one", b"11"))
    assert memo.get_at_once(store, b"name") is None
    assert store.read(lambda tx: memo.get(tx, b"name")) == b"11"
    assert memo.get_at_once(store, b"name") == b"11"
    store.transact(lambda tx: tx.clear(b"name"))
    assert memo.get_at_once(store, b"name") is None
    assert follow.runs == 2


def test_what_was_read_is_bounded_by_bytes(store: Store) -> None:
    runs = []
    memo = ReadMemo(lambda tx, key: runs.append(key) or tx.get(key), entries_max=10, bytes_max=4_000)
    store.transact(lambda tx: (tx.set(b"a", b"x" * 10), tx.set(b"b", b"x" * 10), tx.set(b"c", b"x" * 3_500)))
    for key in (b"a", b"b", b"b", b"a", b"c", b"c", b"b", b"a"):
        store.read(lambda tx, key=key: memo.get(tx, key))  # type: ignore[misc]
    assert runs == [b"a", b"b", b"c", b"c", b"b", b"a"], "the large one leaves, with all that came before it"
