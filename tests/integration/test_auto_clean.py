"""Cleaning in the background: for tables that ask for it, when due, in two steps with a grace period for readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemark.errors import InvalidArgument, LakemarkError, Unavailable, VersionNotFound
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog import clean_schedule
from lakemark_server.catalog.clean_schedule import AGE_PROPERTY, KEEP_PROPERTY
from lakemark_server.kv import Store, Transaction
from lakemark_server.maintenance.cleaning import auto_clean
from lakemark_server.maintenance.cleaning.auto_clean import AutoClean, backoff_ms
from lakemark_server.timeline.references import ReferenceDraft
from lakemark_server.verify import verify
from tests.contract.test_cleaning_model import write
from tests.lakes import Lake, open_lake

INTERVAL, GRACE = 100_000, 10_000


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(tmp_path) as found:
        yield found
        assert verify(found.store) == []


def cleans(lake: Lake) -> AutoClean:
    return AutoClean(lake.store, lake.clock, lake.cleaner, interval_ms=INTERVAL, grace_ms=GRACE)


def ask(lake: Lake, versions: int = 1, name: str = "t") -> None:
    lake.catalog.set_properties("", "default", name, {KEEP_PROPERTY: str(versions)})


def later(lake: Lake, ms: int, round_: Callable[[], int]) -> int:
    lake.clock.advance(ms)
    return round_()


def test_versions_end_at_once_and_files_go_after_the_grace(lake: Lake) -> None:
    table = lake.table()
    first, second = write(lake, "t", t.APPEND, 1), write(lake, "t", t.OVERWRITE_TABLE, 2)
    auto = cleans(lake)
    assert auto.round() == 0, "it does not ask"
    ask(lake)
    assert auto.round() == 1
    with pytest.raises(VersionNotFound, match=r"version 1 of default\.t was cleaned"):
        lake.paths(table, 1)
    assert first[0].exists(), "a query may be at it"
    assert later(lake, GRACE - 1, auto.round) == 0
    assert first[0].exists()
    assert later(lake, 1, auto.round) == 1
    assert (first[0].exists(), second[0].exists()) == (False, True)
    third = write(lake, "t", t.OVERWRITE_TABLE, 3)
    assert later(lake, INTERVAL, auto.round) == 1
    assert later(lake, GRACE, auto.round) == 1
    assert (second[0].exists(), third[0].exists()) == (False, True)


def test_an_age_keeps_what_is_young_and_both_keep_what_either_keeps(lake: Lake) -> None:
    table = lake.table()
    write(lake, "t", t.APPEND, 1)
    lake.clock.advance(50)
    write(lake, "t", t.APPEND, 2)
    lake.clock.advance(50)
    write(lake, "t", t.APPEND, 3)
    lake.catalog.set_properties("", "default", "t", {AGE_PROPERTY: "60", KEEP_PROPERTY: "1"})
    auto = cleans(lake)
    auto.round()
    assert len(lake.paths(table, 1)) == 1, "it is what a reader 60 ms ago saw"
    lake.clock.advance(30)
    ask(lake)  # at once again
    assert auto.round() == 1
    with pytest.raises(VersionNotFound, match="earliest that can be read is 2"):
        lake.paths(table, 1)


def test_a_table_that_asks_no_more_is_left_alone(lake: Lake) -> None:
    lake.table()
    write(lake, "t", t.APPEND, 1)
    ask(lake)
    lake.catalog.set_properties("", "default", "t", {}, remove=[KEEP_PROPERTY])
    assert lake.store.read(lambda tx: clean_schedule.due(tx, lake.clock(), 10)) == []
    ask(lake)
    lake.catalog.dropped.drop("", "default", "t", now=True)
    assert cleans(lake).round() == 0
    assert lake.store.read(lambda tx: clean_schedule.due(tx, lake.clock(), 10)) == []


@pytest.mark.parametrize("value", ["0", "-1", "ten", "", "1.5", "9" * 19, "9" * 40])
def test_what_is_no_number_is_refused(lake: Lake, value: str) -> None:
    lake.table()
    with pytest.raises(InvalidArgument, match="is not a number from 1 on"):
        lake.catalog.set_properties("", "default", "t", {KEEP_PROPERTY: value})


def test_a_round_does_not_look_at_tables_that_do_not_ask(lake: Lake) -> None:
    """A round reads as many keys with fifty other tables as without them."""
    lake.table()
    ask(lake)
    auto = cleans(lake)
    auto.round()
    before = reads(lake, lambda: later(lake, INTERVAL, auto.round))
    for number in range(50):
        lake.table(f"other{number}")
    assert reads(lake, lambda: later(lake, INTERVAL, auto.round)) == before


def reads(lake: Lake, work: Callable[[], object]) -> int:
    count = 0
    read, transact = lake.store.read, lake.store.transact

    def counted(body: Callable[..., object], **options: object) -> object:
        nonlocal count
        count += 1
        return read(body, **options)

    def counted_too(body: Callable[..., object], **options: object) -> object:
        nonlocal count
        count += 1
        return transact(body, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.store, "read", counted)
        patch.setattr(lake.store, "transact", counted_too)
        work()
    return count


def test_what_fails_waits_longer_each_time_and_others_go_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = lake.table(), lake.table("u")
    for name in ("t", "u"):
        write(lake, name, t.APPEND, 1)
        write(lake, name, t.OVERWRITE_TABLE, 1)
        ask(lake, name=name)
    auto, end = cleans(lake), lake.cleaner.end

    def failing(table_: object, retain: object) -> int:
        if getattr(table_, "table_id", 0) == table.table_id:
            raise Unavailable("no")
        return end(table_, retain)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.cleaner, "end", failing)
    assert auto.round() == 2
    with pytest.raises(VersionNotFound):
        lake.paths(other, 1)
    due = lake.store.read(lambda tx: clean_schedule.find(tx, table.table_id))
    assert due == (lake.clock() + 2 * INTERVAL, 1)
    assert len(lake.paths(table, 1)) == 1
    assert later(lake, 2 * INTERVAL, auto.round) == 2
    due = lake.store.read(lambda tx: clean_schedule.find(tx, table.table_id))
    assert due == (lake.clock() + 4 * INTERVAL, 2)
    assert backoff_ms(INTERVAL, 100) == auto_clean.BACKOFF_MS_MAX
    monkeypatch.undo()
    later(lake, 4 * INTERVAL, auto.round)
    with pytest.raises(VersionNotFound):
        lake.paths(table, 1)
    found = lake.store.read(lambda tx: clean_schedule.find(tx, table.table_id))
    assert found is not None
    assert found.failures == 0


def test_tags_savepoints_branches_and_writers_keep_what_they_have(lake: Lake) -> None:
    table = lake.table()
    paths = [write(lake, "t", t.OVERWRITE_TABLE, 1)[0] for _ in range(6)]
    references = lake.timeline.references
    references.create(table, ReferenceDraft(name="tag", kind=c.TAG, from_version=1))
    lake.timeline.savepoints.create(table, 2)
    references.create(table, ReferenceDraft(name="dev", kind=c.BRANCH, from_version=3))
    slow = lake.open(table, t.UPSERT, start=False, read_version=5)
    ask(lake)
    auto = cleans(lake)
    auto.round()
    later(lake, GRACE, auto.round)
    assert [path.exists() for path in paths] == [True, True, True, False, True, True], "only version 4 ended"
    lake.timeline.rollback(table, slow, "done")
    references.drop(table, "dev")
    references.drop(table, "tag")
    lake.timeline.savepoints.drop(table, 2)
    later(lake, INTERVAL, auto.round)
    later(lake, GRACE, auto.round)
    later(lake, INTERVAL, auto.round)
    assert [path.exists() for path in paths] == [False, False, False, False, False, True]


def test_more_versions_than_one_piece_end_together_and_go_in_pieces(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemark_server.maintenance.cleaning.cleaner.VERSIONS_AT_ONCE_MAX", 2)
    lake.table()
    paths = [write(lake, "t", t.OVERWRITE_TABLE, 1)[0] for _ in range(8)]
    ask(lake)
    auto = cleans(lake)
    auto.round()
    later(lake, GRACE, auto.round)
    assert [path.exists() for path in paths] == [False] * 7 + [True]


class Crashed(BaseException):
    """The process died."""


def crash_at(store: Store, number: int, *, committed: bool) -> Callable[..., object]:
    """A ``transact`` that crashes at this transaction, before or after the commit."""
    left = number
    transact = store.transact

    def crashing(body: Callable[[Transaction], object], **options: int) -> object:
        nonlocal left
        left -= 1
        if left == 0 and not committed:
            raise Crashed
        done = transact(body, **options)
        if left == 0:
            raise Crashed
        return done

    return crashing


@pytest.mark.parametrize("committed", [False, True])
def test_a_crash_anywhere_is_made_good_by_the_next_round(tmp_path: Path, *, committed: bool) -> None:
    """Before and after each transaction of all rounds that a clean with a branch, a tag and a merge takes."""
    for number in range(1, 60):
        directory = tmp_path / str(number)
        directory.mkdir()
        with open_lake(directory) as lake:
            table = lake.table()
            paths = [write(lake, "t", t.OVERWRITE_TABLE, 1)[0] for _ in range(3)]
            references = lake.timeline.references
            references.create(table, ReferenceDraft(name="tag", kind=c.TAG, from_version=2))
            references.create(table, ReferenceDraft(name="dev", kind=c.BRANCH))
            references.drop(table, "dev")
            ask(lake)
            auto, crashes = cleans(lake), 0
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(lake.store, "transact", crash_at(lake.store, number, committed=committed))
                try:
                    for wait in (0, GRACE, INTERVAL):
                        later(lake, wait, auto.round)
                except Crashed:
                    crashes = 1
            for wait in (0, GRACE, INTERVAL, GRACE, INTERVAL):
                later(lake, wait, cleans(lake).round)
            assert [path.exists() for path in paths] == [False, True, True], number
            assert [len(lake.paths(table, version)) for version in (2, 3)] == [1, 1]
            assert verify(lake.store) == []
            if not crashes:
                assert number > 5, "it takes more than that"
                return
    raise AssertionError("it never ends")


def test_a_failing_store_is_told(lake: Lake) -> None:
    lake.table()
    ask(lake)

    def fails(*_: object, **__: object) -> object:
        raise Unavailable("no store")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.store, "read", fails)
        with pytest.raises(LakemarkError, match="no store"):
            cleans(lake).round()
