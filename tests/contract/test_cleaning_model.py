"""Cleaning never takes a file that a version which can still be read has: the model of branches, with files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from lakemark.errors import LakemarkError, NotFound, VersionNotFound
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.snapshot.arrow import texts
from lakemark_server.snapshot.service import At, Snapshots
from lakemark_server.timeline import branches
from tests.contract.test_branches_model import BranchesMachine, Files
from tests.lakes import Lake, file, open_lake


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
            self.lake.snapshots.resolve("", "default", "t", At(branch=branch, version=version))
        except VersionNotFound as ended:
            return not ended.details.get("earliest")
        return True

    def on_disk(self) -> set[str]:
        """Without those of the other table, which are made here, too."""
        others = {str(one.instant) for one in self.lake.timeline.instants(self.u.table_id, limit=1_000)[0]}
        found = (path.relative_to(self.below) for path in self.below.rglob("*.parquet"))
        return {path.as_posix() for path in found if path.parts[0] not in others}

    def needed(self) -> set[str]:
        """The files that something which can be read has."""
        found = set().union(*self.tags.values())
        for name, branch in self.branches.items():
            readable = (version for version in range(branch.head + 1) if self.readable(name, version))
            found = found.union(*(branch.states[version] for version in readable))
        for one in self.lake.timeline.savepoints.find(self.t):  # of dropped branches, too
            lineage = self.lake.store.read(lambda tx, one=one: branches.lineage(tx, self.t.table_id, one.branch_key))  # type: ignore[misc]
            kept = self.lake.snapshots.load(self.t, lineage, one.version)
            found.update(texts(kept.entries().column("path")))
        return found

    @rule(which=st.integers(0, 9), version=st.integers(1, 30))
    def keep(self, which: int, version: int) -> None:
        with suppress(LakemarkError):  # it has none, or has ended, or is kept
            request = t.SavepointRequest(branch=self.pick(which), version=version)
            self.lake.timeline.savepoints.create(self.t, request)

    @rule(which=st.integers(0, 9))
    def let_go(self, which: int) -> None:
        found = self.lake.timeline.savepoints.find(self.t)
        if found:
            one = found[which % len(found)]
            with suppress(NotFound):  # its branch may be dropped
                request = t.SavepointRequest(branch=one.branch_name, version=one.version)
                self.lake.timeline.savepoints.drop(self.t, request)

    @rule(which=st.integers(0, 9), versions=st.integers(1, 4), dry=st.booleans())
    def clean(self, which: int, versions: int, dry: bool) -> None:
        name = self.pick(which)
        head = self.branches[name].head
        stay = [one for one in range(max(1, head - versions + 1), head + 1) if self.readable(name, one)]
        request = t.CleanRequest(branch=name, retain_versions=versions, dry_run=True)
        told = self.lake.timeline.cleaner.clean(self.t, request)
        if dry:
            return
        request.dry_run = False
        done = self.lake.timeline.cleaner.clean(self.t, request)
        assert (done.files, done.earliest_version) == (told.files, told.earliest_version)
        assert all(self.readable(name, version) for version in stay)
        again = self.lake.timeline.cleaner.clean(self.t, request)
        assert (again.files, again.instant) == (0, 0)
        assert self.on_disk() == self.needed()

    @invariant()
    def every_version_of_every_branch_holds_what_it_did(self) -> None:
        if not hasattr(self, "lake"):
            return
        snapshots = Snapshots(self.lake.store)
        for name, branch in self.branches.items():
            for version, wanted in enumerate(branch.states):
                if not self.readable(name, version):
                    assert 0 < version < branch.head
                    continue
                found = snapshots.snapshot("", "default", "t", At(branch=name, version=version))
                paths = texts(found.snapshot.entries().column("path"))
                assert sorted(paths) == sorted(wanted), (name, version)
                self.exist(frozenset(paths))
        for name, wanted in self.tags.items():
            assert self.read(tag=name) == wanted
            self.exist(wanted)

    def exist(self, paths: Files) -> None:
        assert [path for path in paths if not (self.below / path).is_file()] == []


TestCleaning = CleaningMachine.TestCase
TestCleaning.settings = settings(
    max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def write(lake: Lake, name: str, operation: t.Operation.ValueType, *months: int) -> list[Path]:
    """One commit with files that are really there."""
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
        lake.timeline.savepoints.create(table, t.SavepointRequest(version=2))
        with pytest.raises(LakemarkError, match="say what is to stay"):
            lake.timeline.cleaner.clean(table, t.CleanRequest())
        done = lake.timeline.cleaner.clean(table, t.CleanRequest(retain_versions=1))
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
        assert lake.timeline.cleaner.clean(table, t.CleanRequest(retain_versions=1)).earliest_version == 1
        lake.timeline.rollback(table, slow, "done")
        assert lake.timeline.cleaner.clean(table, t.CleanRequest(retain_versions=1)).earliest_version == 3
