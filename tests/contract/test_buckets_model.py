"""Buckets that split and merge beside writers and compactions, on a real timeline, checked on rows.

Writers plan by the directory of the moment when they begin, and commit whenever. Does a reader of each version see what
the works give when done one after another in the order of their versions, is no row there twice, and are writers
refused only because of others whose keys they may share? A row is its history: the numbers of the writers that changed
it, each of which had read the earlier ones; under the policy ``row`` the greatest (event time, number) that was
written. Hashes are the keys themselves.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from lakemark_core.bucket_directory import Directory
from lakemark_core.bucket_tree import FileGroups, above, children, depth_of, group_name, parent
from lakemark_core.errors import CommitConflict
from lakemark_core.types import BIGINT, INT, Field, Schema
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.catalog import lake as lakes
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.planning.merge_on_read import split
from lakemark_server.kv import open_store
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_server.timeline.jobs.buckets import BucketsJob
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.verify import verify
from tests.lakes import Clock, Lake, files, whole
from tests.lengths import long
from tests.stores import store_url

SCHEMA = Schema.build([Field(0, "id", BIGINT), Field(0, "month", INT)], ["month"])
POLICIES = ("partition", "file_group", "file", "row")
KEYS = range(8)
DEPTH = 3
MONTH = 1

Rows = dict[int, Any]


@dataclass
class File:
    """A data file: its bucket, and its rows by key."""

    path: str
    bucket: int
    rows: Rows
    delta: bool = False

    @property
    def group(self) -> str:
        return group_name(self.bucket)

    @property
    def instant(self) -> int:
        return int(self.path.split("/")[0])

    def entry(self) -> p.DataFile:
        kind = p.DELTA if self.delta else p.BASE
        return p.DataFile(
            path=self.path, file_group=self.group, bucket=self.bucket, kind=kind, partition=[whole(MONTH)], row_count=1
        )


@dataclass(frozen=True)
class Work:
    """What a writer wants to do: changes of keys as deltas or by rewriting files, or a compaction of where they are."""

    what: str
    keys: frozenset[int]
    event_time: int


_which = st.integers(0, 100)
_works = st.builds(
    Work,
    st.sampled_from(["upsert", "upsert", "rewrite", "rewrite", "compact"]),
    st.frozensets(st.sampled_from([*KEYS[:2], *KEYS]), min_size=1, max_size=3),
    st.integers(0, 3),
)


@dataclass
class Open:
    """A writer in flight. ``changes``: what it does to each key, given the rows that it has read."""

    number: int
    instant: int
    read_version: int
    keys: frozenset[int]
    operation: t.Operation.ValueType
    event_time: int
    added: list[File] = field(default_factory=list)
    removed: list[File] = field(default_factory=list)

    @property
    def buckets(self) -> set[int]:
        return {file.bucket for file in (*self.added, *self.removed)}

    @property
    def only_deltas(self) -> bool:
        return all(file.delta for file in self.added)


class BucketsMachine(RuleBasedStateMachine):
    """A run under one policy."""

    policy: str

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        directory = Path(self._directory.name)
        self.lake = Lake(open_store(store_url(directory)), directory, Clock())
        self.files: dict[str, File] = {}
        self.living: list[Open] = []
        self.done: list[Open | None] = [None]  # by version; None: no writer's
        self.states: list[Rows] = [{}]  # by version
        self.numbers = 0

    def teardown(self) -> None:
        for version, state in enumerate(self.states):
            assert self.read(version) == state, f"version {version} has changed"
        assert verify(self.lake.store) == []
        self.lake.store.close()
        self._directory.cleanup()

    @initialize()
    def create(self) -> None:
        properties = {
            "lakemark.primary-key": "id,month",
            "lakemark.bucket.count": "1",
            "lakemark.bucket.index": "extendible",
            "lakemark.write.mode": "merge-on-read",
            "lakemark.conflict.policy": self.policy,
        }
        record = LakeTableRecord(database="default", name="t", properties=properties)
        self.table = self.lake.catalog.create_lake_table(record, SCHEMA)

    # -- what is there -------------------------------------------------------------------------------------------------

    def snapshot(self, version: int) -> Snapshot:
        return self.lake.snapshots.snapshot("", "default", "t", SnapshotReference(version=version)).snapshot

    def at(self, version: int) -> list[File]:
        return self._files(self.snapshot(version))

    def _files(self, snapshot: Snapshot) -> list[File]:
        return [self.files[path] for part in snapshot.parts for path in texts(part.live_entries().column("path"))]

    def read(self, version: int) -> Rows:
        """As plain Spark reads it by its view, and as the clients read it."""
        apart = split(self.snapshot(version))
        settled, bases, deltas = (self._files(side) for side in (apart.settled, apart.bases, apart.deltas))
        rows = self.merged(bases, deltas)
        for file in settled:
            assert not rows.keys() & file.rows.keys(), "a row is there twice"
            rows |= file.rows
        every = self.at(version)
        changed = FileGroups(("", file.group) for file in every if file.delta)
        under = [file for file in every if not file.delta and changed.touch("", file.group)]
        others = [file for file in every if not file.delta and not changed.touch("", file.group)]
        again = self.merged(under, [file for file in every if file.delta])
        for file in others:
            again |= file.rows
        assert rows == again
        return rows

    def merged(self, bases: Iterable[File], deltas: Iterable[File]) -> Rows:
        rows: Rows = {}
        for file in bases:
            assert not rows.keys() & file.rows.keys(), "a row is there twice"
            rows |= file.rows
        for file in sorted(deltas, key=lambda one: one.instant):
            for key, row in file.rows.items():
                rows[key] = max(row, rows.get(key, row)) if self.policy == "row" else row
        return rows

    def directory(self) -> Directory:
        directory = self.lake.store.read(lambda tx: lakes.load(tx, self.table.table_id)).kind.directory
        assert directory is not None
        return directory

    # -- what happens --------------------------------------------------------------------------------------------------

    @rule(
        first=_works,
        second=_works,
        same_keys=st.sampled_from([True, True, False]),
        late=st.booleans(),
        between=st.lists(st.tuples(_which, st.booleans()), max_size=3),
        which=_which,
    )
    def step(
        self, first: Work, second: Work, same_keys: bool, late: bool, between: list[tuple[int, bool]], which: int
    ) -> None:
        """Two works of which neither has seen the other, with the directory changed between them, and at times a third
        that began long ago."""
        one = self.begin(first)
        for place, merge in between:
            self.rebucket(place, merge)
        other = self.begin(replace(second, keys=first.keys) if same_keys else second)
        self.commit(other)
        if late:
            self.living.append(one)
        else:
            self.commit(one)
        if len(self.living) > 3:
            self.commit(self.living.pop(which % len(self.living)))

    def begin(self, wanted: Work) -> Open:
        self.numbers += 1
        read_version = len(self.states) - 1
        operation = t.COMPACT if wanted.what == "compact" else t.UPSERT
        job = OpenJob(operation=operation, profile=t.WorkProfile())
        instant = self.lake.timeline.open(self.table.table_id, job).record.instant
        work = Open(self.numbers, instant, read_version, wanted.keys, operation, wanted.event_time)
        existing, directory = self.at(read_version), self.directory()
        if wanted.what == "compact":
            self._compact(work, existing, directory)
        else:
            self._change(work, existing, directory, rewrite=wanted.what == "rewrite")
        return work

    def _change(self, work: Open, existing: Sequence[File], directory: Directory, *, rewrite: bool) -> None:
        leaves = {directory.bucket_of(key) for key in work.keys}
        known = self._whole(existing, leaves)
        rows = self.merged([one for one in known if not one.delta], [one for one in known if one.delta])
        changed = self.changed(work, rows)
        begins = not known and self.policy != "row"
        if not rewrite and not begins:
            self._write(work, changed, directory, delta=True)
            return
        if self.policy == "row":
            changed = {key: max(row, rows.get(key, row)) for key, row in changed.items()}
        work.removed = known
        self._write(work, rows | changed, directory, delta=False)

    def _compact(self, work: Open, existing: Sequence[File], directory: Directory) -> None:
        due = {file.bucket for file in existing if file.delta or file.bucket not in directory.leaves}
        due = {one for one in due if any(directory.bucket_of(key) in (*above(one), *_below(one)) for key in work.keys)}
        work.removed = self._whole(existing, due | {directory.over(one) for one in due})
        bases = [one for one in work.removed if not one.delta]
        self._write(work, self.merged(bases, [one for one in work.removed if one.delta]), directory, delta=False)

    def _whole(self, existing: Sequence[File], buckets: Iterable[int]) -> list[File]:
        every = FileGroups(("", one.group) for one in existing).whole(("", group_name(bucket)) for bucket in buckets)
        return [one for one in existing if every.touch("", one.group)]

    def _write(self, work: Open, rows: Rows, directory: Directory, *, delta: bool) -> None:
        by_leaf: dict[int, Rows] = {}
        for key, row in rows.items():
            by_leaf.setdefault(directory.bucket_of(key), {})[key] = row
        for leaf, those in by_leaf.items():
            path = f"{work.instant}/month={MONTH}/{group_name(leaf)}/f"
            work.added.append(File(path, leaf, those, delta))

    def changed(self, work: Open, rows: Rows) -> Rows:
        if self.policy == "row":
            return dict.fromkeys(work.keys, (work.event_time, work.number))
        return {key: (*rows.get(key, ()), work.number) for key in work.keys}

    def commit(self, work: Open) -> None:
        added = [file.entry() for file in work.added]
        draft = CommitDraft(work.instant, files(*added), [file.path for file in work.removed])
        try:
            answer = self.lake.timeline.commit(self.table, draft)
        except CommitConflict as conflict:
            self._check_refused(work, conflict)
            return
        assert answer.version == len(self.states)
        self.files |= {file.path: file for file in work.added}
        self.done.append(work)
        state = self.states[-1]
        if work.operation == t.UPSERT:
            new = self.changed(work, state)
            if self.policy == "row":
                new = {key: max(row, state.get(key, row)) for key, row in new.items()}
            state = state | new
        self._published(state)

    def _check_refused(self, work: Open, conflict: CommitConflict) -> None:
        others = [one for one in self.done[work.read_version + 1 :] if one is not None]
        if (
            self.policy == "partition"
            and work.operation == t.UPSERT
            and any(one.operation == t.UPSERT for one in others)
        ):
            return
        sharing = [
            one
            for one in others
            if any(mine in above(their) or their in above(mine) for mine in work.buckets for their in one.buckets)
        ]
        assert sharing, f"{work} shares no key with {others}: {conflict.message}"
        if work.only_deltas:
            assert self.policy != "row", conflict.message
            assert any(one.operation == t.UPSERT for one in sharing), conflict.message

    def rebucket(self, which: int, merge: bool) -> None:
        leaves = self.directory().leaves
        whole_ones = sorted({parent(one) for one in leaves if one > 1 and leaves.issuperset(children(parent(one)))})
        small = sorted(one for one in leaves if depth_of(one) < DEPTH)
        if whole_ones and (merge or not small):
            job = BucketsJob((), (whole_ones[which % len(whole_ones)],))
        else:
            job = BucketsJob((small[which % len(small)],), ())
        self.lake.timeline.alter_buckets(self.table.table_id, job)
        self.done.append(None)
        self._published(self.states[-1])

    def _published(self, state: Rows) -> None:
        self.states.append(state)
        assert self.read(len(self.states) - 1) == state


def _below(bucket: int) -> list[int]:
    below = [bucket]
    for one in below:
        if depth_of(one) < DEPTH:
            below.extend(children(one))
    return below


def run(policy: str, **given: Any) -> None:
    machine = type("Machine", (BucketsMachine,), {"policy": policy})
    run_state_machine_as_test(machine, settings=settings(suppress_health_check=list(HealthCheck), **given))


@pytest.mark.parametrize("policy", POLICIES)
def test_buckets(policy: str) -> None:
    """Does not shrink failures; the long run does."""
    run(policy, max_examples=4, stateful_step_count=20, phases=[Phase.explicit, Phase.reuse, Phase.generate])


@pytest.mark.slow
@pytest.mark.timeout(long(1_200))
@pytest.mark.parametrize("policy", POLICIES)
def test_buckets_for_long(policy: str) -> None:
    run(policy, max_examples=long(30), stateful_step_count=30)
