"""The timeline's domain: what must hold despite batches, races and repeated requests."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from lakemark_core.errors import (
    CommitConflict,
    InstantStateError,
    InvalidFile,
    LimitExceeded,
    StoreConflict,
    TableNotFound,
    VersionNotFound,
)
from lakemark_proto.store.v1.store_pb2 import CleanedRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog.lake import LakeTable, put
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.store.mutations import Mutations
from lakemark_server.timeline.branches import retention
from lakemark_server.timeline.conflicts import change_log
from lakemark_server.timeline.conflicts.touched import LISTED_MAX, TouchedSet
from lakemark_server.timeline.instants import pages, staging
from lakemark_server.timeline.jobs import opening
from lakemark_server.timeline.jobs.commit import CommitJob
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.lineage import OF_MAIN
from lakemark_server.timeline.publication.commits import Commit, CommitDraft, Committed
from lakemark_server.timeline.service import Timeline
from lakemark_server.verify import verify
from tests.lakes import Lake, file, files, profile

T = TypeVar("T")
P, W = t.OVERWRITE_PARTITIONS, t.OVERWRITE_TABLE


def batch(lake: Lake, table: LakeTable, *jobs: Any) -> list[Any]:
    """Runs the jobs in one transaction, as if they had come at the same time."""
    return lake.timeline._batches._run(table.table_id, list(jobs))


def inline(lake: Lake, table: LakeTable, instant: int, *months: int) -> CommitJob:
    given = files(*(file(instant, f"g{month}", month) for month in months))
    entries = staging.read_entries(given, table, instant)
    return CommitJob(Commit(instant, entries=entries))


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_commit_that_breaks_a_limit_fails_alone(lake: Lake) -> None:
    table = lake.table()
    wide = lake.open(table, P, profile(*range(1_000)))
    other = lake.open(table)
    answers = batch(lake, table, inline(lake, table, wide, *range(995, 1_005)), inline(lake, table, other, 2_000))
    assert isinstance(answers[0], LimitExceeded)
    assert answers[1].version == 1
    assert lake.timeline.instant(table.table_id, wide)[0].state == t.INFLIGHT
    assert verify(lake.store) == []


def test_metadata_is_bounded_together_and_in_bytes(lake: Lake) -> None:
    table = lake.table()
    half = {"k": "漢" * 3_400}  # 10,200 bytes
    job = OpenJob(operation=t.APPEND, metadata=half, profile=t.WorkProfile())
    instant = lake.timeline.open(table.table_id, job).record.instant
    other = lake.open(table)
    answers = batch(lake, table, CommitJob(Commit(instant, metadata={"l": half["k"]})), CommitJob(Commit(other)))
    assert isinstance(answers[0], LimitExceeded)
    assert answers[1].version == 1
    assert batch(lake, table, CommitJob(Commit(instant, metadata=half)))[0].version == 2, "the same key counts once"
    with pytest.raises(LimitExceeded):
        lake.timeline.open(table.table_id, OpenJob(operation=t.APPEND, metadata={"k": "漢" * 7_000}))


def test_a_writer_that_has_read_version_0_is_no_writer_of_the_latest(lake: Lake) -> None:
    table = lake.table()
    instant = lake.open(table, W, t.WorkProfile(whole_table=True), read_version=0)
    assert lake.timeline.instant(table.table_id, instant)[0].read_version == 0
    lake.timeline.rollback(table, instant, "")
    lake.put(table, [1])
    whole = OpenJob(operation=W, profile=t.WorkProfile(whole_table=True), read_version=0)
    with pytest.raises(CommitConflict):
        lake.timeline.open(table.table_id, whole)
    latest = lake.open(table, W, t.WorkProfile(whole_table=True))
    assert lake.timeline.instant(table.table_id, latest)[0].read_version == 1
    cleaned = CleanedRecord(horizon=1)
    lake.store.transact(lambda tx: retention.put_cleaned(tx, table.table_id, OF_MAIN.key, cleaned))
    with pytest.raises(VersionNotFound, match=r"version 1 of .* was cleaned"):
        lake.timeline.open(table.table_id, whole)


def test_the_largest_records_that_are_allowed_fit_the_store(lake: Lake) -> None:
    table = lake.table()
    work = profile(*(10**9 + number for number in range(1_000)))
    work.file_groups.extend(f"{number:025}" for number in range(LISTED_MAX))
    work.replaced_files.extend(map(str, range(LISTED_MAX)))
    work.columns.extend(range(1_000_000, 1_001_000))
    table.record.last_column_id = 1_001_000  # as after very many changes of the schema
    lake.store.transact(lambda tx: put(tx, table.record))
    job = OpenJob(
        operation=t.UPSERT,
        owner="漢" * 200,
        metadata={str(number): "" for number in range(1_700)},
        profile=work,
    )
    instant = lake.timeline.open(table.table_id, job).record.instant
    touched = TouchedSet()
    touched._add_files(("", "g", number) for number in range(LISTED_MAX))
    entries = replace(staging.NO_ENTRIES, blocks=[b"A" * staging.INLINE_BYTES_MAX], touched=touched)
    assert batch(lake, table, CommitJob(Commit(instant, entries=entries)))[0].version == 1


def test_a_batch_that_is_too_large_for_one_transaction_is_cut(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table()
    instants = [lake.open(table) for _ in range(40)]
    monkeypatch.setattr("lakemark_server.kv.buffer.TRANSACTION_BYTES_MAX", 20_000)
    answers = batch(lake, table, *(CommitJob(Commit(instant, metadata={"k": "x" * 2_000})) for instant in instants))
    assert [answer.version for answer in answers] == list(range(1, 41))
    assert verify(lake.store) == []


def test_a_batch_decides_each_against_those_before_it(lake: Lake) -> None:
    table = lake.table()
    one, two, three = (lake.open(table, P, read_version=0) for _ in range(3))
    answers = batch(
        lake,
        table,
        inline(lake, table, one, 1),
        inline(lake, table, two, 1),
        inline(lake, table, three, 3),
        inline(lake, table, one, 1),
    )
    assert [getattr(answer, "version", answer) for answer in (answers[0], answers[2], answers[3])] == [1, 2, 1]
    assert isinstance(answers[1], CommitConflict)
    assert answers[2].rebased_over == 1


def test_two_that_open_at_the_same_moment_see_each_other(lake: Lake) -> None:
    table = lake.table(policy="table")
    job = OpenJob(operation=t.APPEND, profile=t.WorkProfile())
    first, second = batch(lake, table, job, job)
    assert first.record.state == t.INFLIGHT
    assert isinstance(second, CommitConflict)


def test_the_same_request_twice_in_a_batch_opens_one_instant(lake: Lake) -> None:
    table = lake.table()
    job = OpenJob(operation=t.APPEND, request_id="r")
    first, second = batch(lake, table, job, job)
    assert first.record == second.record


# -- races -------------------------------------------------------------------------------------------------------------


def test_two_processes_that_start_writers_at_the_same_moment(lake: Lake) -> None:
    """The second starts while the transaction of the first is open; the store makes the first one run again."""
    table = lake.table()
    one, two = lake.open(table, P, start=False), lake.open(table, P, start=False)
    other_process = Timeline(lake.store, lake.snapshots, lake.clock)
    calls = []

    def clock() -> int:
        calls.append(1)
        if len(calls) == 1:
            other_process.start(table.table_id, two, profile(1))
        return lake.clock()

    with pytest.raises(CommitConflict, match=f"instant {two} is in flight"):
        Timeline(lake.store, lake.snapshots, clock).start(table.table_id, one, profile(1))
    assert lake.timeline.instant(table.table_id, one)[0].state == t.REQUESTED


class Interrupted:
    """A store whose first write transaction loses to another one."""

    def __init__(self, lake: Lake, faster: Callable[[], object]) -> None:
        self._lake, self._faster = lake, faster
        self._before = 1

    def read(self, body: Callable[[ReadTransaction], T]) -> T:
        return self._lake.store.read(body)

    def transact(self, body: Callable[[Transaction], T]) -> T:
        if self._before:
            self._before -= 1
            self._faster()
        return self._lake.store.transact(body)


def test_a_request_that_was_overtaken_overwrites_nothing(lake: Lake) -> None:
    table = lake.table()
    instant = lake.open(table)
    slow = staging.read_entries(files(file(instant, "slow", 1)), table, instant)
    store: Any = Interrupted(lake, lambda: lake.stage(table, instant, 1, [file(instant, "fast", 1)]))
    with pytest.raises(StoreConflict, match="send this one again"):
        staging.stage(Mutations(store, lake.clock), table, instant, slow, staging.COMMIT_SEQUENCE, Quotas(lake.store))
    lake.commit(table, instant)
    assert lake.paths(table) == [f"{instant}/m=1/fast/a.parquet"]


def test_the_same_request_sent_twice_at_once_is_staged_once(lake: Lake) -> None:
    table = lake.table()
    instant = lake.open(table)
    given = [file(instant, f"g{number}", 1) for number in range(3)]
    entries = staging.read_entries(files(*given), table, instant)
    store: Any = Interrupted(lake, lambda: lake.stage(table, instant, 1, given))
    with pytest.raises(StoreConflict):
        staging.stage(Mutations(store, lake.clock), table, instant, entries, 1, Quotas(lake.store))
    mutations = Mutations(lake.store, lake.clock)
    assert staging.stage(mutations, table, instant, entries, 1, Quotas(lake.store)).staged.files == 3


# -- staging -----------------------------------------------------------------------------------------------------------


def test_a_number_used_for_other_files_is_refused_not_lost(lake: Lake) -> None:
    table = lake.table()
    instant = lake.open(table)
    assert lake.stage(table, instant, 1, [file(instant, "a", 1)]) == 1
    assert lake.stage(table, instant, 1, [file(instant, "a", 1)]) == 1
    with pytest.raises(InvalidFile, match=r"request 1 .* received before with other files"):
        lake.stage(table, instant, 1, [file(instant, "b", 1)])


def many(instant: int, prefix: str = "g") -> list[Any]:
    """More files than a version's own record takes."""
    chance = random.Random(1)
    return [file(instant, f"{prefix}{number}-{chance.getrandbits(800):x}", 1) for number in range(300)]


