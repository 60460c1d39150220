"""What was read for an answer is noted if all of it was read by key, and holds until one of the values changes."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemark_server.kv import Readings, ReadMemo, ReadTransaction, Store, hold_together, lasts, noting, open_store
from tests.work import counted


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/kv.db")
    opened.transact(lambda tx: (tx.set(b"a", b"1"), tx.set(b"b", b"2")))
    yield opened
    opened.close()


def readings_of(store: Store, *bodies: Callable[[ReadTransaction], object]) -> Readings | None:
    begun = store.writes_begun()
    with noting() as noted:
        for body in bodies:
            store.read(body)
    return noted.readings(begun)


def test_reads_of_keys_are_noted_over_all_transactions(store: Store) -> None:
    made = readings_of(store, lambda tx: tx.get(b"a"), lambda tx: tx.get_many([b"b", b"c", b"a"]))
    assert made is not None
    assert dict(zip(made.keys, made.values, strict=True)) == {b"a": b"1", b"b": b"2", b"c": None}
    assert readings_of(store) is None, "nothing was read"


@pytest.mark.parametrize(
    "body", [lambda tx: tx.get_range(b"a", b"z"), lambda tx: tx.version()], ids=["a range", "the version"]
)
def test_other_reads_leave_nothing_to_rely_on(store: Store, body: Callable[[ReadTransaction], object]) -> None:
    assert readings_of(store, lambda tx: tx.get(b"a"), body) is None


def test_a_transaction_that_may_write_leaves_nothing_to_rely_on(store: Store) -> None:
    with noting() as noted:
        store.read(lambda tx: tx.get(b"a"))
        store.transact(lambda tx: tx.get(b"b"))
    assert noted.readings(None) is None


def test_a_key_with_two_values_leaves_nothing_to_rely_on(store: Store) -> None:
    with noting() as noted:
        store.read(lambda tx: tx.get(b"a"))
        other = open_in_another_context(store)
        other(b"a", b"changed")
        store.read(lambda tx: tx.get(b"a"))
    assert noted.readings(None) is None


def open_in_another_context(store: Store) -> Callable[[bytes, bytes], object]:
    """Writes as another request does."""
    outside = contextvars.Context()
    return lambda key, value: outside.run(store.transact, lambda tx: tx.set(key, value))


def test_what_a_memo_gives_without_reading_is_noted_too(store: Store) -> None:
    memo: ReadMemo[bytes, bytes | None] = ReadMemo(lambda tx, key: tx.get(key), entries_max=10)
    store.read(lambda tx: memo.get(tx, b"a"))
    with noting() as noted:
        assert memo.get_at_once(store, b"a") == b"1"
    made = noted.readings(None)
    assert made is not None
    assert (made.keys, made.values) == ([b"a"], [b"1"])


def test_they_hold_until_a_value_changes(store: Store) -> None:
    made = readings_of(store, lambda tx: tx.get_many([b"a", b"none"]))
    assert made is not None
    with counted(store) as work:
        assert made.hold_at_once(store) is True
    assert work.reads == 0
    store.transact(lambda tx: tx.set(b"b", b"other"))
    assert made.hold_at_once(store) is True
    store.transact(lambda tx: tx.set(b"none", b""))
    assert made.hold_at_once(store) is False
    store.transact(lambda tx: tx.clear(b"none"))
    assert made.hold_at_once(store) is True


def test_nobody_can_tell_at_once_when_the_store_is_closed(store: Store) -> None:
    made = readings_of(store, lambda tx: tx.get(b"a"))
    assert made is not None
    made.begun = None
    store.close()
    assert made.hold_at_once(store) is None


def test_one_read_tells_which_of_many_hold(store: Store) -> None:
    all_readings = [readings_of(store, lambda tx, key=key: tx.get(key)) for key in (b"a", b"b", b"c")]  # type: ignore[misc]
    assert all(all_readings)
    known = [one for one in all_readings if one is not None]
    assert hold_together(store, known) == [True] * 3
    with counted(store) as work:
        assert hold_together(store, known) == [True] * 3
    assert work.keys == 0, "the version is the same"
    store.transact(lambda tx: tx.set(b"b", b"other"))
    assert hold_together(store, known) == [True, False, True]
    assert hold_together(store, known) == [True, False, True]
    store.transact(lambda tx: tx.set(b"b", b"2"))
    assert hold_together(store, known) == [True] * 3


def test_only_who_makes_an_answer_says_that_it_lasts(store: Store) -> None:
    lasts()  # outside of any request it does nothing
    with noting() as noted:
        assert not noted.lasting
        lasts()
        assert noted.lasting
        with noting() as inner:
            assert not inner.lasting
