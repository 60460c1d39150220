"""Reads for event loops return what a read returns, and an unchanged count means that nothing has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lakemark_server.kv import Store, Transaction
from lakemark_server.kv.api import KEYS_END

KEYS = [b"a", b"b", b"c", b"absent"]
WRITES: list[Callable[[Transaction], object]] = [
    lambda tx: tx.set(b"a", b"1"),
    lambda tx: [tx.set(key, b"2") for key in KEYS[:3]],
    lambda tx: tx.set(b"b", b""),
    lambda tx: tx.clear(b"a"),
    lambda tx: tx.add(b"a", 7),
    lambda tx: tx.clear_range(b"b", KEYS_END),
]


def test_they_give_what_a_read_gives_or_nothing(store: Store) -> None:
    for number, write in enumerate(WRITES):
        before = store.writes_begun()
        store.transact(write)
        wanted = store.read(lambda tx: tx.get_many(KEYS))
        found = store.read_at_once(KEYS)
        assert found in (None, wanted), number
        assert before is None or store.writes_begun() not in (None, before), number
        if store.name == "sqlite":
            assert found == wanted
            assert before is not None
    store.close()
    assert store.read_at_once(KEYS) is None


@pytest.mark.parametrize("keys", [[], [b"a"] * 2_000])
def test_of_no_keys_and_of_too_many(store: Store, keys: list[bytes]) -> None:
    store.transact(lambda tx: tx.set(b"a", b"1"))
    assert store.read_at_once(keys) in (None, [b"1"] * len(keys))


def test_while_the_count_is_the_same_nothing_changes(store: Store) -> None:
    if store.writes_begun() is None:
        pytest.skip("other processes may write")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            store.transact(lambda tx, number=number: tx.set(b"a", b"%d" % number))  # type: ignore[misc]

    def value() -> int:
        return int(store.read(lambda tx: tx.get(b"a")) or b"0")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        newest = 0
        for _ in range(2_000):
            begun = store.writes_begun()
            if begun is None:
                continue
            first, again = value(), store.read_at_once([b"a"])
            newest = max(newest, value())
            if store.writes_begun() == begun:
                # What was read after the count was taken includes everything that anybody had seen by then.
                assert first == newest
                assert again in (None, [b"%d" % first] if first else [None])
    finally:
        stop.set()
        writer.join()


def test_a_commit_counts_before_it_is_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is being applied there is no count: some see it already, and who looked before has another one."""
    if store.name != "sqlite":
        pytest.skip("other processes may write")
    before = store.writes_begun()
    during: list[int | None] = []
    seen: list[bytes | None] = []
    announce = store._changes.announce  # type: ignore[attr-defined]

    def look(writes: object) -> None:
        during.append(store.writes_begun())
        seen.append(store.read(lambda tx: tx.get(b"a")))
        announce(writes)

    monkeypatch.setattr(store._changes, "announce", look)  # type: ignore[attr-defined]
    store.transact(lambda tx: tx.set(b"a", b"1"))
    assert (during, seen) == ([None], [b"1"])
    after = store.writes_begun()
    assert after is not None
    assert after != before