def test_a_commit_that_was_refused_after_staging_takes_no_other_files(lake: Lake) -> None:
    table = lake.table()
    half = {"k": "x" * 15_000}
    job = OpenJob(operation=t.APPEND, metadata=half, profile=t.WorkProfile())
    instant = lake.timeline.open(table.table_id, job).record.instant
    too_much = CommitDraft(instant, metadata={"l": half["k"]}, added=files(*many(instant)))
    with pytest.raises(LimitExceeded):
        lake.timeline.commit(table, too_much)
    with pytest.raises(InstantStateError, match="brought the last files"):
        lake.stage(table, instant, 1, [file(instant, "a", 2)])
    with pytest.raises(InvalidFile, match=r"a commit request .* other files"):
        lake.commit(table, instant, many(instant, "h"))
    with pytest.raises(InstantStateError, match="brought the last files"):
        lake.commit(table, instant, [file(instant, "a", 2)])
    assert lake.commit(table, instant, many(instant)).version == 1
    assert len(lake.paths(table)) == 300


def test_a_commit_that_lost_gives_up_its_instant_at_once(lake: Lake) -> None:
    """Its early claim must not block later writers."""
    table = lake.table()
    late = lake.open(table, P, profile(1))
    lake.put(table, [1])
    with pytest.raises(CommitConflict):
        lake.commit(table, late, many(late))
    record, living = lake.timeline.instant(table.table_id, late)
    assert (record.state, living) == (t.ROLLED_BACK, None)
    assert "refused" in record.rolled_back_reason
    lake.open(table, P, profile(1))
    assert verify(lake.store) == []


