"""Bases: when they are due, what they cost the store, what readers see meanwhile, and what verify finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_core.expressions import parse_predicate
from lakemark_proto.store.v1.store_pb2 import BaseRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.base import build
from lakemark_server.file_index.parts.fold import Origin
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.maintenance.base_folder import BaseFolder
from lakemark_server.snapshots import bases
from lakemark_server.snapshots.base_builds import BUILD_MS_MAX, Folding, Since, Thresholds, is_due
from lakemark_server.snapshots.bases import BuildLost
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.snapshots.versions import history
from lakemark_server.store.keyspace import BASE_BUILDS, BASE_INDEXES, BASE_PAGES, BASES, MAIN
from lakemark_server.timeline.lineage import OF_MAIN
from lakemark_server.verify.bases import check_bases
from tests.unit.snapshots.world import TABLE, World, found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World.open(tmp_path)
    yield opened
    opened.store.close()


def record_of(world: World, key: str = MAIN) -> BaseRecord | None:
    return world.store.read(lambda tx: bases.read_record(tx, TABLE, key))


def fold(world: World) -> int:
    world.fold(MAIN)
    record = record_of(world)
    assert record is not None
    return record.base_id


def pages(world: World) -> int:
    return len(world.store.read(lambda tx: tx.get_range(*BASE_PAGES.range(TABLE))))


@pytest.mark.parametrize(
    ("versions", "files", "base_files", "due"),
    [
        (0, 0, 0, False),
        (9, 99, 0, False),
        (10, 0, 0, True),
        (10, 0, 10_000_000, True),
        (1, 100, 0, True),
        (1, 100, 1_600, True),
        (1, 100, 1_616, False),
        (1, 101, 1_616, True),
    ],
)
def test_when_a_base_is_due(versions: int, files: int, base_files: int, due: bool) -> None:
    assert is_due(Since(versions, files), base_files, Thresholds(10, 100)) is due


def test_entries_are_written_anew_only_a_few_times(world: World) -> None:
    """Runs double: all folds together write O(n log n) pages, and O(n) remain."""
    written = 0
    for number in range(1, 129):
        world.commit(MAIN, t.APPEND, [number % 3] * 4)
        base_id = fold(world)
        written += len(world.store.read(lambda tx, base_id=base_id: tx.get_range(*BASE_PAGES.range(TABLE, base_id))))  # type: ignore[misc]
        bases.sweep_old(world.store, TABLE, world.clock + 1)
    assert written <= 2 * 128
    assert pages(world) <= 9
    world.check(Snapshots(world.store), OF_MAIN, 128)


def test_a_reader_that_finds_its_pages_gone_begins_again(world: World) -> None:
    for _ in range(3):
        world.commit(MAIN, t.APPEND, [0, 1, 2])
    fold(world)
    snapshots = Snapshots(world.store, 0)
    old = snapshots.load(world.table, OF_MAIN, 3)
    world.commit(MAIN, t.OVERWRITE_TABLE, [0, 1])
    fold(world)
    found(old)  # the pages are still there
    bases.sweep_old(world.store, TABLE, world.clock + 1)
    snapshots = Snapshots(world.store)
    kept = snapshots.load(world.table, OF_MAIN, 3)
    assert snapshots.again(lambda: found(kept)) == world.content(OF_MAIN, 3)


def test_a_token_of_a_base_that_is_gone_is_refused(world: World) -> None:
    world.commit(MAIN, t.APPEND, [0, 1])
    first = fold(world)
    order = [part.column("path").to_pylist() for part in Snapshots(world.store).load(world.table, OF_MAIN, 1).parts]
    world.commit(MAIN, t.APPEND, [0, 1])
    fold(world)
    pinned = Snapshots(world.store).load(world.table, OF_MAIN, 1, Origin(first, 1))
    assert [part.column("path").to_pylist() for part in pinned.parts] == order
    bases.sweep_old(world.store, TABLE, world.clock + 1)
    with pytest.raises(InvalidArgument, match="too old"):
        Snapshots(world.store).load(world.table, OF_MAIN, 1, Origin(first, 1))


def test_of_two_builders_one_wins(world: World) -> None:
    world.commit(MAIN, t.APPEND, [0, 1])
    standing = fold(world)
    world.commit(MAIN, t.APPEND, [2])
    slow = bases.begin(world.store, TABLE, world.clock)
    fold(world)
    index = world.store.read(lambda tx: bases.read_index(tx, TABLE, standing))
    assert index is not None
    with pytest.raises(BuildLost):
        bases.publish(world.store, TABLE, MAIN, BaseRecord(version=2, base_id=slow), index, standing)
    assert check_bases(world.store, TABLE, "t") == []
    bases.sweep_build(world.store, TABLE, slow)
    assert world.store.read(lambda tx: bases.read_index(tx, TABLE, slow)) is None


def test_a_build_that_died_is_swept_and_cannot_be_published(world: World) -> None:
    world.commit(MAIN, t.APPEND, [0, 1])
    dead = bases.begin(world.store, TABLE, world.clock)
    bases.write_pages(world.store, TABLE, dead, 0, [b"x" * 50_000] * 30)
    assert pages(world) == 30
    clock = world.clock + BUILD_MS_MAX + 1
    folding = Folding(world.store, Snapshots(world.store), lambda: clock, Thresholds(1, 1))
    assert len(folding.run(world.table)) == 1
    assert world.store.read(lambda tx: tx.get_range(*BASE_BUILDS.range(TABLE))) == []
    with pytest.raises(BuildLost):
        bases.write_pages(world.store, TABLE, dead, 30, [b"late"])
    assert check_bases(world.store, TABLE, "t") == []


def test_blocks_of_large_commits_stay_where_they_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STORED_FILES_MIN", 100)
    monkeypatch.setattr(build, "FILES_OF_PARTITION_MIN", 30)
    for _ in range(3):
        world.commit(MAIN, t.APPEND, [1] * 60 + [2] * 60, staged=True)
    fold(world)
    assert pages(world) == 0
    world.check(Snapshots(world.store), OF_MAIN, 2)
    world.commit(MAIN, t.APPEND, [number % 7 for number in range(120)], staged=True)
    fold(world)
    assert pages(world) == 1, "many partitions in a block: written anew"
    for version in range(5):
        world.check(Snapshots(world.store), OF_MAIN, version)


def test_the_folder_looks_only_at_what_changed(world: World) -> None:
    snapshots = Snapshots(world.store)
    folder = BaseFolder(world.store, snapshots, lambda: world.clock, 3_600, Thresholds(2, 100), 1_000)
    assert folder.once() == []
    world.commit(MAIN, t.APPEND, [0])
    assert folder.once() == []
    world.commit(MAIN, t.APPEND, [1])
    assert [base.version for base in folder.once()] == [2]
    assert folder.once() == []
    world.commit(MAIN, t.APPEND, [1])
    world.commit(MAIN, t.APPEND, [1])
    assert [base.version for base in folder.once()] == [4]
    assert snapshots.cache.bytes == 0, "the next fold needs nothing of what this one has read"
    assert len(world.store.read(lambda tx: tx.get_range(*BASE_INDEXES.range(TABLE)))) == 2
    world.clock += 2_000
    folder.once()
    assert len(world.store.read(lambda tx: tx.get_range(*BASE_INDEXES.range(TABLE)))) == 1
    other = BaseFolder(world.store, Snapshots(world.store), lambda: world.clock, 3_600, Thresholds(1, 1))
    world.commit(MAIN, t.APPEND, [1])
    assert other.once() == [], "another process has the lease"


def test_verify_finds_damage(world: World) -> None:
    world.commit(MAIN, t.APPEND, [0, 1])
    world.commit(MAIN, t.OVERWRITE_PARTITIONS, [1])
    base_id = fold(world)
    assert check_bases(world.store, TABLE, "t") == []
    record = record_of(world)
    assert record is not None
    record.files = 9
    world.store.transact(lambda tx: tx.set(BASES.key(TABLE, MAIN), record.SerializeToString()))
    assert "says 9 files" in check_bases(world.store, TABLE, "t")[0]
    world.store.transact(lambda tx: tx.set(BASE_PAGES.key(TABLE, 5, 0), b"x"))
    assert "base 5 is not known, but has pages" in check_bases(world.store, TABLE, "t")[-1]
    world.store.transact(lambda tx: tx.clear_range(*BASE_PAGES.range(TABLE, base_id)))
    assert "cannot be read" in check_bases(world.store, TABLE, "t")[0]
    world.store.transact(lambda tx: tx.clear_range(*BASE_INDEXES.range(TABLE)))
    assert "has no index" in check_bases(world.store, TABLE, "t")[0]


def test_pages_of_one_plan_fit_together_whatever_is_folded_meanwhile(world: World) -> None:
    """Each page comes from another process, with the version and the origin of the first one."""
    for number in range(6):
        world.commit(MAIN, t.APPEND, [2, number % 3, 0])
    first = Planner().plan(Snapshots(world.store).load(world.table, OF_MAIN, 5), None)
    wanted = first.page(0, 100, ())
    pages_: list[str] = []
    for offset in range(0, wanted.num_rows, 4):
        pinned = Snapshots(world.store).load(world.table, OF_MAIN, 5, first.snapshot.origin)
        pages_ += texts(Planner().plan(pinned, None).page(offset, 4, ()).column("path"))
        world.commit(MAIN, t.OVERWRITE_PARTITIONS, [1])
        fold(world)
    assert pages_ == texts(wanted.column("path"))
    now = Planner().plan(Snapshots(world.store).load(world.table, OF_MAIN, 5), None).page(0, 100, ())
    assert texts(now.column("path")) != pages_, "without the origin the order is another one"


def test_memory_is_bounded_by_the_setting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STORED_FILES_MIN", 100)
    for _ in range(4):
        world.commit(MAIN, t.APPEND, [number % 5 for number in range(300)], staged=True)
    for limit in (0, 20_000, 60_000, 1 << 30):
        snapshots = Snapshots(world.store, limit)
        planner = Planner(snapshots.cache)
        for sql in ("m = 1 AND id < 3", "id >= 290 OR m = 4", "id IS NULL"):
            plan = planner.plan(snapshots.load(world.table, OF_MAIN, 4), parse_predicate(sql))
            assert plan.page(0, 10_000, [1]).num_rows == plan.files
            assert snapshots.cache.bytes <= limit * 3 // 4
        assert plan.files == 0
    assert snapshots.cache.bytes > 60_000, "what was bounded is not small"
