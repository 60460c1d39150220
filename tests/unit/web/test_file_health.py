"""Sizes, small files and the score, against what is counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark_core.optimization import policy_of
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1.types_pb2 import BASE, DELTA, SliceKind
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.optimization.measures import Measured
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_web import file_health
from lakemark_web.file_health import (
    AVOIDABLE_MIN,
    CLASSES,
    NOTHING,
    FileGoal,
    FileTotals,
    goal_of,
    partition_files,
    summarize,
)
from lakemark_web.file_lists import files_of
from tests.lakes import Lake, file, open_lake

TARGET = 1_000_000
GOAL = FileGoal(TARGET)
BIG, SMALL = 900_000, 10_000


def loaded(lake: Lake) -> Snapshot:
    return lake.snapshots.snapshot("", "default", "t", SnapshotReference()).snapshot


def put(lake: Lake, month: int, sizes: list[int]) -> None:
    table = lake.catalog.get_lake_table("", "default", "t")
    instant = lake.open(table)
    lake.commit(table, instant, [file(instant, f"f{at}", month, size=size) for at, size in enumerate(sizes)])


def commit_group(lake: Lake, operation: t.Operation.ValueType, *kinds: SliceKind.ValueType) -> None:
    """Files of the group "g" in month 3. Deltas of a compaction keep deletes, which readers do not merge."""
    table = lake.catalog.get_lake_table("", "default", "t")
    instant = lake.open(table, operation)
    made = [file(instant, f"g{at}", 3, size=BIG) for at in range(len(kinds))]
    for one, kind in zip(made, kinds, strict=True):
        one.file_group, one.kind = "g", kind
        if kind == DELTA and operation == t.COMPACT:
            one.base_instant = instant
    lake.commit(table, instant, made)


def test_files_are_counted_by_partition(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        assert summarize(loaded(lake), GOAL).totals == NOTHING
        put(lake, 1, [BIG, SMALL, SMALL])
        put(lake, 2, [2_000_000, 70_000_000])
        put(lake, 1, [SMALL])
        instant = lake.open(table, t.OVERWRITE_PARTITIONS)
        lake.commit(table, instant, [file(instant, "new", 2, size=BIG)])
        summary = summarize(loaded(lake), GOAL)
        one, two = summary.partitions("name", 0, 10)
        assert (one.name, one.files, one.rows, one.size_bytes, one.small, one.avoidable) == (
            "m=1", 4, 20, BIG + 3 * SMALL, 3, 2,
        )  # fmt: skip
        assert (two.name, two.files, two.small, two.avoidable) == ("m=2", 1, 0, 0)
        assert one.histogram == (4, 0, 0, 0, 0, 0)
        assert summary.totals.files == 5
        assert summary.totals.histogram == (5, 0, 0, 0, 0, 0)
        assert [one.name for one in summary.partitions("avoidable", 0, 1)] == ["m=1"]
        assert [one.name for one in summary.partitions("name", 1, 5)] == ["m=2"]
        assert (summary.listed, summary.left_out) == (2, 0)
        assert partition_files(loaded(lake), GOAL, "m=1") == one
        assert partition_files(loaded(lake), GOAL, "m=2") == two
        assert partition_files(loaded(lake), GOAL, "m=3") is None


def test_of_too_many_partitions_those_with_most_to_gain_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_health, "LISTED_BYTES_MAX", 3 * 210)
    with open_lake(tmp_path) as lake:
        lake.table()
        for month in range(1, 7):
            put(lake, month, [SMALL] * month)
        summary = summarize(loaded(lake), GOAL)
        assert [one.name for one in summary.partitions("name", 0, 10)] == ["m=4", "m=5", "m=6"]
        assert (summary.listed, summary.left_out, summary.memory_bytes < 2_000) == (3, 3, True)
        assert (summary.totals.partitions, summary.totals.files) == (6, 21)
        rest = partition_files(loaded(lake), GOAL, "m=1")
        assert rest
        assert rest.files == 1


def test_small_files_and_deltas_are_what_the_optimizer_counts(tmp_path: Path) -> None:
    """But for a base under a delta, which is left to the engine that wrote both."""
    properties = {"lakemark.write.target-file-size-bytes": str(TARGET)}
    edge = TARGET // 8
    with open_lake(tmp_path) as lake:
        lake.table(policy="file_group")
        put(lake, 1, [edge - 1, edge, edge + 1, 1, 2, 3, BIG])
        put(lake, 2, [TARGET, 4, 4])
        commit_group(lake, t.APPEND, BASE)
        commit_group(lake, t.UPSERT, DELTA)
        commit_group(lake, t.COMPACT, BASE, DELTA)
        commit_group(lake, t.UPSERT, DELTA)
        summary = summarize(loaded(lake), goal_of(properties))
        shown = {one.name: (one.files, one.small, one.deltas) for one in summary.partitions("name", 0, 9)}
        counted = list(Measured(policy_of(properties)).forward(loaded(lake).parts))
        assert {name: one for name, one in shown.items() if name != "m=3"} == {
            one.name: (one.files, one.fragments, one.deltas) for one in counted if one.name != "m=3"
        }
        assert shown["m=1"] == (7, 4, 0)
        assert [(one.files, one.deltas) for one in counted if one.name == "m=3"] == [(5, 2)]
        assert shown["m=3"][::2] == (5, 2)


def test_in_buckets_no_file_is_small() -> None:
    keyed = {"lakemark.primary-key": "id", "lakemark.bucket.count": "4"}
    assert goal_of(keyed) == FileGoal(goal_of({}).target_bytes, in_buckets=True)
    assert goal_of({"lakemark.bucket.count": "none", "lakemark.write.target-file-size-bytes": "x"}) == goal_of({})


def test_small_files_in_buckets_do_not_count(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        lake.table()
        put(lake, 1, [SMALL] * 40)
        totals = summarize(loaded(lake), FileGoal(TARGET, in_buckets=True)).totals
        assert (totals.files, totals.small, totals.avoidable, totals.score) == (40, 0, 0, 100)


def test_files_are_listed_a_page_at_a_time(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        lake.table()
        for _ in range(3):
            put(lake, 1, [1, 2, 3])
            put(lake, 2, [4])
        whole = files_of(loaded(lake), "m=1", 0, 100)
        assert [one.size_bytes for one in whole] == [1, 2, 3] * 3
        paged = [one for first in range(0, 12, 2) for one in files_of(loaded(lake), "m=1", first, 2)]
        assert paged == whole
        assert files_of(loaded(lake), "m=3", 0, 10) == []


@pytest.mark.parametrize(
    ("files", "avoidable", "deltas", "score"),
    [
        (0, 0, 0, 100),
        (100, AVOIDABLE_MIN - 1, 0, 100),
        (100, 90, 0, 10),
        (100, 0, 25, 75),
        (100, 80, 40, 0),
        (1_000_000, AVOIDABLE_MIN, 0, 100),
    ],
)
def test_the_score_is_the_share_of_files_that_would_be_left(
    files: int, avoidable: int, deltas: int, score: int
) -> None:
    totals = FileTotals(files, 0, 0, deltas, avoidable, avoidable, 1, (0,) * len(CLASSES))
    assert totals.score == score
    assert bool(totals.reasons) == (avoidable >= AVOIDABLE_MIN or deltas > 0)