def test_a_large_commit_asked_for_twice(lake: Lake) -> None:
    table = lake.table()
    instant = lake.open(table)
    first = lake.commit(table, instant, many(instant))
    assert lake.commit(table, instant, many(instant)) == first
    assert len(lake.paths(table)) == 300


def test_a_retry_whose_blocks_are_there_but_not_counted(lake: Lake) -> None:
    """What a request has left that was cut off by the end of the service."""
    table = lake.table()
    instant = lake.open(table)
    entries = staging.read_entries(files(*many(instant)), table, instant)
    seen = lake.timeline.instant(table.table_id, instant)[0]
    places = staging._places(table.table_id, seen, entries)
    lake.store.transact(lambda tx: staging._put_blocks(tx, table.table_id, seen, places))
    assert lake.stage(table, instant, 1, many(instant)) == 300
    lake.commit(table, instant)
    assert len(lake.paths(table)) == 300
    assert verify(lake.store) == []


# -- limits ------------------------------------------------------------------------------------------------------------


def test_open_instants_are_bounded_started_or_not(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "OPEN_INSTANTS_MAX", 3)
    table = lake.table()
    lake.open(table)
    instant = lake.open(table, start=False)
    lake.open(table, start=False)
    for start in (True, False):
        with pytest.raises(LimitExceeded, match="3 open instants"):
            lake.open(table, start=start)
    lake.timeline.start(table.table_id, instant, profile())
    lake.timeline.rollback(table, instant, "")
    lake.open(table)


