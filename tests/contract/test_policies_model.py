"""Every conflict policy, checked on rows: any mix of writers, table services and restores on a real timeline.

Two questions are asked of each version. Does a reader see what these works give when done one after another in the
order of their versions (``tests/policies.py``)? That is the promise: no change is lost, undone or brought back. And
were exactly those writers refused that had to be? For that the model knows what each writer touches, and has its own
rules for when two writers are too close.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from lakemark_core.errors import CommitConflict
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog.lake import POLICIES, POLICY_PROPERTY, PREFERENCE_PROPERTY, PREFERENCES
from lakemark_server.file_index.arrow import texts
from lakemark_server.kv import open_store
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_server.snapshots.slices import latest_slices
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.timeline.service import Timeline
from lakemark_server.verify import verify
from tests.event_replay import replay_problems
from tests.lakes import SCHEMA, Clock, Lake, files, profile
from tests.lengths import long
from tests.policies import COLUMNS, KEYS, MONTHS, Content, Key, Place, Plan, State, View, Work, Writer
from tests.stores import store_url

CHANGES = {t.UPSERT, t.DELETE, t.OVERWRITE_PREDICATE}  # change rows that the writer has read
REPLACES = {t.OVERWRITE_PARTITIONS, t.OVERWRITE_TABLE}  # replace any content
WRITES = CHANGES | REPLACES | {t.APPEND}
SERVICES = {t.COMPACT, t.CLUSTER}

# All pairs should meet in a short run, and seldom on an empty table. The second one is often refused.
_operations = st.sampled_from(
    [t.UPSERT] * 4 + [t.DELETE] * 2 + [t.APPEND] * 2 + [t.COMPACT] * 2 + [t.CLUSTER] * 2
    + [t.OVERWRITE_PREDICATE] * 2 + [t.OVERWRITE_PARTITIONS, t.OVERWRITE_TABLE]
)  # fmt: skip
_any_operation = st.sampled_from(sorted(WRITES | SERVICES))
_keys = st.frozensets(st.sampled_from(KEYS[:2] * 4 + KEYS), min_size=1, max_size=3)  # some keys are hot
_months = st.frozensets(st.sampled_from(list(MONTHS)), min_size=1)
_which = st.integers(0, 1_000_000)


@st.composite
def works(
    draw: st.DrawFn,
    operations: st.SearchStrategy[t.Operation.ValueType] = _operations,
    keys: frozenset[Key] | None = None,
) -> Work:
    operation = draw(operations)
    columns = draw(st.sampled_from(["", "", "a", "b", "ab"])) if operation == t.UPSERT else ""
    names_months = operation == t.OVERWRITE_PARTITIONS or (operation in CHANGES - {t.UPSERT} and draw(st.booleans()))
    return Work(
        operation,
        keys or draw(_keys),
        frozenset(columns),
        draw(_months) if names_months else None,
        rewrites=draw(st.integers(0, 3)) == 0,
        tag=draw(st.integers(0, 1)),
        index=draw(st.integers(0, 1)),
        by_tag=draw(st.booleans()),
        event_time=draw(st.integers(0, 9)),
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Work, Work]:
    """Two works, which mostly want the same rows."""
    one = draw(works())
    return one, draw(works(_any_operation, one.keys if draw(st.integers(0, 3)) else None))


@dataclass
class Footprint:
    """What a writer touches, as far as it is known. ``months`` None: all."""

    operation: t.Operation.ValueType
    months: frozenset[int] | None = frozenset()
    groups: frozenset[str] = frozenset()
    places: frozenset[Place] = frozenset()
    columns: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    begun: frozenset[Place] = frozenset()


def near(one: Footprint, other: Footprint) -> bool:
    """Whether both touch a common month."""
    if one.months is None or other.months is None:
        return one.months != frozenset() and other.months != frozenset()
    return bool(one.months & other.months)


def collide(policy: str, mine: Footprint, theirs: Footprint) -> bool:
    operations = {mine.operation, theirs.operation}
    month = near(mine, theirs)
    if t.RESTORE_VERSION in operations:
        return True
    if month and (mine.removed & theirs.removed or mine.begun & theirs.begun):
        return True  # only one of them can be done
    group = month and bool(mine.groups & theirs.groups)
    if operations <= WRITES:
        return _writers_collide(policy, mine, theirs, month, group)
    if operations <= SERVICES:
        return group
    if theirs.operation in REPLACES:  # the table service would bring back removed rows
        return month or theirs.operation == t.OVERWRITE_TABLE
    return t.CLUSTER in operations and bool(operations & CHANGES) and group


def _writers_collide(policy: str, mine: Footprint, theirs: Footprint, month: bool, group: bool) -> bool:
    operations = {mine.operation, theirs.operation}
    if policy == "table" or t.OVERWRITE_TABLE in operations:
        return True
    if t.OVERWRITE_PARTITIONS in operations or operations == {t.OVERWRITE_PREDICATE}:
        return month
    if t.APPEND in operations:  # blind: a later writer may have had to read it, or may replace its rows by predicate
        blind = operations == {t.APPEND} or (mine.operation == t.APPEND and theirs.operation != t.OVERWRITE_PREDICATE)
        return policy == "partition" and month and not blind
    match policy:
        case "partition":
            return month
        case "file":
            return group and bool(mine.places & theirs.places)
        case "column":
            whole = not mine.columns or not theirs.columns
            return group and (whole or bool(mine.columns & theirs.columns))
        case "row":
            return group and t.OVERWRITE_PREDICATE in operations
    return group


def check_named(conflict: CommitConflict, expected: set[int]) -> None:
    """The refusal was correct, and names an instant that justifies it."""
    assert int(conflict.details["instant"]) in expected, conflict.message


@dataclass
class Open:
    """A writer, in flight or done."""

    writer: Writer
    instant: int
    read_version: int
    plan: Plan
    told: Footprint
    actual: Footprint
    state: str = "inflight"


class PoliciesMachine(RuleBasedStateMachine):
    """A run under one policy."""

    policy: str

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        directory = Path(self._directory.name)
        self.lake = Lake(open_store(store_url(directory)), directory, Clock())
        self.numbers = 0
        self.contents: dict[str, Content] = {}  # by path
        self.open_: list[Open] = []
        self.done: list[tuple[int, Footprint]] = []  # in the order of their versions
        self.states = [State()]  # by version
        self.views: list[View] = []  # likewise

    def teardown(self) -> None:
        if hasattr(self, "table"):
            for version, state in enumerate(self.states):
                assert self.view(version).state() == state, f"version {version} has changed"
        assert verify(self.lake.store) + replay_problems(self.lake.store) == []
        self.lake.store.close()
        self._directory.cleanup()

    @initialize(preference=st.sampled_from(PREFERENCES))
    def create(self, preference: str) -> None:
        self.preference = preference
        properties = {POLICY_PROPERTY: self.policy, PREFERENCE_PROPERTY: preference}
        record = LakeTableRecord(database="default", name="t", properties=properties)
        self.table = self.lake.catalog.create_lake_table(record, SCHEMA)
        self.views = [self.view(0)]

    # -- what is there -------------------------------------------------------------------------------------------------

    def view(self, version: int) -> View:
        found = self.lake.snapshots.snapshot("", "default", "t", SnapshotReference(version=version)).snapshot
        slices: dict[Place, list[tuple[str, Content]]] = {}
        page = latest_slices(self.lake.planner, found, None).page(0, 1_000)
        for path in texts(page.column("path")):
            content = self.contents[path]
            slices.setdefault(content.place, []).append((path, content))
        return View(self.policy, slices)

    def footprint(self, writer: Writer, plan: Plan) -> Footprint:
        work = writer.work
        changes = work.operation in CHANGES
        gone = [place for place, _ in plan.removed]
        touched = [*gone, *(one.place for one in plan.added if changes or work.operation == t.COMPACT)]
        months = {place[0] for place in gone} | {one.month for one in plan.added}
        makes = changes or work.operation == t.COMPACT
        based = {place for place, path in plan.removed if not self.contents[path].delta}
        begun = {one.place for one in plan.added if makes and not one.delta} - based
        everywhere = work.operation == t.OVERWRITE_TABLE or (
            work.operation in (t.DELETE, t.OVERWRITE_PREDICATE) and work.months is None
        )
        return Footprint(
            work.operation,
            None if everywhere else frozenset(months) | (work.months or frozenset()),
            frozenset(group for _, group in touched),
            frozenset(touched),
            work.columns,
            frozenset(path for _, path in plan.removed),
            frozenset(begun),
        )

    # -- the model's rules ---------------------------------------------------------------------------------------------

    def lost_against(self, mine: Footprint, read_version: int) -> set[int]:
        """Instants of the commits since its read version that exclude the writer."""
        return {instant for instant, theirs in self.done[read_version:] if collide(self.policy, mine, theirs)}

    def gives_way(self, mine: Footprint, theirs: Footprint) -> bool:
        if self.preference == "clustering":
            return theirs.operation == t.CLUSTER and mine.operation in WRITES
        return mine.operation == t.CLUSTER and theirs.operation in WRITES

    def blocked_by(self, mine: Footprint) -> set[int]:
        """Writers in flight that have precedence, by what they have declared."""
        return {
            other.instant
            for other in self.living()
            if not self.gives_way(other.told, mine) and collide(self.policy, mine, other.told)
        }

    def living(self) -> list[Open]:
        return [one for one in self.open_ if one.state == "inflight"]

    # -- what happens --------------------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(
            ["after"] * 10 + ["beside"] * 4 + ["begin"] * 2 + ["commit"] * 3 + ["restore", "give up", "other process"]
        ),
        pair=pairs(),
        which=_which,
        behind=st.sampled_from([0, 0, 0, 1, 2, 3]),
        tells=st.sampled_from([False, False, True]),
    )
    def step(self, what: str, pair: tuple[Work, Work], which: int, behind: int, tells: bool) -> None:
        """One rule for all kinds of steps, so that every run has some of each."""
        living = self.living()
        if what == "after":  # a commit that the second has not read; it overtakes slow writers
            self.finish(self.begin(pair[0], 0, tells=False))
            self.finish(self.begin(pair[1], 1, tells))
        elif what == "beside":
            first, second = self.begin(pair[0], 0, tells), self.begin(pair[1], 0, tells)
            self.finish(second)
            self.finish(first)
        elif what == "begin" or not living:
            self.begin(pair[0], behind, tells)
        elif what == "commit":
            self.finish(living[which % len(living)])
        elif what == "restore" and len(self.states) > 3:
            self.restore(len(self.states) - 2 - behind)
            self.finish(self.begin(pair[1], 1, tells))
        elif what == "give up" and len(living) > 2:
            self.lake.timeline.rollback(self.table, living[0].instant, "")
            living[0].state = "gone"
        else:  # nothing essential is kept outside the store
            self.lake.timeline = Timeline(self.lake.store, self.lake.snapshots, self.lake.clock)

    def begin(self, work: Work, behind: int, tells: bool) -> Open | None:
        latest = len(self.states) - 1
        read_version = max(1, latest - behind) if latest else 0
        self.numbers += 1
        writer = Writer(self.numbers, self.policy, work)
        view = self.views[read_version]
        draft = writer.plan(view, 0)
        actual = self.footprint(writer, draft)
        told = self._told(actual, work, tells)
        expected = self.lost_against(told, read_version) | self.blocked_by(told)
        request = profile(*sorted(told.months or ()), whole_table=False)
        request.file_groups.extend(sorted(told.groups))
        request.columns.extend(COLUMNS[one] for one in sorted(told.columns))
        job = OpenJob(operation=work.operation, profile=request, read_version=read_version)
        try:
            instant = self.lake.timeline.open(self.table.table_id, job).record.instant
        except CommitConflict as conflict:
            check_named(conflict, expected)
            return None
        assert not expected, f"{told} had to be refused"
        plan = writer.plan(view, instant)
        opened = Open(writer, instant, read_version, plan, told, self.footprint(writer, plan))
        self.open_.append(opened)
        return opened

    def _told(self, actual: Footprint, work: Work, tells: bool) -> Footprint:
        """The work profile: everything that can be declared, or only what must be."""
        must = work.operation == t.OVERWRITE_PARTITIONS or actual.months is None or work.months is not None
        months = actual.months if tells else work.months
        if actual.months is None:
            months = None
        told = Footprint(actual.operation, months if tells or must else frozenset(), columns=actual.columns)
        told.groups = actual.groups if tells else frozenset()
        return told

    def finish(self, one: Open | None) -> None:
        """Commits the writer; None: it was refused when it began."""
        if one is None:
            return
        mine = one.actual
        expected = self.lost_against(mine, one.read_version)
        favoured = {
            other.instant
            for other in self.living()
            if other is not one and self.gives_way(mine, other.told) and collide(self.policy, other.told, mine)
        }
        added = [content.as_file(one.instant) for content in one.plan.added]
        removed = [path for _, path in one.plan.removed]
        try:
            answer = self.lake.timeline.commit(self.table, CommitDraft(one.instant, files(*added), removed))
        except CommitConflict as conflict:
            one.state = "refused"
            check_named(conflict, expected or favoured)
            return
        assert not expected, f"{mine} had to be refused: {expected}"
        assert not favoured, f"{mine} had to give way to {favoured}"
        one.state = "committed"
        assert answer.version == len(self.states)
        self.contents |= {file.path: content for file, content in zip(added, one.plan.added, strict=True)}
        self.publish(one.instant, mine, one.writer.run(self.states[-1], one.plan))

    def publish(self, instant: int, footprint: Footprint, state: State) -> None:
        self.done.append((instant, footprint))
        self.states.append(state)
        self.views.append(self.view(len(self.states) - 1))
        assert self.views[-1].state() == state

    def restore(self, version: int) -> None:
        version = max(1, version)
        answer = self.lake.timeline.restore(self.table, version)
        self.publish(answer.instant, Footprint(t.RESTORE_VERSION, months=None), self.states[version])


def run(policy: str, **given: Any) -> None:
    machine = type("Machine", (PoliciesMachine,), {"policy": policy})
    run_state_machine_as_test(machine, settings=settings(suppress_health_check=list(HealthCheck), **given))


@pytest.mark.parametrize("policy", POLICIES)
def test_policy(policy: str) -> None:
    """Does not shrink failures; the long run does."""
    run(policy, max_examples=5, stateful_step_count=40, phases=[Phase.explicit, Phase.reuse, Phase.generate])


@pytest.mark.slow
@pytest.mark.timeout(long(1_200))
@pytest.mark.parametrize("policy", POLICIES)
def test_policy_for_long(policy: str) -> None:
    run(policy, max_examples=long(30), stateful_step_count=60)
