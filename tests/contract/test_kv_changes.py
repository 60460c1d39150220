"""``Store.wait_for_change``: a change of the key wakes all that wait for it, and changes elsewhere wake nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from lakemark_server.kv import Store, StoreClosed, Transaction, open_store
from lakemark_server.kv.api import KEYS_END
from tests.contract.conftest import SHARED_URLS

LONG_S = 60.0
CHANGES: dict[str, Callable[[Transaction], None]] = {
    "set": lambda tx: tx.set(b"a", b"2"),
    "clear": lambda tx: tx.clear(b"a"),
    "clear_range": lambda tx: tx.clear_range(b"", KEYS_END),
    "add": lambda tx: tx.add(b"a", 1),
}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def waits(pool: ThreadPoolExecutor, store: Store, key: bytes, seen: bytes | None) -> Future[bool]:
    """A waiting thread that has begun. Whether it already sleeps makes no difference to its result."""
    begun = threading.Event()

    def wait() -> bool:
        begun.set()
        return store.wait_for_change(key, seen, LONG_S)

    future = pool.submit(wait)
    begun.wait()
    return future


def test_a_value_that_is_another_already(store: Store) -> None:
    store.transact(lambda tx: tx.set(b"a", b"1"))
    assert store.wait_for_change(b"a", b"0", LONG_S)
    assert store.wait_for_change(b"a", None, 0.0)
    assert store.wait_for_change(b"b", b"", LONG_S)


def test_a_value_that_stays_the_same(store: Store) -> None:
    store.transact(lambda tx: tx.set(b"a", b"1"))
    assert not store.wait_for_change(b"a", b"1", 0.0)
    assert not store.wait_for_change(b"b", None, 0.05)


@pytest.mark.parametrize("change", CHANGES)
def test_every_kind_of_change_wakes(store: Store, pool: ThreadPoolExecutor, change: str) -> None:
    store.transact(lambda tx: tx.set(b"a", b"1"))
    waiting = [waits(pool, store, b"a", b"1") for _ in range(3)]
    store.transact(CHANGES[change])
    assert all(future.result() for future in waiting)


def test_what_happens_elsewhere_or_makes_no_difference_wakes_nobody(store: Store, pool: ThreadPoolExecutor) -> None:
    store.transact(lambda tx: tx.set(b"b", b"1"))
    waiting = waits(pool, store, b"b", b"1")
    for change in (
        lambda tx: tx.set(b"a", b"1"),
        lambda tx: tx.clear_range(b"c", b"d"),
        lambda tx: tx.set(b"b", b"1"),
    ):
        store.transact(change)
    assert not waiting.done()
    store.transact(lambda tx: tx.clear(b"b"))
    assert waiting.result()


def test_a_chain_of_changes_is_followed_to_its_end(store: Store, pool: ThreadPoolExecutor) -> None:
    """No wake-up is lost: the follower would stay behind for LONG_S otherwise."""
    last = 40

    def follow() -> int:
        seen = None
        while seen != b"%d" % last:
            assert store.wait_for_change(b"a", seen, LONG_S)
            seen = store.read(lambda tx: tx.get(b"a"))
        return last

    followers = [pool.submit(follow) for _ in range(3)]
    for number in range(1, last + 1):
        store.transact(lambda tx, value=b"%d" % number: tx.set(b"a", value))  # type: ignore[misc]
    assert [future.result() for future in followers] == [last] * 3


def test_closing_wakes(store: Store, pool: ThreadPoolExecutor) -> None:
    waiting = waits(pool, store, b"a", None)
    store.close()
    with pytest.raises(StoreClosed):
        waiting.result()
    with pytest.raises(StoreClosed):
        store.wait_for_change(b"a", None, 0.0)


@pytest.mark.parametrize("kind", SHARED_URLS)
def test_what_another_process_changes_wakes(kind: str, tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    url = SHARED_URLS[kind](tmp_path)
    here, there = open_store(url), open_store(url)
    waiting = waits(pool, here, b"a", None)
    there.transact(lambda tx: tx.set(b"a", b"1"))
    assert waiting.result()
    here.close()
    there.close()