def test_a_writer_far_behind_is_checked_against_every_version(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "PAGE_VERSIONS", 3)
    table = lake.table()
    late, later = lake.open(table, P), lake.open(table, P)
    free = lake.open(table, P)
    for month in range(1, 11):
        lake.put(table, [month])
    timeline = Timeline(lake.store, lake.snapshots, lake.clock)  # another process: nothing is remembered

    def commit(instant: int, month: int) -> Committed:
        return timeline.commit(table, CommitDraft(instant, files(file(instant, "g", month))))

    with pytest.raises(CommitConflict, match=r"version 1 .*m=1"):
        commit(late, 1)
    with pytest.raises(CommitConflict, match=r"version 10 .*m=10"):
        commit(later, 10)
    assert commit(free, 77).rebased_over == 10


# -- readers -----------------------------------------------------------------------------------------------------------


def test_a_table_that_is_dropped_while_it_is_read_is_gone_not_corrupt(lake: Lake) -> None:
    table = lake.table()
    instant = lake.open(table)
    lake.commit(table, instant, many(instant))
    lake.catalog.dropped.drop("", "default", "t", now=True)
    with pytest.raises(TableNotFound):
        Snapshots(lake.store).load(table, OF_MAIN, 1)


def test_lists_of_versions_behind_the_end_are_empty(lake: Lake) -> None:
    table = lake.table()
    lake.put(table, [1])
    assert lake.timeline.versions(table.table_id, "", after=1) == ([], False)
    assert lake.timeline.versions(table.table_id, "", after=9) == ([], False)
    assert lake.timeline.versions(table.table_id, "", after=9, before=3) == ([], False)
    found, more = lake.timeline.versions(table.table_id, "", before=99)
    assert ([record.version for record in found], more) == ([1], False)


@pytest.mark.parametrize("newest_first", [False, True])
def test_instants_in_pages(lake: Lake, monkeypatch: pytest.MonkeyPatch, newest_first: bool) -> None:
    monkeypatch.setattr(pages, "PAGE_MAX", 2)
    table = lake.table()
    instants = [lake.open(table) for _ in range(7)]
    lake.timeline.rollback(table, instants[3], "")
    order = instants[::-1] if newest_first else instants

    def listed(**bounds: Any) -> tuple[list[int], bool]:
        found, last = lake.timeline.instants(table.table_id, newest_first=newest_first, **bounds)
        return [record.instant for record in found], bool(last)

    assert listed() == (order, False)
    assert listed(limit=3) == (order[:3], True)
    assert listed(limit=7) == (order, False)
    assert listed(states=frozenset({t.ROLLED_BACK})) == ([instants[3]], False)
    assert listed(states=frozenset({t.INFLIGHT}), limit=5) == ([one for one in order if one != instants[3]][:5], True)
    assert listed(after=instants[1], before=instants[5])[0] == [one for one in order if one in instants[2:5]]
    assert listed(after=instants[5], before=instants[1]) == ([], False)
    assert listed(states=frozenset({t.INFLIGHT}), after=instants[2], before=instants[5])[0] == [instants[4]]
    monkeypatch.setattr(pages, "LOOKED_AT_MAX", 2)
    assert listed(states=frozenset({t.INFLIGHT, t.REQUESTED}), limit=9)[0] == [
        one for one in order if one != instants[3]
    ]
    found, last = lake.timeline.instants(table.table_id, states=frozenset({t.ROLLED_BACK}), newest_first=newest_first)
    assert (found, last) == ([], order[1]), "no page looks at more; the next goes on from there"
    bound = {"before": last} if newest_first else {"after": last}
    assert listed(states=frozenset({t.ROLLED_BACK}), **bound) == ([instants[3]], True)


def test_time_travel_follows_the_commit_times(lake: Lake) -> None:
    table = lake.table()
    created = lake.clock()
    times = []
    for month in (1, 2, 3):
        lake.clock.advance(100)
        times.append(lake.put(table, [month]).committed_ms)

    def at(timestamp_ms: int) -> int:
        return lake.snapshots.version("", "default", "t", SnapshotReference(timestamp_ms=timestamp_ms))[1]

    assert [at(created), at(times[0] - 1), at(times[0]), at(times[1] - 1), at(times[2]), at(1 << 62)] == [
        0,
        0,
        1,
        1,
        3,
        3,
    ]
    with pytest.raises(VersionNotFound, match="did not exist"):
        at(created - 1)


def test_versions_of_a_clock_that_goes_back_stay_in_order(lake: Lake) -> None:
    table = lake.table()
    first = lake.put(table, [1])
    lake.clock.advance(-50_000)
    second = lake.put(table, [2])
    assert second.committed_ms == first.committed_ms
    assert second.instant > first.instant
    assert verify(lake.store) == []
