"""Any mix of writers against a brute-force model: who may commit what, and what every version then holds.

The model states the rules in its own, simple words. Under the policy ``table`` two writers always collide. Under
``partition`` they collide if one of them overwrites and they touch a common partition, or if one of them overwrites the
whole table.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakemark_core.errors import CommitConflict, InstantStateError
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.kv import open_store
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline.publication.commits import Committed
from lakemark_server.timeline.service import Timeline
from lakemark_server.verify import verify
from tests.event_replay import replay_problems
from tests.lakes import Clock, Lake, file, profile
from tests.lengths import long
from tests.stores import store_url

APPEND, PARTITIONS, WHOLE = t.APPEND, t.OVERWRITE_PARTITIONS, t.OVERWRITE_TABLE
TIMEOUT_MS = 100

_numbers = itertools.count()
_months = st.frozensets(st.integers(0, 2), max_size=2)
_operations = st.sampled_from([APPEND] * 4 + [PARTITIONS] * 4 + [WHOLE])
_which = st.integers(0, 1_000_000)


@dataclass
class Writer:
    """One instant in the model. ``months`` are the declared ones and those of its files."""

    instant: int
    operation: t.Operation.ValueType
    read_version: int
    deadline: int
    state: str = "requested"
    months: set[int] = field(default_factory=set)
    files: list[p.DataFile] = field(default_factory=list)
    sequence: int = 0
    version: int = 0
    answer: Committed | None = None
    lost_to: set[int] = field(default_factory=set)  # instants: a refused commit stays refused for the same reason


def check_named(conflict: CommitConflict, expected: set[int]) -> None:
    """The refusal was correct, and names an instant that justifies it."""
    assert int(conflict.details["instant"]) in expected


class TimelineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        directory = Path(self._directory.name)
        self.clock = Clock()
        self.lake = Lake(open_store(store_url(directory)), directory, self.clock)
        self.writers: list[Writer] = []
        self.done: list[Writer] = []  # in the order of their versions
        self.contents: list[dict[str, int]] = [{}]  # by version: month of each live file

    def teardown(self) -> None:
        self.hold(self.contents)
        assert verify(self.lake.store) + replay_problems(self.lake.store) == []
        self.lake.store.close()
        self._directory.cleanup()

    @initialize(policy=st.sampled_from(["partition", "partition", "table"]))
    def create(self, policy: str) -> None:
        self.policy = policy
        self.table = self.lake.table(policy=policy)

    # -- the model's rules ---------------------------------------------------------------------------------------------

    def collide(self, one: Writer, other: Writer) -> bool:
        operations = {one.operation, other.operation}
        if self.policy == "table":
            return True
        if operations == {APPEND}:
            return False
        return WHOLE in operations or bool(one.months & other.months)

    def lost_against(self, writer: Writer) -> set[int]:
        """Instants of the commits since its read version that exclude the writer."""
        return {other.instant for other in self.done[writer.read_version :] if self.collide(writer, other)}

    def blocked_by(self, writer: Writer) -> set[int]:
        """Instants of the open writers in flight that exclude it."""
        return {
            other.instant
            for other in self.writers
            if other is not writer
            and other.state == "inflight"
            and other.deadline >= self.clock()
            and self.collide(writer, other)
        }

    def pick(self, which: int, *states: str) -> Writer:
        candidates = [writer for writer in self.writers if not states or writer.state in states]
        return candidates[which % len(candidates)]

    def some(self, *states: str) -> bool:
        return any(writer.state in states for writer in self.writers)

    def expired(self, writer: Writer) -> bool:
        return writer.deadline < self.clock()

    def new_files(self, writer: Writer, months: frozenset[int]) -> list[p.DataFile]:
        return [file(writer.instant, f"f{next(_numbers)}", month) for month in sorted(months)]

    # -- what happens --------------------------------------------------------------------------------------------------

    @rule(operation=_operations, months=_months)
    def short_commit(self, operation: t.Operation.ValueType, months: frozenset[int]) -> None:
        """Opens and commits at once, and so overtakes slow writers."""
        before = len(self.writers)
        self.open(operation, frozenset(), start=True, behind=0)
        for writer in self.writers[before:]:
            self.commit_by(writer, months)

    @rule(operation=_operations, months=_months, start=st.booleans(), behind=st.sampled_from([0, 0, 0, 1, 3]))
    def open(self, operation: t.Operation.ValueType, months: frozenset[int], start: bool, behind: int) -> None:
        """``behind``: the writer has read an older version."""
        latest = len(self.done)
        read_version = max(1, latest - behind) if latest else 0
        writer = Writer(0, operation, read_version, self.clock() + TIMEOUT_MS)
        if start:
            writer.state, writer.months = "inflight", set(months)
        expected = self.lost_against(writer) | self.blocked_by(writer) if start else set()
        work = profile(*sorted(months), whole_table=False)
        try:
            writer.instant = self.lake.open(
                self.table, operation, work, start=start, timeout_ms=TIMEOUT_MS, read_version=read_version
            )
        except CommitConflict as conflict:
            check_named(conflict, expected)
            return
        assert not expected, "it had to be refused"
        assert all(writer.instant > other.instant for other in self.writers)
        self.writers.append(writer)

    @precondition(lambda self: self.writers)
    @rule(which=_which, months=_months)
    def start(self, which: int, months: frozenset[int]) -> None:
        writer = self.pick(which)
        before = writer.months
        refusals = self.start_refusals(writer, months)
        try:
            self.lake.timeline.start(self.table.table_id, writer.instant, profile(*sorted(months)))
        except CommitConflict as conflict:
            check_named(conflict, refusals)
            writer.months = before
        except InstantStateError:
            assert writer.state in {"committed", "gone"} or (writer.state == "requested" and self.expired(writer))
            writer.months = before
        else:
            assert not refusals
            assert writer.state in {"requested", "inflight"}
            if writer.state == "requested":
                writer.state, writer.deadline = "inflight", self.clock() + TIMEOUT_MS

    def start_refusals(self, writer: Writer, months: frozenset[int]) -> set[int]:
        if writer.state != "requested" or self.expired(writer):
            return writer.lost_to
        writer.months = set(months)
        return self.lost_against(writer) | self.blocked_by(writer)

    @precondition(lambda self: self.writers)
    @rule(which=_which, months=_months, again=st.booleans())
    def stage(self, which: int, months: frozenset[int], again: bool) -> None:
        writer = self.pick(which)
        given = self.new_files(writer, months)
        try:
            count = self.lake.stage(self.table, writer.instant, writer.sequence + 1, given)
            if again:
                assert self.lake.stage(self.table, writer.instant, writer.sequence + 1, given) == count
        except CommitConflict as conflict:
            check_named(conflict, writer.lost_to)
            return
        except InstantStateError:
            assert writer.state != "inflight"
            return
        assert writer.state == "inflight"
        writer.sequence += 1
        writer.files += given
        writer.months |= months
        assert count == len(writer.files)

    @precondition(lambda self: self.writers)
    @rule(which=_which, months=st.one_of(st.none(), _months))
    def commit(self, which: int, months: frozenset[int] | None) -> None:
        self.commit_by(self.pick(which), months)

    @precondition(lambda self: self.some("inflight"))
    @rule(which=_which, months=_months)
    def commit_one_in_flight(self, which: int, months: frozenset[int]) -> None:
        self.commit_by(self.pick(which, "inflight"), months)

    def commit_by(self, writer: Writer, months: frozenset[int] | None) -> None:
        given = [] if months is None else self.new_files(writer, months)
        ready = writer.state == "inflight" and not self.expired(writer)
        if ready:
            writer.files += given
            writer.months |= months or frozenset()
        expected = self.lost_against(writer) if ready else writer.lost_to
        try:
            answer = self.lake.commit(self.table, writer.instant, None if months is None else given)
        except CommitConflict as conflict:
            check_named(conflict, expected)
            writer.state, writer.lost_to = "gone", expected
        except InstantStateError:
            assert not ready
            assert writer.state != "committed"
        else:
            if writer.state == "committed":
                assert answer == writer.answer, "asked again, it answers the same"
                return
            assert ready
            assert not expected
            self.publish(writer, answer)

    def publish(self, writer: Writer, answer: Committed) -> None:
        assert answer.version == len(self.done) + 1
        assert answer.rebased_over == len(self.done) - writer.read_version
        writer.state, writer.version, writer.answer = "committed", answer.version, answer
        self.done.append(writer)
        content = {} if writer.operation == WHOLE else dict(self.contents[-1])
        if writer.operation == PARTITIONS:
            content = {path: month for path, month in content.items() if month not in writer.months}
        self.contents.append(content | {one.path: one.partition[0].integer for one in writer.files})

    @precondition(lambda self: len(self.writers) > 2)
    @rule(which=_which)
    def rollback(self, which: int) -> None:
        writer = self.pick(which)
        try:
            self.lake.timeline.rollback(self.table, writer.instant, "")
        except InstantStateError:
            assert writer.state == "committed"
        else:
            assert writer.state != "committed"
            writer.state = "gone"

    @rule(what=st.sampled_from(["heartbeat", "sweep", "another process", 1, 10, TIMEOUT_MS, TIMEOUT_MS + 1]))
    def meanwhile(self, what: str | int) -> None:
        """One rule for all other events, so that they do not crowd out the rules of writers."""
        if isinstance(what, int):
            self.clock.advance(what)
        elif what == "heartbeat":
            self.heartbeat()
        elif what == "sweep":
            self.sweep()
        else:  # nothing essential is kept outside the store
            self.lake.timeline = Timeline(self.lake.store, self.lake.snapshots, self.clock)
            self.lake.snapshots = Snapshots(self.lake.store, cache_bytes=5_000)

    def heartbeat(self) -> None:
        living = [one for one in self.writers if one.state in {"requested", "inflight"} and not self.expired(one)]
        lost = self.lake.timeline.heartbeat(self.table.table_id, [one.instant for one in self.writers])
        assert set(lost) == {one.instant for one in self.writers} - {one.instant for one in living}
        for writer in living:
            writer.deadline = self.clock() + TIMEOUT_MS

    def sweep(self) -> None:
        lost = [one for one in self.writers if one.state in {"requested", "inflight"} and self.expired(one)]
        assert {instant for _, instant in self.lake.timeline.roll_back_expired()} == {one.instant for one in lost}
        for writer in lost:
            writer.state = "gone"

    @invariant()
    def the_newest_versions_hold_what_they_should(self) -> None:
        """Older versions are checked at the end, because a change to an old version would not be undone later."""
        if hasattr(self, "table"):
            self.hold(self.contents[-2:])

    def hold(self, newest: list[dict[str, int]]) -> None:
        for version, content in enumerate(newest, len(self.contents) - len(newest)):
            assert self.lake.paths(self.table, version) == sorted(content), f"version {version}"


class TestTimeline(TimelineMachine.TestCase):  # type: ignore[misc]
    """Does not shrink failures; the long run does."""

    settings = settings(
        max_examples=35,
        stateful_step_count=60,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )


@pytest.mark.slow
@pytest.mark.timeout(long(1_200))
class TestTimelineLong(TimelineMachine.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=long(100), stateful_step_count=80, suppress_health_check=list(HealthCheck))
