"""Figures of partitions, from the files of a snapshot."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import pytest

from lakemark_core.optimization import OptimizationPolicy, files_to_merge, policy_of
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1.types_pb2 import DELTA, DataFile
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.part import Part
from lakemark_server.optimization import measures
from lakemark_server.optimization.assessments import Assessor
from lakemark_server.optimization.kept_measures import KeptMeasures
from lakemark_server.optimization.measures import Measured, PartitionMeasure
from lakemark_server.snapshots.base_builds import Folding, Thresholds
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.timeline.lineage import OF_MAIN
from lakemark_server.timeline.publication.commits import CommitDraft
from tests.lakes import Lake, file, files, profile

TARGET = {"lakemark.write.target-file-size-bytes": "80000", "lakemark.optimize.run-bytes-max": "1048576"}
POLICY = policy_of(TARGET)
KEYED = policy_of({**TARGET, "lakemark.primary-key": "id", "lakemark.bucket.count": "4"})


def measured(lake: Lake, table: LakeTable, policy: object = POLICY) -> dict[str, PartitionMeasure]:
    snapshot = lake.snapshots.snapshot("", "default", table.record.name, SnapshotReference()).snapshot
    return {one.name: one for one in Measured(policy).forward(snapshot.parts)}  # type: ignore[arg-type]


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


def brute_force(snapshot: Snapshot, policy: OptimizationPolicy) -> dict[str, PartitionMeasure]:
    """The same figures by loops over files."""
    partitions: dict[str, list[dict[str, Any]]] = {}
    for entry in snapshot.entries().to_pylist():
        entry["instant"] = int(entry["path"].split("/")[0])
        partitions.setdefault(entry["partition"], []).append(entry)
    return {name: _by_loops(name, of_partition, policy) for name, of_partition in partitions.items()}


def _by_loops(name: str, entries: list[dict[str, Any]], policy: OptimizationPolicy) -> PartitionMeasure:
    deltas = [one for one in entries if one["kind"] == DELTA and one["base_instant"] != one["instant"]]
    changed = {one["file_group"] for one in deltas}
    folded = [one for one in entries if one["file_group"] in changed]
    figures = {
        "deltas": len(deltas),
        "delta_commits": len({one["instant"] for one in deltas}),
        "delta_bytes": sum(one["size_bytes"] for one in deltas),
        "delta_rows": sum(one["row_count"] for one in deltas),
        "fold_groups": len(changed),
        "fold_bytes": sum(one["size_bytes"] for one in folded),
        "fold_rows": sum(one["row_count"] for one in folded if one not in deltas),
    }
    if not policy.buckets:
        unchanged = sorted(one["size_bytes"] for one in entries if one["file_group"] not in changed)
        fragments = [size for size in unchanged if size < policy.fragment_bytes]
        small = [size for size in unchanged if size < policy.segment_bytes]
        figures |= {"fragments": len(fragments), "fragment_bytes": sum(fragments), "segments": len(small)}
        figures["segments"] -= len(fragments)
        for sizes, prefix in ((fragments, "merge"), (small, "large_merge")):
            taken = files_to_merge(sizes, policy.run_bytes_max)
            total = sum(sizes[:taken])
            figures |= {
                f"{prefix}able": taken,
                f"{prefix}_bytes": total,
                f"{prefix}d": -(-total // policy.target_bytes),
            }
    rows, size = (sum(one[column] for one in entries) for column in ("row_count", "size_bytes"))
    return PartitionMeasure(name, len(entries), size, rows, max(one["instant"] for one in entries), **figures)


@pytest.mark.parametrize("seed", range(4))
def test_figures_that_are_brought_forward_are_those_that_are_measured_anew(
    lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "CHUNK_FILES", 5)
    rng = random.Random(seed)
    table = lake.table(policy="file_group")
    folding = Folding(lake.store, Snapshots(lake.store), lake.clock, Thresholds(2, 10))
    policy = rng.choice([POLICY, KEYED])
    small_runs = policy_of({**TARGET, "lakemark.optimize.run-bytes-max": "2097152"})
    kept = KeptMeasures(files_min=0)
    versions = 0
    for _ in range(24):
        versions += _random_commit(lake, table, rng)
        lake.clock.advance(1_000)
        if rng.random() < 0.15:
            folding.fold(table, OF_MAIN)
        snapshots = rng.choice([lake.snapshots, Snapshots(lake.store)])  # of this process, and of one that begins
        at = versions if rng.random() < 0.9 else rng.randrange(versions + 1)
        snapshot = snapshots.load(table, OF_MAIN, at)
        wanted = small_runs if rng.random() < 0.05 else policy
        found = {one.name: one for one in kept.measure(table.table_id, snapshot.parts, wanted)}
        assert found == brute_force(snapshot, wanted)
    assert len(found) > 1


def _random_commit(lake: Lake, table: LakeTable, rng: random.Random) -> int:
    """Returns how many versions it made."""
    paths = lake.paths(table)
    what = rng.choices(["append", "delta", "replace", "partitions"], [4, 3 if paths else 0, 3 if paths else 0, 1])[0]
    operation = {"append": t.APPEND, "delta": t.UPSERT, "replace": t.CLUSTER, "partitions": t.OVERWRITE_PARTITIONS}
    months = rng.sample(range(4), rng.randrange(1, 4))
    instant = lake.open(table, operation[what], profile(*months) if what == "partitions" else None)
    given = [
        file(
            instant,
            f"g{number}",
            rng.choice(months),
            rows=rng.randrange(9),
            size=rng.choice([50, 3_000, 20_000, 90_000]),
        )
        for number in range(rng.randrange(1, 12) if what == "append" else 2)
    ]
    removed: tuple[str, ...] = ()
    if what == "delta":
        for one in given:
            _, partition, one.file_group, _ = rng.choice(paths).split("/")
            one.kind = DELTA
            one.partition[0].integer = int(partition.removeprefix("m="))
            one.path = f"{instant}/{partition}/{one.file_group}/d.parquet"
        given = list({one.path: one for one in given}.values())
    elif what == "replace":
        removed = tuple(rng.sample(paths, min(len(paths), rng.randrange(1, 8))))
    lake.timeline.commit(table, CommitDraft(instant, files(*given), removed=removed))
    return 1


def test_a_look_at_a_large_table_sums_only_the_chunks_that_have_changed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "CHUNK_FILES", 10)
    table = lake.table()
    instant = lake.open(table)
    lake.commit(table, instant, [file(instant, f"f{number}", number // 100) for number in range(1_000)])
    kept = KeptMeasures(files_min=100)
    summed: list[int] = []
    of = measures._Chunk.of
    monkeypatch.setattr(measures._Chunk, "of", lambda *given: (summed.append(1), of(*given))[1])

    def look() -> int:
        summed.clear()
        version = lake.snapshots.snapshot("", "default", "t", SnapshotReference()).snapshot
        kept.measure(table.table_id, version.parts, POLICY)
        return len(summed)

    assert look() == 100
    assert look() == 0
    lake.put(table, [3])
    assert look() == 1
    instant = lake.open(table, t.CLUSTER)
    gone = tuple(path for path in lake.paths(table) if path.endswith("/f250/a.parquet"))
    lake.timeline.commit(table, CommitDraft(instant, files(file(instant, "new", 2)), removed=gone))
    assert look() <= 3


@pytest.fixture
def large(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> tuple[LakeTable, Sequence[Part], list[int]]:
    """A table of 100 chunks, its parts, and an entry for each chunk that is summed."""
    monkeypatch.setattr(measures, "CHUNK_FILES", 10)
    table = lake.table()
    instant = lake.open(table)
    lake.commit(table, instant, [file(instant, f"f{number}", number // 100) for number in range(1_000)])
    summed: list[int] = []
    of = measures._Chunk.of
    monkeypatch.setattr(measures._Chunk, "of", lambda *given: (summed.append(1), of(*given))[1])
    return table, lake.snapshots.load(table, OF_MAIN, 1).parts, summed


def test_a_question_about_another_policy_leaves_what_is_kept(
    lake: Lake, large: tuple[LakeTable, Sequence[Part], list[int]]
) -> None:
    table, _, summed = large
    assessor = Assessor(lake.store, lake.snapshots, lake.clock)
    assessor._measures = KeptMeasures(files_min=100)
    asked = {"lakemark.write.target-file-size-bytes": "80000"}
    own = assessor.look(table.table_id).decisions
    assert len(summed) == 100
    assessor.look(table.table_id, asked)
    assert len(summed) == 200
    assert assessor.look(table.table_id).decisions == own
    assert len(summed) == 200


def test_looks_at_the_same_time_measure_a_large_table_once(
    large: tuple[LakeTable, Sequence[Part], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, parts, summed = large
    kept = KeptMeasures(files_min=100)
    forward, inside, others = Measured.forward, threading.Event(), threading.Event()

    def held(self: Measured, given: Sequence[Part]) -> Iterable[PartitionMeasure]:
        if not inside.is_set():
            inside.set()
            others.wait(0.5)  # as long as nobody else measures: no other thread comes here before this one is ready
        else:
            others.set()
        return forward(self, given)

    monkeypatch.setattr(Measured, "forward", held)
    threads = [threading.Thread(target=kept.measure, args=(table.table_id, parts, POLICY)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(summed) == 100


def test_only_so_much_is_kept_of_large_tables_and_nothing_of_small_ones(lake: Lake) -> None:
    policy = POLICY
    tables = [lake.table(f"t{number}") for number in range(4)]
    parts = []
    for table in tables:
        instant = lake.open(table)
        lake.commit(table, instant, [file(instant, f"f{number}", number) for number in range(50)])
        parts.append(lake.snapshots.load(table, OF_MAIN, 1).parts)
    size = Measured(policy)
    size.forward(parts[0])
    kept = KeptMeasures(2 * size.memory_bytes + 10_000, files_min=50)
    for table, of_table in zip(tables, parts, strict=True):
        kept.measure(table.table_id, of_table, policy)
    assert set(kept._tables) == {tables[2].table_id, tables[3].table_id}
    assert kept._bytes <= kept._bytes_max
    none = KeptMeasures(files_min=51)
    none.measure(tables[0].table_id, parts[0], policy)
    assert not none._tables
