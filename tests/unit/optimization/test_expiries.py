"""Partitions that are too old, on a real timeline: what goes, what stays and why, and that nothing goes by surprise."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import pytest

from lakemark_core.errors import InvalidArgument, LimitExceeded
from lakemark_core.types import BIGINT, STRING, Field, Schema, assign_ids
from lakemark_proto.store.v1.optimization_pb2 import OptimizationRecord
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1.catalog_pb2 import BRANCH
from lakemark_proto.v1.types_pb2 import DataFile, Value
from lakemark_server.catalog.lake import POLICIES, POLICY_PROPERTY, LakeTable
from lakemark_server.context.clock import TIME_MS_MAX
from lakemark_server.events.consumers import Start
from lakemark_server.optimization import records
from lakemark_server.optimization.assessments import Assessment, Assessor
from lakemark_server.optimization.expiries import NOTICE_MS
from lakemark_server.optimization.generator import AGAIN_MS, CONSUMER
from lakemark_server.optimization.service import Optimization
from lakemark_server.store.mutations import Mutations
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.timeline.references import MergeDraft, ReferenceDraft
from lakemark_server.verify import verify
from tests.lakes import Lake, files
from tests.optimization_world import planner_thread

DAY_MS = 86_400_000
MS, COLUMN = "lakemark.partition-ttl.ms", "lakemark.partition-ttl.column"
SCHEMA = assign_ids(Schema.build([Field(0, "id", BIGINT), Field(0, "d", STRING)], ["d"], 1))[0]


class Days:
    """A table with a partition a day, a planner, and a clock that stands at noon."""

    def __init__(self, lake: Lake, policy: str = "partition") -> None:
        self.lake = lake
        self.lake.clock.ms = int(dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC).timestamp() * 1_000)
        record = LakeTableRecord(database="default", name="t", properties={POLICY_PROPERTY: policy})
        self.table: LakeTable = lake.catalog.create_lake_table(record, SCHEMA)
        self.planner = planner_thread(lake.store, lake)
        self.optimization = Optimization(lake.store, lake.snapshots, lake.clock)

    def put(self, *days: str) -> None:
        instant = self.lake.open(self.table)
        given = [
            DataFile(path=f"{instant}/d={day}/g/a.parquet", size_bytes=10, row_count=2, partition=[Value(text=day)])
            for day in days
        ]
        self.lake.timeline.commit(self.table, CommitDraft(instant, files(*given)))

    def set(self, **properties: str) -> None:
        given = {{"ms": MS, "column": COLUMN}[name]: value for name, value in properties.items()}
        self.lake.catalog.set_properties("hive", "default", "t", given)

    def partitions(self) -> list[str]:
        return [one.partition for one in self.told()]

    def told(self, **properties: str) -> list[pb.PartitionOptimization]:
        given = {{"ms": MS, "column": COLUMN}[name]: value for name, value in properties.items()}
        return list(self.optimization.explain(self.table, properties=given, by_expiry=True).partition_states)

    def rounds(self, ms: int) -> None:
        """Lets time pass, a few minutes at a time."""
        for _ in range(ms // 300_000):
            self.lake.clock.advance(300_000)
            self.planner.once()


@pytest.fixture
def days(lake: Lake) -> Days:
    return Days(lake)


def test_nothing_goes_unless_the_table_says_so(days: Days) -> None:
    days.put("2020-01-01", "2026-11-20")
    days.rounds(2 * DAY_MS)
    assert sorted(days.partitions()) == ["d=2020-01-01", "d=2026-11-20"]
    assert [one.expiry for one in days.told()] == ["", ""]


def test_partitions_go_by_the_day_that_they_name_and_the_history_tells_it(days: Days) -> None:
    days.put("2026-11-18", "2026-11-19", "2026-11-20", "JFK")
    days.set(ms=str(DAY_MS), column="d")
    days.planner.once()
    assert len(days.partitions()) == 4, "not yet: it may be a slip"
    first, second, third, never = days.told()
    assert first.partition == "d=2026-11-18"
    assert first.expires_ms == days.lake.clock.ms + NOTICE_MS
    assert "since this is so since 2026-11-20T12:00:00" in first.expiry
    assert (second.expiry, third.partition) == (
        "d = '2026-11-19' ended at 2026-11-20T00:00:00.000Z, and lakemark.partition-ttl.ms is 86400000",
        "d=2026-11-20",
    )
    assert never.expires_ms == 0
    assert never.expiry == "never: d = 'JFK' names no time since 1901, such as 2026-11-23 or 2026112305"
    days.rounds(NOTICE_MS + 300_000)
    assert days.partitions() == ["d=2026-11-19", "d=2026-11-20", "d=JFK"]
    (run,) = days.optimization.runs(days.table, None, 10).runs
    assert (run.kind, run.state, run.partition) == (pb.EXPIRE, pb.TASK_DONE, "d=2026-11-18")
    assert (run.files_before, run.rows_before, run.files_after) == (1, 2, 0)
    assert run.reason.startswith("too old: d=2026-11-18; the first one: d = '2026-11-18' ended at 2026-11-19")
    (record, _) = days.lake.timeline.instant(days.table.table_id, run.instant)
    assert (record.operation, record.owner) == (t.OVERWRITE_PARTITIONS, "optimizer")
    days.rounds(DAY_MS // 2 + 600_000)
    assert days.partitions() == ["d=2026-11-20", "d=JFK"], "each at its time, without any commit in between"
    assert list(verify(days.lake.store)) == []


def test_partitions_go_by_their_last_change(days: Days) -> None:
    days.put("a", "b")
    days.set(ms=str(DAY_MS))
    days.rounds(DAY_MS // 2)
    days.put("b")
    days.rounds(DAY_MS // 2 + 600_000)
    assert days.partitions() == ["d=b"]


def test_what_would_go_is_told_before_the_table_says_so(days: Days) -> None:
    days.put("2026-11-18", "2026-11-20")
    told = days.told(ms=str(DAY_MS), column="d")
    assert [one.partition for one in told] == ["d=2026-11-18", "d=2026-11-20"]
    assert told[0].expires_ms == days.lake.clock.ms + NOTICE_MS
    days.rounds(DAY_MS)
    assert len(days.partitions()) == 2
    with pytest.raises(InvalidArgument, match="none of the partition columns"):
        days.told(ms=str(DAY_MS), column="id")


def test_a_slip_can_be_taken_back_and_another_time_begins_anew(days: Days) -> None:
    days.put("2026-11-18")
    days.set(ms=str(DAY_MS), column="d")
    days.rounds(NOTICE_MS - 300_000)
    days.set(ms=str(DAY_MS + 1), column="d")
    days.rounds(NOTICE_MS - 300_000)
    assert len(days.partitions()) == 1
    days.lake.catalog.set_properties("hive", "default", "t", {}, [MS, COLUMN])
    days.rounds(DAY_MS)
    assert len(days.partitions()) == 1


def test_what_is_held_or_paused_stays_for_so_long(days: Days) -> None:
    days.put("2026-11-17", "2026-11-18")
    days.optimization.hold(days.table, "d=2026-11-18", DAY_MS, "audit")
    days.set(ms=str(DAY_MS), column="d")
    days.rounds(DAY_MS // 2)
    assert days.partitions() == ["d=2026-11-18"]
    assert "held until" in days.told()[0].expiry
    days.optimization.release(days.table, "d=2026-11-18")
    days.optimization.pause(days.table, "")
    days.rounds(NOTICE_MS)
    assert days.told()[0].expiry.endswith("but the table is paused")
    days.optimization.resume(days.table)
    days.rounds(NOTICE_MS)
    assert days.partitions() == []


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_who_writes_into_an_old_partition_is_not_overtaken(lake: Lake, policy: str) -> None:
    days = Days(lake, policy)
    days.put("2026-11-18")
    days.set(ms=str(DAY_MS), column="d")
    days.planner.once()
    generator = days.planner._current[2]  # type: ignore[index]
    days.lake.clock.advance(NOTICE_MS)
    days.planner._hold()
    look = generator.look(days.table.table_id)
    assert [one.due for one in look.expiries] == [True]
    days.put("2026-11-18")
    assert generator.expire(look) == 0, "it has seen one file, and there are two"
    assert len(days.partitions()) == 1
    assert days.lake.store.read(lambda tx: records.table(tx, days.table.table_id)).due_ms > days.lake.clock.ms


@pytest.mark.parametrize("taken_back", ["property", "pause", "hold", "hold of all"])
def test_what_a_user_says_between_look_and_commit_counts(days: Days, taken_back: str) -> None:
    days.put("2026-11-18")
    days.set(ms=str(DAY_MS), column="d")
    days.planner.once()
    generator = days.planner._current[2]  # type: ignore[index]
    days.lake.clock.advance(NOTICE_MS)
    days.planner._hold()
    look = generator.look(days.table.table_id)
    match taken_back:
        case "property":
            days.set(ms=str(10 * DAY_MS), column="d")
        case "pause":
            days.optimization.pause(days.table, "")
        case _:
            days.optimization.hold(days.table, "" if taken_back == "hold of all" else "d=2026-11-18", 60_000, "")
    assert generator.expire(look) == 0
    assert len(days.partitions()) == 1


def test_many_partitions_go_in_several_commits(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemark_server.optimization.generator.EXPIRED_A_LOOK", 2)
    days.put(*(f"2026-10-{day:02}" for day in range(1, 6)))
    days.set(ms=str(DAY_MS), column="d")
    days.rounds(NOTICE_MS + 1_200_000)
    assert days.partitions() == []
    assert [run.files_before for run in days.optimization.runs(days.table, None, 10).runs] == [1, 2, 2]


def test_a_time_to_live_beyond_all_calendars_is_never(days: Days) -> None:
    days.put("2026-11-18")
    days.set(ms=str(2**63 - 1), column="d")
    days.planner.once()
    assert days.told()[0].expires_ms == TIME_MS_MAX
    days.rounds(NOTICE_MS + 300_000)
    assert days.partitions() == ["d=2026-11-18"]


def test_one_table_with_an_error_that_nobody_has_foreseen_does_not_stop_the_others(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    days.put("2026-11-18")
    record = LakeTableRecord(database="default", name="u")
    other = days.lake.catalog.create_lake_table(record, SCHEMA)
    days.planner.once()
    look = Assessor.look

    def fails(self: Assessor, table_id: int, properties: Mapping[str, str] | None = None) -> Assessment:
        if table_id == days.table.table_id:
            raise ValueError("out of range")
        return look(self, table_id, properties)

    monkeypatch.setattr(Assessor, "look", fails)
    days.put("2026-11-19")
    days.optimization.pause(other, "")
    days.lake.clock.advance(300_000)
    days.planner.once()

    def seen(table_id: int) -> OptimizationRecord:
        return days.lake.store.read(lambda tx: records.table(tx, table_id))

    assert seen(days.table.table_id).due_ms == days.lake.clock.ms + AGAIN_MS
    assert seen(other.table_id).seen.looked_ms == days.lake.clock.ms


def test_the_planner_goes_on_after_a_round_with_an_error_that_nobody_has_foreseen(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = []

    def once() -> int:
        rounds.append(1)
        if len(rounds) == 1:
            raise ValueError("out of range")
        days.planner.ask_to_stop()
        return 0

    monkeypatch.setattr(days.planner, "once", once)
    monkeypatch.setattr(days.planner, "_interval_s", 0.0)
    days.planner._rounds()
    assert len(rounds) == 2


def test_a_partition_is_held_however_it_is_spelled(days: Days) -> None:
    days.put("2026-11-17", "2026-11-18")
    for spelled in ("D=2026-11-18", "d=2026%2D11-17"):
        days.optimization.hold(days.table, spelled, DAY_MS, "audit")
    days.set(ms=str(DAY_MS), column="d")
    days.rounds(NOTICE_MS + 600_000)
    assert sorted(days.partitions()) == ["d=2026-11-17", "d=2026-11-18"]
    told = days.optimization.explain(days.table, "D=2026-11-18")
    assert [one.partition for one in told.partition_states] == ["d=2026-11-18"]
    assert days.optimization.release(days.table, "d=2026-11%2D18")
    asked = days.optimization.request(days.table, "D=2026-11-17", pb.MINOR)
    assert [one.partition for one in asked.holds] == ["d=2026-11-17"]
    record = days.lake.store.read(lambda tx: records.table(tx, days.table.table_id))
    assert [one.partition for one in record.asked] == ["d=2026-11-17"]


def test_a_hold_that_an_earlier_release_stored_as_it_was_spelled_is_released(days: Days) -> None:
    hold = pb.OptimizationHold(partition="D=2026-11-18", until_ms=days.lake.clock.ms + DAY_MS)
    Mutations(days.lake.store, days.lake.clock).run(
        lambda mutation: records.put_hold(mutation.tx, days.table.table_id, hold)
    )
    assert days.optimization.release(days.table, "D=2026-11-18")
    assert days.lake.store.read(lambda tx: records.holds(tx, days.table.table_id)) == []


@pytest.mark.parametrize("column", ["d", None])
def test_what_a_restore_brings_back_stays_for_a_notice_or_another_time_to_live(days: Days, column: str | None) -> None:
    days.put("2026-11-18")
    days.set(**{"ms": str(DAY_MS), **({"column": column} if column else {})})
    days.rounds(DAY_MS + NOTICE_MS)
    assert days.partitions() == []
    days.lake.timeline.restore(days.table, 1)
    stays_ms = NOTICE_MS if column else DAY_MS
    days.rounds(stays_ms)
    assert days.partitions() == ["d=2026-11-18"]
    assert "older files were brought back at" in days.told()[0].expiry
    days.rounds(600_000)
    assert days.partitions() == []


def test_a_restore_that_is_seen_by_the_look_only_counts(days: Days) -> None:
    days.put("2026-11-18")
    days.set(ms=str(DAY_MS), column="d")
    days.rounds(NOTICE_MS + 300_000)
    generator = days.planner._current[2]  # type: ignore[index]
    days.planner._hold()
    days.lake.timeline.restore(days.table, 1)
    look = generator.look(days.table.table_id)
    assert [one.due for one in look.expiries] == [True]
    assert generator.expire(look) == 0
    assert days.partitions() == ["d=2026-11-18"]


def test_what_came_unseen_stays_for_a_notice(days: Days) -> None:
    days.put("2026-11-18")
    days.set(ms=str(DAY_MS), column="d")
    days.rounds(NOTICE_MS + 300_000)
    assert days.partitions() == []
    days.lake.timeline.restore(days.table, 1)
    generator = days.planner._current[2]  # type: ignore[index]
    generator._consumers.seek("hive", CONSUMER, Start(end=True))  # the restore is told of to nobody
    generator._look_everywhere()
    days.rounds(300_000)
    assert days.partitions() == ["d=2026-11-18"]
    days.rounds(NOTICE_MS)
    assert days.partitions() == []


def test_what_a_merge_brings_in_has_its_whole_time_to_live(days: Days) -> None:
    days.put("a")
    days.set(ms=str(DAY_MS))
    days.rounds(300_000)
    days.lake.timeline.references.create(days.table, ReferenceDraft("dev", BRANCH))
    profile = t.WorkProfile(partitions=[t.WorkProfile.Partition(values=[Value(text="b")])])
    job = OpenJob(operation=t.APPEND, branch="dev", profile=profile)
    instant = days.lake.timeline.open(days.table.table_id, job).record.instant
    given = DataFile(path=f"{instant}/d=b/g/a.parquet", size_bytes=10, row_count=2, partition=[Value(text="b")])
    days.lake.timeline.commit(days.table, CommitDraft(instant, files(given)))
    days.rounds(DAY_MS + NOTICE_MS)
    assert days.partitions() == []
    days.lake.timeline.references.merge(days.table, MergeDraft("dev"))
    days.rounds(DAY_MS)
    assert days.partitions() == ["d=b"]
    days.rounds(600_000)
    assert days.partitions() == []


def test_partitions_with_long_names_go_in_several_commits(days: Days) -> None:
    days.put(*(f"{number:03}" + "x" * 180 for number in range(300)))
    days.set(ms=str(DAY_MS))
    days.rounds(DAY_MS + 900_000)
    assert days.partitions() == []
    runs = days.optimization.runs(days.table, None, 10).runs
    assert [run.files_before for run in runs] == [300 - 40_000 // 185, 40_000 // 185]


def test_buckets_are_split_even_if_old_partitions_cannot_go(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    days.put("2026-11-18")
    days.planner.once()
    generator = days.planner._current[2]  # type: ignore[index]
    looked: list[Assessment] = []

    def expire(look: Assessment) -> int:
        raise LimitExceeded("too many")

    def split(look: Assessment) -> int:
        looked.append(look)
        return 0

    monkeypatch.setattr(generator, "expire", expire)
    monkeypatch.setattr(generator, "split", split)
    days.put("2026-11-19")
    days.lake.clock.advance(300_000)
    days.planner.once()
    assert [look.table.table_id for look in looked] == [days.table.table_id]
