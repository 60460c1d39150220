"""Buckets that have grown are split by the planning process, and by nothing else."""

from __future__ import annotations

import pytest

from lakemark_core.types import BIGINT, INT, Field, Schema, assign_ids
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1.types_pb2 import DELTA, DataFile, Value
from lakemark_server.catalog import lake as tables
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.events.log import EventLog
from lakemark_server.optimization.service import Optimization
from lakemark_server.snapshots.base_builds import Folding, Thresholds
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline.lineage import OF_MAIN
from lakemark_server.timeline.publication.commits import CommitDraft
from tests.lakes import Lake, files
from tests.optimization_world import planner_thread

SCHEMA = assign_ids(Schema.build([Field(0, "id", BIGINT), Field(0, "m", INT)], ["m"], 1))[0]
PROPERTIES = {
    "lakemark.primary-key": "id,m",
    "lakemark.bucket.index": "extendible",
    "lakemark.bucket.count": "1",
    "lakemark.write.mode": "merge-on-read",
    "lakemark.bucket.split-size-bytes": "1000000",
    "lakemark.conflict.policy": "file_group",
}
ONE, LOW, HIGH = 1, 2, 3  # bucket-0-of-1, and its halves


class Buckets:
    """A table with one bucket in each partition, and a planner."""

    def __init__(self, lake: Lake, **properties: str) -> None:
        self.lake = lake
        given = {name.replace("__", ".").replace("_", "-"): value for name, value in properties.items()}
        record = LakeTableRecord(
            database="default", name="t", properties=PROPERTIES | {f"lakemark.{k}": v for k, v in given.items()}
        )
        self.table: LakeTable = lake.catalog.create_lake_table(record, SCHEMA)
        self.bases: dict[tuple[str, int], str] = {}
        self.planner = planner_thread(lake.store, lake)
        self.optimization = Optimization(lake.store, lake.snapshots, lake.clock)

    def put(self, bucket: int | None, name: str, size: int, month: int = 1, *, delta: bool = False) -> None:
        """A delta, or a base file in the place of the one that the bucket had."""
        instant = self.lake.open(self.table, t.UPSERT)
        made = DataFile(
            path=f"{instant}/m={month}/{name}/a.parquet",
            size_bytes=size,
            row_count=1,
            partition=[Value(integer=month)],
            bucket=bucket,
            file_group=name,
        )
        removed: tuple[str, ...] = ()
        if delta:
            made.kind = DELTA
        else:
            older = self.bases.get((name, month))
            removed = () if older is None else (older,)
            self.bases[name, month] = made.path
        self.lake.timeline.commit(self.table, CommitDraft(instant, files(made), removed=removed))

    def round(self) -> frozenset[int]:
        self.lake.clock.advance(3_000)
        self.planner.once()
        loaded = self.lake.store.read(lambda tx: tables.load(tx, self.table.table_id))
        assert loaded.kind.directory is not None
        return loaded.kind.directory.leaves


@pytest.fixture
def buckets(lake: Lake) -> Buckets:
    return Buckets(lake)


def test_a_bucket_is_split_when_its_files_are_too_large_in_a_partition(buckets: Buckets) -> None:
    buckets.put(ONE, "bucket-0-of-1", 900_000, 1)
    buckets.put(ONE, "bucket-0-of-1", 900_000, 2)
    assert buckets.round() == {ONE}, "in no partition"
    buckets.put(ONE, "bucket-0-of-1", 1_100_000, 2)
    assert buckets.optimization.explain(buckets.table).large_buckets == ["bucket-0-of-1"]
    assert buckets.round() == {LOW, HIGH}
    log = EventLog(buckets.lake.store)
    told = log.page("hive", log.begin("hive", 0, None)).events[-1]
    assert (told.commit.operation, told.by) == (t.ALTER_BUCKETS, "optimizer")


def test_a_half_is_not_split_before_its_rows_are_written_again(buckets: Buckets) -> None:
    buckets.put(ONE, "bucket-0-of-1", 5_000_000)
    assert buckets.round() == {LOW, HIGH}
    buckets.put(LOW, "bucket-0-of-2", 100, delta=True)
    assert buckets.round() == {LOW, HIGH}, "the half of 5,000,000 is only a guess"
    assert buckets.round() == {LOW, HIGH}


def test_deltas_do_not_count_and_small_buckets_stay(buckets: Buckets) -> None:
    buckets.put(ONE, "bucket-0-of-1", 100)
    buckets.put(ONE, "bucket-0-of-1", 5_000_000, delta=True)
    assert buckets.round() == {ONE}
    assert buckets.optimization.explain(buckets.table).large_buckets == []


def test_files_of_no_bucket_are_left_out(buckets: Buckets) -> None:
    """The service refuses such files, unless it does not know the table's buckets."""
    store, kept = buckets.lake.store, buckets.table.record
    fixed = LakeTableRecord()
    fixed.CopyFrom(kept)
    fixed.properties.clear()
    fixed.ClearField("bucket_directory")
    store.transact(lambda tx: tables.put(tx, fixed))
    buckets.table = store.read(lambda tx: tables.load(tx, kept.table_id))
    buckets.put(None, "all", 5_000_000)
    store.transact(lambda tx: tables.put(tx, kept))
    buckets.table = store.read(lambda tx: tables.load(tx, kept.table_id))

    Folding(store, Snapshots(store), buckets.lake.clock, Thresholds()).fold(buckets.table, OF_MAIN)
    other = Optimization(store, Snapshots(store), buckets.lake.clock)
    assert other.explain(buckets.table).large_buckets == []
    assert buckets.round() == {ONE}
    buckets.put(ONE, "bucket-0-of-1", 5_000_000)
    assert buckets.round() == {LOW, HIGH}


@pytest.mark.parametrize("why_not", ["property", "disabled", "pause", "hold"])
def test_nothing_is_split_that_may_not_be(lake: Lake, why_not: str) -> None:
    given = {"property": {"optimize__bucket_splits": "false"}, "disabled": {"optimize__enabled": "false"}}
    buckets = Buckets(lake, **given.get(why_not, {}))
    if why_not == "pause":
        buckets.optimization.pause(buckets.table, "")
    elif why_not == "hold":
        buckets.optimization.hold(buckets.table, "", 3_600_000, "")
    buckets.put(ONE, "bucket-0-of-1", 5_000_000)
    assert buckets.round() == {ONE}
