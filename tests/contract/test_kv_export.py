"""Exports: everything at one version while others write, for longer than a transaction may live."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from itertools import chain

import pytest

from lakemark_server.kv import InvertedRange, KeyValue, Space, Store, StoreClosed, Transaction, counter, stamp_of
from lakemark_server.kv.api import KEYS_END
from tests.contract.conftest import ManualClock

ACCOUNTS = 20


def exported(store: Store, begin: bytes = b"", end: bytes = KEYS_END) -> list[KeyValue]:
    with store.export(begin, end) as export:
        return list(chain.from_iterable(export.pages))


def fill(store: Store, content: dict[bytes, bytes]) -> None:
    items = list(content.items())
    for at in range(0, len(items), 50):
        store.transact(lambda tx, at=at: [tx.set(*item) for item in items[at : at + 50]])  # type: ignore[misc]


def test_all_pairs_in_order_whatever_their_sizes(store: Store) -> None:
    chance = random.Random(1)
    content = {
        chance.randbytes(chance.choice([1, 8, 50, 3_000])).replace(b"\xff", b"\xfe"): bytes(
            chance.choice([0, 9, 70_000])
        )
        for _ in range(300)
    }
    fill(store, content)
    assert exported(store) == sorted(content.items())


def test_many_small_pairs_come_in_pages(store: Store) -> None:
    content = {b"%06d" % number: b"v" * 400 for number in range(6_000)}
    for at in range(0, 6_000, 1_000):
        store.transact(
            lambda tx, at=at: [tx.set(b"%06d" % number, b"v" * 400) for number in range(at, at + 1_000)]  # type: ignore[misc]
        )
    with store.export() as export:
        pages = list(export.pages)
    assert dict(chain.from_iterable(pages)) == content
    assert len(pages) > 2
    assert max(sum(len(key) + len(value) for key, value in page) for page in pages) < 4_000_000


def test_a_range_and_an_empty_one(store: Store) -> None:
    fill(store, {b"a": b"1", b"b": b"2", b"c": b"3"})
    assert exported(store, b"a\0", b"c") == [(b"b", b"2")]
    assert exported(store, b"b", b"b") == []
    assert exported(store, b"x") == []
    with pytest.raises(InvertedRange):
        exported(store, b"b", b"a")


def test_what_is_written_later_is_not_in_it(store: Store, clock: ManualClock) -> None:
    before = {b"%04d" % number: b"old" * 100 for number in range(500)}
    fill(store, before)
    with store.export() as export:
        pages = [next(export.pages)]
        store.transact(lambda tx: [tx.clear_range(b"", KEYS_END), tx.set(b"0400x", b"new")])
        clock.advance(3_600)
        store.transact(lambda tx: tx.set(b"0000", b"newer"))
        pages += export.pages
    assert dict(chain.from_iterable(pages)) == before
    assert dict(exported(store)) == {b"0000": b"newer", b"0400x": b"new"}


def test_its_version_is_that_of_the_content(store: Store) -> None:
    with store.export() as one, store.export() as other:
        assert one.version <= other.version
    store.transact(lambda tx: tx.set(b"a", b"1"))
    with store.export() as later:
        assert later.version > one.version


def test_writers_are_not_held_up_and_every_export_is_one_state(store: Store) -> None:
    """Money moves between accounts: no export may see it in both or in neither."""
    fill(store, {b"%d" % account: (100).to_bytes(8, "little") for account in range(ACCOUNTS)})
    fill(store, {b"ballast %04d" % number: bytes(2_000) for number in range(400)})
    done = threading.Event()
    moved = []

    def move(seed: int) -> None:
        chance = random.Random(seed)
        while not done.is_set():
            one, other = chance.sample(range(ACCOUNTS), 2)
            store.transact(lambda tx, a=one, b=other: [tx.add(b"%d" % a, -1), tx.add(b"%d" % b, 1), tx.add(b"n", 1)])  # type: ignore[misc]
            moved.append(1)

    writers = [threading.Thread(target=move, args=(seed,)) for seed in range(3)]
    for writer in writers:
        writer.start()
    try:
        numbers = []
        for _ in range(10):
            while not moved:  # so that each export races with writes
                pass
            moved.clear()
            found = dict(exported(store))
            numbers.append(counter(found.pop(b"n", None)))
            money = [counter(value) for key, value in found.items() if not key.startswith(b"ballast")]
            assert sum(money) == 100 * ACCOUNTS
            assert len(found) == ACCOUNTS + 400
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert numbers == sorted(numbers)
    assert numbers[-1] > numbers[0]


def test_a_log_that_grows_meanwhile_is_whole_in_every_export(store: Store) -> None:
    """Of each commit the export holds both entries, the end, and its part of the count, or none of them."""
    log, done, written = Space.of("log"), threading.Event(), list[int]()

    def append(tx: Transaction) -> None:
        for number in range(2):
            tx.set_versionstamped_key(log.prefix, number, b"entry")
        tx.set_versionstamped_value(b"end", b"")
        tx.add(b"n", 1)

    def write() -> None:
        while not done.is_set():
            store.transact(append)
            written.append(1)

    fill(store, {b"ballast %04d" % number: bytes(2_000) for number in range(400)})
    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        sizes = []
        for _ in range(4):
            # So that each export races with writes, of which those that ended before may be counted late.
            until = len(written) + 2 * len(writers)
            while len(written) < until and all(writer.is_alive() for writer in writers):
                time.sleep(0.001)
            content = dict(exported(store))
            entries = [stamp_of(key, log.prefix) for key in sorted(content) if key.startswith(log.prefix)]
            assert len(entries) == 2 * counter(content[b"n"])
            assert entries[-1] == (content[b"end"], 1)
            sizes.append(len(entries))
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert sizes == sorted(set(sizes))


def test_of_a_closed_store(open_again: Callable[[], Store]) -> None:
    store = open_again()
    store.close()
    with pytest.raises(StoreClosed):
        exported(store)
