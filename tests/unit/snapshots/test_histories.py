"""Random histories of a table with branches: every version is what a plain model says, and never changes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakemark_server.file_index.base.build as build_module
import lakemark_server.file_index.parts.part as parts_module
import lakemark_server.snapshots.versions.history as history_module
from lakemark_core.errors import InvalidFile
from lakemark_core.expressions import parse_predicate
from lakemark_core.types import Schema
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.parts.changes import added_between, removed_between
from lakemark_server.file_index.parts.fold import NOWHERE
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.snapshots import bases
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.keyspace import MAIN
from lakemark_server.timeline.lineage import OF_MAIN
from lakemark_server.verify.bases import check_bases
from tests.unit.file_index.compacted import check_compact
from tests.unit.snapshots.world import TABLE, World, found

PREDICATES = [
    "id = 2", "id = 5", "id > 3", "id IS NULL", "m = 1", "m = 1 AND id < 2", "m != 0 OR id = 0", "m IS NULL", "TRUE",
    "x IS NULL", "x IS NOT NULL", "x = 1 AND id < 3", "y IS NULL AND m = 0", "y = 1",
]  # fmt: skip
OPERATIONS = [t.APPEND, t.APPEND, t.UPSERT, t.OVERWRITE_PARTITIONS, t.OVERWRITE_TABLE]


class Player:
    """Draws what happens next and does it."""

    def __init__(self, world: World, data: st.DataObject) -> None:
        self.world, self.data = world, data

    def step(self) -> None:
        world, draw = self.world, self.data.draw
        name = draw(st.sampled_from(sorted(world.branches)), label="branch")
        branch = world.branches[name]
        match draw(
            st.sampled_from(["commit"] * 5 + ["restore", "fork", "merge", "alter", "fold", "fold", "sweep"]),
            label="what",
        ):
            case "commit":
                live = sorted(world.content(branch.lineage, branch.head))
                removed = draw(st.lists(st.sampled_from(live), unique=True, max_size=3)) if live else []
                world.commit(
                    name,
                    draw(st.sampled_from(OPERATIONS)),
                    draw(st.lists(st.integers(0, 2), max_size=4)),
                    removed=removed,
                    staged=draw(st.booleans()),
                    file_schema_id=draw(st.integers(0, world.schema_id)),
                )
            case "restore" if branch.head:
                world.commit(name, t.RESTORE_VERSION, restored=draw(st.integers(1, branch.head)))
            case "fork" if len(world.branches) < 4:
                world.fork(name, draw(st.integers(0, branch.head)))
            case "merge" if name != MAIN:
                into = branch.lineage.forks[1][0]
                parent = next(one for one, other in world.branches.items() if other.lineage.key == into)
                world.merge(name, parent)
            case "alter":
                world.alter(name)
            case "fold":
                world.fold(name)
            case "sweep":
                bases.sweep_old(world.store, TABLE, world.clock + 1)
            case _:
                pass


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), st.integers(1, 18), st.sampled_from([1, 3, 8_192]), st.booleans())
def test_every_version_is_what_the_model_says(data: st.DataObject, steps: int, part_files_max: int, kept: bool) -> None:
    """``kept``: one cache for everything; else nothing is cached. At the end a new process reads everything again."""
    small = {
        (parts_module, "PART_FILES_MAX"): part_files_max,
        (build_module, "PART_FILES_MAX"): part_files_max,
        (history_module, "PART_FILES_MAX"): part_files_max,
        (history_module, "STORED_FILES_MIN"): data.draw(st.sampled_from([1, 2_048])),
        (build_module, "FILES_OF_PARTITION_MIN"): data.draw(st.sampled_from([1, 64])),
        (build_module, "RUN_FILES_MAX"): data.draw(st.sampled_from([4, 1 << 18])),
        (build_module, "_SMALL_PARTS_MAX"): data.draw(st.sampled_from([1, 500])),
    }
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        for (module, name), value in small.items():
            patch.setattr(module, name, value)
        world = World.open(Path(directory))
        try:
            player = Player(world, data)
            watching = Snapshots(world.store, 1 << 30 if kept else 0)
            for _ in range(steps):
                player.step()
                lineage, version = data.draw(st.sampled_from(world.versions()))
                world.check(watching, lineage, version)
            fresh = Snapshots(world.store)
            for lineage, version in data.draw(st.permutations(world.versions())):
                world.check(fresh, lineage, version)
                world.check(watching, lineage, version)
            assert check_bases(world.store, TABLE, "t") == []
            _check_changes(world, fresh, data)
            _check_plans(world, fresh, data)
            _check_find(world, fresh, data)
        finally:
            world.store.close()


def _check_changes(world: World, snapshots: Snapshots, data: st.DataObject) -> None:
    lineage, newer = data.draw(st.sampled_from(world.versions()))
    older = data.draw(st.integers(0, newer))
    before, after = (snapshots.load(world.table, lineage, version) for version in (older, newer))
    old, new = world.content(lineage, older), world.content(lineage, newer)
    assert found(added_between(before, after)).keys() == new.keys() - old.keys()
    assert found(removed_between(before, after)).keys() == old.keys() - new.keys()


def _check_plans(world: World, snapshots: Snapshots, data: st.DataObject) -> None:
    """Bases, zones and parts make no difference to a plan: without them each file is checked."""
    lineage, version = data.draw(st.sampled_from(world.versions()))
    planned: list[list[tuple[object, ...]]] = []
    sql = ""
    for origin in (None, NOWHERE):
        snapshot = snapshots.load(world.table, lineage, version, origin)
        if not version:
            return
        if not planned:
            sql = data.draw(st.sampled_from([one for one in PREDICATES if _fits(one, snapshot.schema)]))
        planner = Planner()
        plan = planner.plan(snapshot, parse_predicate(sql))
        check_compact(planner, plan, 0, 10_000, [1])
        page = plan.page(0, 10_000, [1])
        rows = page.select(
            ["path", "added_version", "schema_id", "min.1", "null_count.1", "matches_entirely"]
        ).to_pylist()
        planned.append(sorted(tuple(row.values()) for row in rows))
    assert planned[0] == planned[1], sql
    lows = {entry.path: entry.low for entry in world.content(lineage, version).values()}
    if sql.startswith("id = "):
        wanted = int(sql.removeprefix("id = "))
        assert [row[0] for row in planned[0]] == sorted(path for path, low in lows.items() if low <= wanted <= low + 3)


def _fits(sql: str, schema: Schema) -> bool:
    return all(schema.find(name) is not None for name in ("x", "y") if name in sql.split())


def _check_find(world: World, snapshots: Snapshots, data: st.DataObject) -> None:
    lineage, version = data.draw(st.sampled_from(world.versions()))
    live = world.content(lineage, version)
    wanted = data.draw(st.permutations(sorted(live))) if live else []
    batch = snapshots.find_files(
        world.table, lineage, version, [*wanted[:1], *(f"file:/t/{one}" for one in wanted[1:])]
    )
    assert batch.column("path").to_pylist() == wanted
    assert batch.column("partition").to_pylist() == [live[path].partition for path in wanted]
    everything = {path for content in world.contents.values() for path in content}
    gone = sorted(everything - live.keys())
    for path in [*gone[:3], "x", "12/", "1800000000001/none/f"]:
        with pytest.raises(InvalidFile, match=f"not in version {version} of default.t"):
            snapshots.find_files(world.table, lineage, version, [*wanted[:2], path])
    if wanted:
        with pytest.raises(InvalidFile, match="named twice"):
            snapshots.find_files(world.table, lineage, version, [wanted[0], wanted[0]])


def test_nothing_is_found_nowhere(tmp_path: Path) -> None:
    world = World.open(tmp_path)
    lineage = world.branches[MAIN].lineage
    batch = Snapshots(world.store).find_files(world.table, lineage, 0, [])
    assert isinstance(batch, pa.RecordBatch)
    assert not batch.num_rows
    world.store.close()


def test_a_restored_file_is_told_with_the_version_that_brought_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page in the store is that of the version that added it first, and a plan of that version was made before."""
    monkeypatch.setattr(history_module, "STORED_FILES_MIN", 1)
    world = World.open(tmp_path)
    try:
        world.commit(MAIN, t.APPEND, [0], staged=True)
        world.fold(MAIN)
        (path,) = world.content(OF_MAIN, 1)
        world.commit(MAIN, t.APPEND, [1], removed=[path], staged=True)
        world.commit(MAIN, t.RESTORE_VERSION, restored=1)
        snapshots = Snapshots(world.store, 1 << 30)
        for version, added in ((3, 3), (1, 1)):
            plan = Planner().plan(snapshots.load(world.table, OF_MAIN, version), None)
            told = plan.page(0, 10, []).select(["path", "added_version"]).to_pylist()
            assert told == [{"path": path, "added_version": added}]
    finally:
        world.store.close()
