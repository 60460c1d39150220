"""Figures of partitions, from the files of a snapshot."""

from __future__ import annotations

from dataclasses import asdict

from lakemark_core.optimization import policy_of
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1.types_pb2 import DELTA, DataFile
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.optimization.measures import PartitionMeasure, measure
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_server.timeline.publication.commits import CommitDraft
from tests.lakes import Lake, file, files

TARGET = {"lakemark.write.target-file-size-bytes": "80000", "lakemark.optimize.run-bytes-max": "1048576"}
POLICY = policy_of(TARGET)
KEYED = policy_of({**TARGET, "lakemark.primary-key": "id", "lakemark.bucket.count": "4"})


def measured(lake: Lake, table: LakeTable, policy: object = POLICY) -> dict[str, PartitionMeasure]:
    snapshot = lake.snapshots.snapshot("", "default", table.record.name, SnapshotReference()).snapshot
    return {one.name: one for one in measure(snapshot.parts, policy)}  # type: ignore[arg-type]


def test_small_files_count_by_their_size(lake: Lake) -> None:
    table = lake.table()
    instant = lake.open(table)
    sizes = [100, 100, 100, 9_999, 10_000, 39_999, 40_000, 90_000]
    lake.commit(table, instant, [file(instant, f"f{at}", 1, size=size) for at, size in enumerate(sizes)])
    found = measured(lake, table)["m=1"]
    assert (found.files, found.bytes, found.rows) == (8, sum(sizes), 40)
    assert (found.fragments, found.fragment_bytes, found.segments) == (4, 10_299, 2)
    assert (found.mergeable, found.merge_bytes, found.merged) == (3, 300, 1), "9,999 waits for as much again"
    assert found.large_mergeable == 5, "39,999 waits"
    assert found.last_change_ms == instant


def test_partitions_are_apart_and_replaced_files_do_not_count(lake: Lake) -> None:
    table = lake.table()
    lake.put(table, [1, 2])
    lake.clock.advance(1_000)
    lake.put(table, [2])
    found = measured(lake, table)
    assert {name: one.files for name, one in found.items()} == {"m=1": 1, "m=2": 2}
    assert found["m=2"].last_change_ms > found["m=1"].last_change_ms
    instant = lake.open(table, t.CLUSTER)
    paths = [path for path in lake.paths(table) if "/m=2/" in path]
    lake.timeline.commit(table, CommitDraft(instant, files(file(instant, "new", 2, size=20)), removed=tuple(paths)))
    assert measured(lake, table)["m=2"].files == 1
    assert measured(lake, lake.table("empty")) == {}


def test_deltas_count_with_the_groups_that_they_change(lake: Lake) -> None:
    table = lake.table(policy="file_group")

    def delta(instant: int, group: str, rows: int) -> DataFile:
        made = file(instant, group, 1, rows=rows, size=7)
        made.kind, made.file_group = DELTA, group
        return made

    instant = lake.open(table)
    bases = [file(instant, group, 1, rows=100, size=1_000) for group in ("a", "b", "c")]
    for base, group in zip(bases, "abc", strict=True):
        base.file_group = group
    lake.commit(table, instant, bases)
    for groups in ("a", "ab", "a"):
        instant = lake.open(table, t.UPSERT)
        lake.commit(table, instant, [delta(instant, group, 3) for group in groups])
    found = asdict(measured(lake, table, KEYED)["m=1"])
    wanted = {"deltas": 4, "delta_commits": 3, "delta_bytes": 28, "delta_rows": 12, "fold_groups": 2}
    assert {name: found[name] for name in wanted} == wanted
    assert (found["fold_bytes"], found["fold_rows"]) == (2_028, 200)
    assert (found["files"], found["fragments"]) == (7, 0), "with buckets no files are merged"
    assert asdict(measured(lake, table)["m=1"])["fragments"] == 1, "without, those of changed groups are left alone"


def test_deltas_of_split_buckets_count_with_the_files_under_them(lake: Lake) -> None:
    table = lake.table(policy="file_group")
    instant = lake.open(table)
    bases = [file(instant, name, 1, rows=100, size=1_000) for name in ("bucket-0-of-2", "bucket-1-of-2")]
    for base, name in zip(bases, ("bucket-0-of-2", "bucket-1-of-2"), strict=True):
        base.file_group = name
    lake.commit(table, instant, bases)
    instant = lake.open(table, t.UPSERT)
    delta = file(instant, "bucket-2-of-4", 1, rows=3, size=7)
    delta.kind, delta.file_group = DELTA, "bucket-2-of-4"
    lake.commit(table, instant, [delta])
    found = measured(lake, table, KEYED)["m=1"]
    assert (found.fold_bytes, found.fold_rows) == (1_007, 100)
