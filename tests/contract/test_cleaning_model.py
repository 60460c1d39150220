"""Cleaning never deletes a file of a version that can still be read: the model of branches, with real files."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from lakemark_core.errors import InvalidArgument, LakemarkError, NotFound, VersionNotFound
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.parts.fold import NOWHERE
from lakemark_server.kv import Space
from lakemark_server.maintenance.cleaning.cleaner import Retention
from lakemark_server.maintenance.cleaning.old_metadata import BASE_AGE_MS_MIN
from lakemark_server.snapshots.base_builds import Folding, Thresholds
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.store.keyspace import BRANCH_KEYS, HEADS, MERGES, VERSION_TIMES, VERSIONS
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.timeline.references import MergeDraft, ReferenceDraft
from lakemark_server.verify import verify
from tests.contract.test_branches_model import BranchesMachine, Files
from tests.event_replay import replay_problems
from tests.lakes import Lake, file, files, open_lake


class CleaningMachine(BranchesMachine):
    @property
    def below(self) -> Path:
        return Path(self.t.record.location.removeprefix("file:"))

    def wrote(self, given: list[p.DataFile]) -> None:
        for one in given:
            path = self.below / one.path
            path.parent.mkdir(parents=True)
            path.touch()

    def readable(self, branch: str, version: int) -> bool:
        try:
            self.lake.snapshots.resolve("", "default", "t", SnapshotReference(branch=branch, version=version))
        except VersionNotFound as ended:
            return not ended.details.get("earliest")
        return True

    def on_disk(self) -> set[str]:
        return {path.relative_to(self.below).as_posix() for path in self.below.rglob("*.parquet")}

    def of_the_other_table(self, path: str) -> bool:
        """Whether the file is one of table "u", whose files are created in the same place."""
        return int(path.partition("/")[0]) in {
            one.instant for one in self.lake.timeline.instants(self.u.table_id, limit=1_000)[0]
        }

    def needed(self) -> set[str]:
        """The files of all versions that can be read."""
        found = set().union(*self.tags.values())
        for name, branch in self.branches.items():
            readable = (version for version in range(branch.head + 1) if self.readable(name, version))
            found = found.union(*(branch.states[version] for version in readable))
        for one in self.lake.timeline.savepoints.find(self.t):  # of dropped branches, too
            lineage = self.lake.store.read(lambda tx, one=one: forks.lineage(tx, self.t.table_id, one.branch_key))  # type: ignore[misc]
            kept = self.lake.snapshots.load(self.t, lineage, one.version)
            found.update(texts(kept.entries().column("path")))
        return found

    @rule(which=st.integers(0, 9), version=st.integers(1, 30))
    def keep(self, which: int, version: int) -> None:
        with suppress(LakemarkError):  # there is no such version, or it has ended, or is kept already
            self.lake.timeline.savepoints.create(self.t, version, branch=self.pick(which))

    @rule(which=st.integers(0, 9))
    def let_go(self, which: int) -> None:
        found = self.lake.timeline.savepoints.find(self.t)
        if found:
            one = found[which % len(found)]
            with suppress(NotFound):  # its branch may have been dropped
                self.lake.timeline.savepoints.drop(self.t, one.version, branch=one.branch_name)

    @rule(stand=st.booleans())
    def fold(self, stand: bool) -> None:
        """Makes new bases. ``stand``: for long enough that the next clean may remove metadata before them."""
        folding = Folding(self.lake.store, Snapshots(self.lake.store), self.lake.clock, Thresholds(2, 1_000_000))
        folding.run(self.t)
        if stand:
            self.lake.clock.advance(BASE_AGE_MS_MIN)

    @rule(which=st.integers(0, 9), versions=st.integers(1, 4), dry=st.booleans())
    def clean(self, which: int, versions: int, dry: bool) -> None:
        name = self.pick(which)
        head = self.branches[name].head
        stay = [one for one in range(max(1, head - versions + 1), head + 1) if self.readable(name, one)]
        retain = Retention(versions)
        told = self.lake.cleaner.clean(self.t, retain, branch=name, dry_run=True)
        if dry:
            return
        done = self.lake.cleaner.clean(self.t, retain, branch=name)
        assert (done.files, done.earliest_version) == (told.files, told.earliest_version)
        assert all(self.readable(name, version) for version in stay)
        again = self.lake.cleaner.clean(self.t, retain, branch=name)
        assert (again.files, again.instant) == (0, 0)
        on_disk, needed = self.on_disk(), self.needed()
        assert needed <= on_disk
        assert [path for path in on_disk - needed if not self.of_the_other_table(path)] == []

    @invariant()
    def every_version_of_every_branch_holds_what_it_did(self) -> None:
        if not hasattr(self, "lake"):
            return
        snapshots, cached = Snapshots(self.lake.store), self.lake.snapshots
        for name, branch in self.branches.items():
            for version, wanted in enumerate(branch.states):
                if not self.readable(name, version):
                    assert 0 < version < branch.head
                    continue
                found = snapshots.snapshot("", "default", "t", SnapshotReference(branch=name, version=version))
                paths = texts(found.snapshot.entries().column("path"))
                assert sorted(paths) == sorted(wanted), (name, version)
                self.exist(frozenset(paths))
            latest = cached.again(partial(cached.snapshot, "", "default", "t", SnapshotReference(branch=name)))
            assert sorted(texts(latest.snapshot.entries().column("path"))) == sorted(branch.states[-1])
        for name, wanted in self.tags.items():
            assert self.read(tag=name) == wanted
            self.exist(wanted)

    def exist(self, paths: Files) -> None:
        assert [path for path in paths if not (self.below / path).is_file()] == []


TestCleaning = CleaningMachine.TestCase
TestCleaning.settings = settings(max_examples=15, stateful_step_count=30, suppress_health_check=list(HealthCheck))


def write(lake: Lake, name: str, operation: t.Operation.ValueType, *months: int) -> list[Path]:
    """One commit with files that exist."""
    table = lake.catalog.get_lake_table("", "default", name)
    instant = lake.open(table, operation)
    given = [file(instant, f"g{month}", month) for month in months]
    paths = [Path(table.record.location.removeprefix("file:")) / one.path for one in given]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.touch()
    lake.commit(table, instant, given)
    return paths


def test_a_clean_deletes_just_what_nobody_has(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        first = write(lake, "t", t.APPEND, 1)
        second = write(lake, "t", t.OVERWRITE_TABLE, 2)
        third = write(lake, "t", t.OVERWRITE_TABLE, 3)
        lake.timeline.savepoints.create(table, 2)
        with pytest.raises(LakemarkError, match="say which versions are kept"):
            lake.cleaner.clean(table, Retention())
        done = lake.cleaner.clean(table, Retention(versions=1))
        assert (done.earliest_version, done.expired_versions, done.files, list(done.kept_versions)) == (3, 1, 1, [2])
        assert [path.exists() for path in (*first, *second, *third)] == [False, True, True]
        assert not first[0].parent.exists(), "its directory goes with it"
        with pytest.raises(VersionNotFound, match=r"version 1 of default.t was cleaned; the earliest .* is 3"):
            lake.paths(table, 1)
        assert len(lake.paths(table, 2)) == 1
        record, _ = lake.timeline.instant(table.table_id, done.instant)
        assert (record.operation, record.state, record.metadata["files"]) == (t.CLEAN_FILES, t.COMPLETED, "1")


def test_a_live_writer_keeps_what_it_has_read(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        write(lake, "t", t.APPEND, 1)
        slow = lake.open(table, t.UPSERT)
        write(lake, "t", t.APPEND, 2)
        write(lake, "t", t.APPEND, 3)
        assert lake.cleaner.clean(table, Retention(versions=1)).earliest_version == 1
        lake.timeline.rollback(table, slow, "done")
        assert lake.cleaner.clean(table, Retention(versions=1)).earliest_version == 3


def keys(lake: Lake, space: Space, *items: int | str) -> list[tuple[object, ...]]:
    return [space.unpack(key) for key, _ in lake.store.read(lambda tx: tx.get_range(*space.range(*items)))]


def fold(lake: Lake) -> None:
    """Makes a base that has stood for as long as readers of older ones may need."""
    table = lake.catalog.get_lake_table("", "default", "t")
    Folding(lake.store, Snapshots(lake.store), lake.clock, Thresholds(1, 1)).run(table)
    lake.clock.advance(BASE_AGE_MS_MIN)


def test_metadata_of_ended_versions_goes_and_every_live_version_can_be_read(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        number = table.table_id
        for _ in range(12):
            write(lake, "t", t.OVERWRITE_TABLE, 1)
            lake.timeline.rollback(table, lake.open(table), "not wanted")
            lake.clock.advance(10)
        times = [record.committed_ms for record in lake.timeline.versions(number, "")[0]]
        lake.timeline.savepoints.create(table, 4)
        before = {version: lake.paths(table, version) for version in (4, 9, 10, 11, 12)}
        fold(lake)
        lake.cleaner.clean(table, Retention(versions=4))
        left = [version for *_, version in keys(lake, VERSIONS, number)]
        assert left == [4, 9, 10, 11, 12]
        assert {version for *_, version in keys(lake, VERSION_TIMES, number)} == {1, 4, 5, 9, 10, 11, 12}
        assert len(lake.timeline.instants(number, limit=1_000)[0]) == 4 + 4 + 1 + 1 + 1, (
            "versions, rolled back, 4, savepoint, clean"
        )
        for snapshots in (lake.snapshots, Snapshots(lake.store)):
            for version, wanted in before.items():
                read = partial(snapshots.snapshot, "", "default", "t", SnapshotReference(version=version))
                assert texts(snapshots.again(read).snapshot.entries().column("path")) == wanted
        for version, ms in enumerate(times, 1):
            at = SnapshotReference(timestamp_ms=ms + 1)
            if version in before:
                assert lake.snapshots.resolve("", "default", "t", at).version == version
            else:
                with pytest.raises(VersionNotFound, match="was cleaned; the earliest that can be read is 9"):
                    lake.snapshots.resolve("", "default", "t", at)
        assert verify(lake.store) + replay_problems(lake.store) == []


def test_a_page_token_from_before_the_first_base_is_too_old(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        for _ in range(5):
            write(lake, "t", t.APPEND, 1)
        fold(lake)
        lake.cleaner.clean(table, Retention(versions=2))
        snapshots = Snapshots(lake.store)
        with pytest.raises(InvalidArgument, match="the page token is too old"):
            snapshots.snapshot("", "default", "t", SnapshotReference(), NOWHERE)


def test_a_branch_that_was_merged_and_dropped_leaves_nothing(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        number, references = table.table_id, lake.timeline.references
        write(lake, "t", t.APPEND, 1)
        references.create(table, ReferenceDraft(name="dev", kind=c.BRANCH))
        job = OpenJob(operation=t.APPEND, branch="dev", profile=t.WorkProfile())
        instant = lake.timeline.open(number, job).record.instant
        lake.commit(table, instant, [file(instant, "g", 2)])
        references.merge(table, MergeDraft(branch="dev", into="main"))
        references.drop(table, "dev")
        fold(lake)
        lake.cleaner.clean(table, Retention(versions=1))
        assert len(keys(lake, BRANCH_KEYS, number)) == 1, "its merge is still there"
        write(lake, "t", t.OVERWRITE_TABLE, 3)
        write(lake, "t", t.OVERWRITE_TABLE, 3)
        for _ in range(2):
            fold(lake)
            lake.cleaner.clean(table, Retention(versions=1))
        for space in (BRANCH_KEYS, MERGES):
            assert keys(lake, space, number) == []
        assert {key for _, key, *_ in [*keys(lake, VERSIONS, number), *keys(lake, HEADS, number)]} == {"main"}
        assert len(lake.paths(table)) == 1
        assert verify(lake.store) + replay_problems(lake.store) == []


def test_a_live_branch_can_be_merged_after_its_parent_was_cleaned(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        for _ in range(3):
            write(lake, "t", t.OVERWRITE_TABLE, 1)
        lake.timeline.references.create(table, ReferenceDraft(name="dev", kind=c.BRANCH, from_version=2))
        for _ in range(5):
            write(lake, "t", t.APPEND, 2)
        fold(lake)
        lake.cleaner.clean(table, Retention(versions=1))
        assert [version for *_, version in keys(lake, VERSIONS, table.table_id)] == [2, 3, 4, 5, 6, 7, 8]
        merged = lake.timeline.references.merge(table, MergeDraft(branch="main", into="dev"))
        assert merged.replayed == 6
        assert verify(lake.store) + replay_problems(lake.store) == []


def test_a_process_that_has_an_ended_version_in_memory_goes_on(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        for _ in range(6):
            write(lake, "t", t.APPEND, 1)
        lake.paths(table, 3)
        lake.timeline.restore(table, 5)
        fold(lake)
        Lake(lake.store, tmp_path, lake.clock).cleaner.clean(table, Retention(versions=1))
        instant = lake.open(table, t.UPSERT)
        gone = Lake(lake.store, tmp_path, lake.clock).paths(table)[0]
        draft = CommitDraft(instant, files(file(instant, "g", 1)), [gone])
        assert lake.timeline.commit(table, draft).version == 8
        assert gone not in lake.paths(table)
