"""Branches, tags, merges, restores and transactions over two tables, compared with sets of files.

For each version of each branch the model keeps the whole set of its files and all steps that led to it, by brute force.
A merge must give the target's files with each step of the source applied that the target lacks. Whether it is allowed
is decided for each pair of steps that would change places. At the end of every run old versions are read again, through
caches of another process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakemark_core.errors import BranchNotFound, CommitConflict, FailedPrecondition, InvalidArgument, LakemarkError
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import texts
from lakemark_server.snapshots.comparisons import DryMerge, VersionName
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.timeline.references import MergeDraft, ReferenceDraft
from lakemark_server.verify import verify
from tests.event_replay import replay_problems
from tests.lakes import Lake, file, files, open_lake, profile

Files = frozenset[str]
Apply = Callable[[Files], Files]
MONTHS = st.frozensets(st.integers(1, 3), min_size=1, max_size=2)


def month_of(path: str) -> str:
    return path.split("/")[1]


@dataclass(frozen=True, eq=False)
class Step:
    """What one version does: its kind, the partitions that it touches, and its effect on a set of files."""

    kind: str
    months: frozenset[str]
    apply: Apply

    def excludes(self, later: Step) -> bool:
        """Whether ``later``, which has not seen this step, must not come after it (policy "partition")."""
        if "restore" in (self.kind, later.kind):
            return True
        if later.kind == "append" and self.kind != "overwrite":
            return False
        return bool(self.months & later.months)

    def commutes(self, other: Step) -> bool:
        """Whether their order makes no difference to the files, if neither has seen the other."""
        if "restore" in (self.kind, other.kind):
            return False
        return "overwrite" not in (self.kind, other.kind) or not self.months & other.months


@dataclass
class Branch:
    """``states[v]``: the files of version v, inherited ones included. ``steps[v]``: all steps that led to it."""

    parent: str = ""
    fork: int = 0
    states: list[Files] = field(default_factory=lambda: [frozenset()])
    steps: list[tuple[Step, ...]] = field(default_factory=lambda: [()])

    @property
    def head(self) -> int:
        return len(self.states) - 1

    def add(self, *steps: Step) -> None:
        content = self.states[-1]
        for step in steps:
            content = step.apply(content)
        self.states.append(content)
        self.steps.append((*self.steps[-1], *steps))


def restoring(before: Files, content: Files) -> Step:
    """The step of a restore. On another branch it makes the same changes as on its own."""
    return Step("restore", frozenset(), lambda files: (files - (before - content)) | (content - before))


def named(months: frozenset[int]) -> frozenset[str]:
    return frozenset(f"m={month}" for month in months)


def overwriting(months: frozenset[int], paths: Files) -> Step:
    gone = named(months)
    return Step("overwrite", gone, lambda before: frozenset(one for one in before if month_of(one) not in gone) | paths)


class BranchesMachine(RuleBasedStateMachine):
    """Table "t" has branches; "u" only takes part in transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.exits = ExitStack()

    @initialize()
    def start(self) -> None:
        directory = self.exits.enter_context(tempfile.TemporaryDirectory())
        self.lake: Lake = self.exits.enter_context(open_lake(Path(directory)))
        self.t, self.u = self.lake.table("t"), self.lake.table("u")
        self.branches = {"main": Branch()}
        self.other = Branch()
        self.of_u: set[str] = set()  # all files that any writer wanted to add to "u"
        self.tags: dict[str, Files] = {}
        self.count = 0

    def teardown(self) -> None:
        if hasattr(self, "lake"):
            problems = verify(self.lake.store) + replay_problems(self.lake.store)
            self.exits.close()
            assert problems == []
        self.exits.close()

    # -- helpers ------------------------------------------------------------------------------------------------------

    def pick(self, which: int) -> str:
        return sorted(self.branches)[which % len(self.branches)]

    def open(self, table: LakeTable, branch: str, operation: t.Operation.ValueType, work: t.WorkProfile) -> int:
        self.lake.clock.advance(1)
        job = OpenJob(operation=operation, branch=branch, profile=work)
        return self.lake.timeline.open(table.table_id, job).record.instant

    def added(self, instant: int, months: frozenset[int]) -> tuple[CommitDraft, Files]:
        self.count += 1
        given = [file(instant, f"g{self.count}-{month}", month) for month in sorted(months)]
        self.wrote(given)
        return CommitDraft(instant=instant, added=files(*given)), frozenset(one.path for one in given)

    def readable(self, branch: str, version: int) -> bool:
        """A hook for the machine that cleans."""
        del branch, version
        return True

    def wrote(self, given: list[p.DataFile]) -> None:
        """A hook for the machine that has real files."""

    def read(self, **at: str | int) -> Files:
        found = Snapshots(self.lake.store).snapshot("", "default", "t", SnapshotReference(**at))  # type: ignore[arg-type]
        return frozenset(texts(found.snapshot.entries().column("path")))

    def compare(self, left: str, right: str) -> DryMerge:
        """Expects what each side has beyond the shared content, by brute force.

        Returns what a merge of the left side into the right one would do.
        """
        found = self.lake.comparer.compare(self.t, VersionName(left), VersionName(right))
        of_left, of_right = self.branches[left], self.branches[right]
        groups = []
        for side, one, other in (("left", of_left, of_right), ("right", of_right, of_left)):
            had = other.steps[-1]
            shared = max(version for version, steps in enumerate(one.steps) if set(steps) <= set(had))
            before = one.states[shared]
            for step in one.steps[-1][len(one.steps[shared]) :]:
                before = step.apply(before) if step in had else before
            added, removed = one.states[-1] - before, before - one.states[-1]
            totals = found.files.totals(side)
            assert (totals["added_files"], totals["removed_files"]) == (len(added), len(removed))
            groups.append({tuple(path.split("/")[1:3]) for path in added | removed})
            months = [month_of(path) for path in added | removed]
            rows = {row["partition"]: row for row in found.files.partitions.to_pylist()}
            assert {month: months.count(month) for month in set(months)} == {
                name: count
                for name, row in rows.items()
                if (count := row[f"{side}.added_files"] + row[f"{side}.removed_files"])
            }
        both = {(row["partition"], row["file_group"]) for row in found.files.groups.to_pylist()}
        assert both == groups[0] & groups[1]
        assert found.versions == tuple(
            len(set(one.steps[-1]) - set(other.steps[-1])) for one, other in ((of_left, of_right), (of_right, of_left))
        )
        return found.merges[0]

    # -- rules --------------------------------------------------------------------------------------------------------

    @rule(which=st.integers(0, 9), months=MONTHS)
    def append(self, which: int, months: frozenset[int]) -> None:
        name = self.pick(which)
        instant = self.open(self.t, name, t.APPEND, t.WorkProfile())
        draft, paths = self.added(instant, months)
        assert self.lake.timeline.commit(self.t, draft).version == self.branches[name].head + 1
        self.branches[name].add(Step("append", named(months), lambda before: before | paths))

    @rule(which=st.integers(0, 9), months=MONTHS)
    def overwrite(self, which: int, months: frozenset[int]) -> None:
        name = self.pick(which)
        instant = self.open(self.t, name, t.OVERWRITE_PARTITIONS, profile(*months))
        draft, paths = self.added(instant, months)
        self.lake.timeline.commit(self.t, draft)
        self.branches[name].add(overwriting(months, paths))

    @rule(which=st.integers(0, 9), places=st.sets(st.integers(0, 9), min_size=1, max_size=3), months=MONTHS)
    def rewrite(self, which: int, places: set[int], months: frozenset[int]) -> None:
        """An upsert that replaces files by name."""
        name = self.pick(which)
        live = sorted(self.branches[name].states[-1])
        if not live:
            return
        gone = frozenset(live[place % len(live)] for place in places)
        instant = self.open(self.t, name, t.UPSERT, t.WorkProfile())
        draft, paths = self.added(instant, months)
        self.lake.timeline.commit(self.t, draft._replace(removed=sorted(gone)))
        touched = named(months) | frozenset(map(month_of, gone))
        self.branches[name].add(Step("rewrite", touched, lambda before: (before - gone) | paths))

    @rule(which=st.integers(0, 9), version=st.integers(1, 30))
    def restore(self, which: int, version: int) -> None:
        name = self.pick(which)
        branch = self.branches[name]
        if not branch.head:
            return
        version = 1 + version % branch.head
        if not self.readable(name, version):
            return
        content = branch.states[version]
        self.lake.clock.advance(1)
        self.lake.timeline.restore(self.t, version, branch=name)
        branch.add(restoring(branch.states[-1], content))

    @precondition(lambda self: len(self.branches) < 5)
    @rule(which=st.integers(0, 9), version=st.integers(0, 30), name=st.sampled_from(["dev", "etl", "x_1"]))
    def make_branch(self, which: int, version: int, name: str) -> None:
        if name in self.branches:
            return
        parent = self.pick(which)
        branch = self.branches[parent]
        version %= branch.head + 1
        if not self.readable(parent, version):
            return
        owner = parent
        while owner != "main" and version <= self.branches[owner].fork:
            owner = self.branches[owner].parent
        request = ReferenceDraft(name=name, kind=c.BRANCH, from_branch=parent, from_version=version)
        made = self.lake.timeline.references.create(self.t, request)
        if version == 0:  # 0 means the latest
            version, owner = branch.head, parent
            while owner != "main" and version <= self.branches[owner].fork:
                owner = self.branches[owner].parent
        assert (made.parent, made.fork_version) == (owner, version)
        self.branches[name] = Branch(owner, version, branch.states[: version + 1], branch.steps[: version + 1])

    @precondition(lambda self: len(self.branches) > 1)
    @rule(which=st.integers(0, 9))
    def drop_branch(self, which: int) -> None:
        """Drops a branch that no other forked from, because the model finds the parents of a branch by name."""
        names = sorted(self.branches.keys() - {"main"} - {one.parent for one in self.branches.values()})
        if names:
            name = names[which % len(names)]
            instant = self.open(self.t, name, t.APPEND, t.WorkProfile())
            self.lake.timeline.references.drop(self.t, name)
            del self.branches[name]
            with pytest.raises(BranchNotFound):
                self.lake.timeline.commit(self.t, self.added(instant, frozenset([1]))[0])
            self.lake.timeline.rollback(self.t, instant, "its branch is gone")

    @precondition(lambda self: len(self.branches) > 1)
    @rule(
        which=st.integers(0, 9),
        other=st.integers(0, 9),
        fast=st.booleans(),
        work=st.sampled_from(["", "append", "overwrite"]),
        months=MONTHS,
    )
    def merge(self, which: int, other: int, fast: bool, work: str, months: frozenset[int]) -> None:
        """From any branch into another one, after some work on the first."""
        name, into = self.pick(which), self.pick(other)
        if work:
            {"append": self.append, "overwrite": self.overwrite}[work](which, months)
        self.lake.clock.advance(1)
        request = MergeDraft(branch=name, into=into, fast_forward_only=fast)
        if name == into:
            with pytest.raises(InvalidArgument, match="into itself"):
                self.lake.timeline.references.merge(self.t, request)
            return
        source, target = self.branches[name], self.branches[into]
        had, brings = target.steps[-1], source.steps[-1]
        missed = [step for step in had if step not in brings]
        replayed = [step for step in brings if step not in had]
        collides = any(theirs.excludes(mine) for mine in replayed for theirs in missed) or any(
            theirs.excludes(mine) and not (not missed and mine.commutes(theirs))
            for mine in replayed
            for theirs in brings[brings.index(mine) :]
            if theirs in had
        )
        dry = self.compare(name, into)
        assert (dry.refused is not None) == collides
        try:
            done = self.lake.timeline.references.merge(self.t, request)
        except FailedPrecondition:
            assert not replayed or (fast and missed)
            return
        except CommitConflict:
            assert collides, "it collides with nothing"
            return
        assert replayed
        assert not collides
        assert not (fast and missed)
        target.add(*replayed)
        assert (done.version, done.replayed, done.fast_forward) == (target.head, len(replayed), not missed)
        assert (dry.replayed, dry.fast_forward) == (len(replayed), not missed)
        if not missed:
            assert target.states[-1] == source.states[-1], "both have the same now"

    @rule(which=st.integers(0, 9), version=st.integers(0, 30))
    def make_tag(self, which: int, version: int) -> None:
        name, branch = f"tag{len(self.tags)}", self.branches[self.pick(which)]
        if not branch.head:
            return
        version = 1 + version % branch.head
        if not self.readable(self.pick(which), version):
            return
        request = ReferenceDraft(
            name=name, kind=c.TAG, from_branch=self.pick(which), from_version=version, request_id=name
        )
        first = self.lake.timeline.references.create(self.t, request)
        assert self.lake.timeline.references.create(self.t, request) == first
        self.tags[name] = branch.states[version]

    @rule(which=st.integers(0, 9), months=MONTHS, late=st.booleans(), again=st.booleans())
    def both_tables(self, which: int, months: frozenset[int], late: bool, again: bool) -> None:
        """An overwrite of "t" and an append to "u" in one transaction. ``late``: another writer was first in "t"."""
        name = self.pick(which)
        first = self.open(self.t, name, t.OVERWRITE_PARTITIONS, profile(*months))
        second = self.open(self.u, "", t.APPEND, t.WorkProfile())
        if late:
            self.append(which, months)
        of_t, in_t = self.added(first, months)
        of_u, in_u = self.added(second, months)
        self.of_u |= in_u
        commits = [(self.t, of_t), (self.u, of_u)]
        request_id = f"both {self.count}"
        try:
            done = self.lake.timeline.commit_together(commits, request_id)
        except CommitConflict:
            assert late
            assert self.lake.timeline.instant(self.u.table_id, second)[0].state == t.INFLIGHT
            self.lake.timeline.rollback(self.u, second, "its partner lost")
            return
        assert not late
        if again:
            assert self.lake.timeline.commit_together(commits, request_id) == done
            assert self.lake.timeline.commit_together(commits) == done
        self.branches[name].add(overwriting(months, in_t))
        self.other.add(Step("append", named(months), lambda before: before | in_u))

    # -- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def every_version_of_every_branch_holds_what_it_did(self) -> None:
        if not hasattr(self, "lake"):
            return
        snapshots = Snapshots(self.lake.store)
        for name, branch in self.branches.items():
            for version, wanted in enumerate(branch.states):
                found = snapshots.snapshot("", "default", "t", SnapshotReference(branch=name, version=version))
                assert sorted(texts(found.snapshot.entries().column("path"))) == sorted(wanted), (name, version)
        for name, wanted in self.tags.items():
            assert self.read(tag=name) == wanted
        found = snapshots.snapshot("", "default", "u", SnapshotReference())
        assert frozenset(texts(found.snapshot.entries().column("path"))) == self.other.states[-1]

    @invariant()
    def names_lead_to_heads(self) -> None:
        if hasattr(self, "lake"):
            found = self.lake.timeline.references.find(self.t, c.BRANCH)
            assert {one.name: one.version for one in found} == {name: b.head for name, b in self.branches.items()}


TestBranches = BranchesMachine.TestCase
TestBranches.settings = settings(max_examples=15, stateful_step_count=25, suppress_health_check=list(HealthCheck))


def test_a_commit_that_was_made_alone_takes_no_part_in_a_transaction(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        one, two = lake.table("a"), lake.table("b")
        first, second = lake.open(one), lake.open(two)
        lake.commit(one, first)
        with pytest.raises(LakemarkError, match="published together or none"):
            lake.timeline.commit_together([(one, CommitDraft(instant=first)), (two, CommitDraft(instant=second))])
        assert lake.timeline.instant(two.table_id, second)[0].state == t.INFLIGHT
