"""What should be done to a partition, and if nothing: why not, and what would change it. Pure.

The planner acts by these decisions, and ``lakemark optimize why`` shows them: there is no other reasoning. Each text
compares the figures that were compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from lakemark_core.optimization import (
    ATTEMPTS_PROPERTY,
    DELETE_PERCENT_PROPERTY,
    DELTA_BYTES_PROPERTY,
    DELTA_COMMITS_PROPERTY,
    ENABLED_PROPERTY,
    FRAGMENTS_PROPERTY,
    INTERVAL_PROPERTY,
    MINOR_INTERVAL_PROPERTY,
    RUN_BYTES_PROPERTY,
    SEGMENTS_PROPERTY,
    OptimizationPolicy,
)
from lakemark_proto.store.v1.optimization_pb2 import AskedOptimization, OptimizationRecord, PartitionHistory
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_server.context.clock import TIME_MS_MAX, time_text
from lakemark_server.optimization.measures import PartitionMeasure

RETRY_FIRST_MS: Final = 30_000
RETRY_LONGEST_MS: Final = 3_600_000
COST_BYTES_MIN: Final = 1 << 20
"""A smaller run costs as much: what it takes to begin one."""
NOBODY_READS: Final = 0.1
"""The weight of a table that nobody has read for a day, beside one with a read."""

State: TypeAlias = pb.OptimizationState.ValueType
Kind: TypeAlias = pb.OptimizationKind.ValueType

# The most telling state of a table's partitions is that of the table.
URGENCY: Final[Mapping[int, int]] = {
    state: place
    for place, state in enumerate(
        (
            pb.RUNNING,
            pb.PLANNED,
            pb.STOPPED,
            pb.BACKING_OFF,
            pb.PENDING,
            pb.HELD,
            pb.RESTING,
            pb.IDLE,
        )
    )
}


_SERVED: Final = (pb.IDLE, pb.STOPPED)
"""States in which nothing comes of what was asked for."""


@dataclass(frozen=True, slots=True)
class Decision:
    """``change``: what would change it. ``next_ms``: when time alone does; 0: never. ``kind``, ``benefit`` and
    ``cost_bytes`` are those of the run that is wanted (state PENDING) or under way."""

    measure: PartitionMeasure
    state: State
    reason: str
    change: str = ""
    next_ms: int = 0
    kind: Kind = pb.OPTIMIZATION_KIND_UNSPECIFIED
    benefit: float = 0.0
    cost_bytes: int = 0

    @property
    def wanted(self) -> bool:
        """Whether a run should be planned."""
        return self.state == pb.PENDING

    @property
    def score(self) -> float:
        """Benefit for each MiB that is read: the greater, the sooner."""
        return self.benefit * (1 << 20) / max(self.cost_bytes, COST_BYTES_MIN)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What decisions go by beside the figures of the files. ``reads``: plan requests of the last day.

    ``holds`` by partition ("": the table), ``tasks``: open ones by partition, ``histories`` by partition.
    """

    now_ms: int
    record: OptimizationRecord = field(default_factory=OptimizationRecord)
    holds: Mapping[str, pb.OptimizationHold] = field(default_factory=dict)
    tasks: Mapping[str, pb.OptimizationTask] = field(default_factory=dict)
    histories: Mapping[str, PartitionHistory] = field(default_factory=dict)
    reads: int = 0


@dataclass(frozen=True, slots=True)
class _Want:
    """A run that the figures ask for. ``since_ms``: from when on; 0: now."""

    kind: Kind
    reason: str
    saved_files: float
    cost_bytes: int


def decide(measures: Sequence[PartitionMeasure], policy: OptimizationPolicy, facts: TableFacts) -> list[Decision]:
    """A decision for each partition, the most urgent first."""
    whole = _of_table(policy, facts)
    decisions = [
        _with_measure(whole, measure) if whole is not None else _of_partition(measure, policy, facts)
        for measure in measures
    ]
    return sorted(decisions, key=lambda one: (URGENCY.get(one.state, len(URGENCY)), -one.score, one.measure.name))


def summary(decisions: Sequence[Decision], policy: OptimizationPolicy, facts: TableFacts) -> tuple[State, str, str]:
    """State, reason and what would change it, of the table as a whole."""
    whole = _of_table(policy, facts)
    if whole is not None:
        return whole.state, whole.reason, whole.change
    if not decisions:
        return pb.IDLE, "the table has no files", "a commit"
    first = decisions[0]
    same = sum(one.state == first.state for one in decisions)
    name = f"partition {first.measure.name}: " if first.measure.name else ""
    others = f" ({same} of {len(decisions)} partitions are in this state)" if len(decisions) > 1 else ""
    return first.state, f"{name}{first.reason}{others}", first.change


def next_look_ms(decisions: Iterable[Decision]) -> int:
    """When time alone changes one of the decisions; 0: never."""
    return min((one.next_ms for one in decisions if one.next_ms), default=0)


def retry_pause_ms(failures: int) -> int:
    """How long a partition is left alone after so many failures in a row."""
    return int(min(RETRY_LONGEST_MS, RETRY_FIRST_MS * 2 ** min(failures - 1, 20)))


def _with_measure(whole: Decision, measure: PartitionMeasure) -> Decision:
    return replace(whole, measure=measure)


_NO_MEASURE: Final = PartitionMeasure("", 0, 0, 0, 0)


def _of_table(policy: OptimizationPolicy, facts: TableFacts) -> Decision | None:
    """The decision for all partitions, if there is one."""
    record = facts.record
    if record.paused_ms:
        why = f": {record.paused_reason}" if record.paused_reason else ""
        by = f" by {record.paused_by}" if record.paused_by else ""
        return Decision(
            _NO_MEASURE,
            pb.PAUSED,
            f"paused{by} at {time_text(record.paused_ms)}{why}",
            "lakemark optimize resume",
        )
    return None if policy.enabled or record.asked else _switched_off(_NO_MEASURE)


def _switched_off(measure: PartitionMeasure) -> Decision:
    return Decision(measure, pb.SWITCHED_OFF, f"{ENABLED_PROPERTY} is false", f"set {ENABLED_PROPERTY} to true")


def _of_partition(measure: PartitionMeasure, policy: OptimizationPolicy, facts: TableFacts) -> Decision:
    name, now = measure.name, facts.now_ms
    task = facts.tasks.get(name)
    if task is not None:
        return _under_way(measure, task)
    history = facts.histories.get(name) or PartitionHistory()
    asked = _asked(facts.record.asked, name, history)
    if not policy.enabled and asked is None:
        return _switched_off(measure)
    # Who asks knows of the failures before, and not of those after.
    again = asked is not None and asked.asked_ms >= history.failed_ms
    if history.stopped_ms and not again:
        return Decision(
            measure,
            pb.STOPPED,
            f"stopped at {time_text(history.stopped_ms)} after {history.failures} failures in a row "
            f"({ATTEMPTS_PROPERTY} = {policy.attempts_max}); the last one: {history.last_error}",
            "mend what failed, then lakemark optimize resume",
        )
    if history.retry_ms > now and not again:
        return Decision(
            measure,
            pb.BACKING_OFF,
            f"failed {_times(history.failures)} of {policy.attempts_max}, and is tried again in "
            f"{_seconds(history.retry_ms - now)}; the last failure: {history.last_error}",
            "time, or lakemark optimize run",
            history.retry_ms,
        )
    want = _wanted_by(asked, measure, policy) if asked is not None else _wanted(measure, policy, history, now)
    if isinstance(want, Decision):
        return want
    hold = hold_on(facts, name)
    if hold is not None:
        whose = "the table" if not hold.partition else f"partition {hold.partition}"
        why = f": {hold.reason}" if hold.reason else ""
        return Decision(
            measure,
            pb.HELD,
            f"{want.reason}; but {whose} is held by {hold.by or 'a user'} for another "
            f"{_seconds(hold.until_ms - now)}{why}",
            "the end of the hold, or lakemark optimize release",
            hold.until_ms,
            want.kind,
        )
    rested = _after(history.last_run_ms, policy.interval_min_ms)
    waits = asked is None or history.last_run_ms > asked.asked_ms  # else nobody has tried it since
    if history.last_run_ms and rested > now and waits:
        return Decision(
            measure,
            pb.RESTING,
            f"{want.reason}; but the last run ended {_seconds(now - history.last_run_ms)} ago, and "
            f"{INTERVAL_PROPERTY} is {policy.interval_min_ms}",
            f"{_seconds(rested - now)} more, or a smaller {INTERVAL_PROPERTY}",
            rested,
            want.kind,
        )
    heat = max(NOBODY_READS, facts.reads)
    return Decision(
        measure,
        pb.PENDING,
        want.reason,
        kind=want.kind,
        benefit=max(want.saved_files, NOBODY_READS) * heat,
        cost_bytes=want.cost_bytes,
    )


def _under_way(measure: PartitionMeasure, task: pb.OptimizationTask) -> Decision:
    kind = pb.OptimizationKind.Name(task.kind).lower()
    if task.state == pb.TASK_WAITING:
        return Decision(
            measure,
            pb.PLANNED,
            f"a {kind} run is planned since {time_text(task.planned_ms)} and waits for a worker of group "
            f"{task.group!r}: {task.reason}",
            "a worker with a free slot",
            kind=task.kind,
            cost_bytes=task.bytes,
        )
    begun = task.acknowledged_ms or task.assigned_ms
    return Decision(
        measure,
        pb.RUNNING,
        f"a {kind} run is under way on {task.worker} since {time_text(begun)}: {task.reason}",
        "the end of the run",
        kind=task.kind,
        cost_bytes=task.bytes,
    )


def _asked(asked: Iterable[AskedOptimization], name: str, history: PartitionHistory) -> AskedOptimization | None:
    """What a user has asked for of a partition, and was not done since."""
    return next((one for one in asked if one.partition in ("", name) and history.last_done_ms <= one.asked_ms), None)


def still_asked(decisions: Sequence[Decision], facts: TableFacts) -> list[AskedOptimization]:
    """What users have asked for and is still to be done: the others are served, or have nothing to do."""
    return [
        one
        for one in facts.record.asked
        if any(
            decision.state not in _SERVED
            and _asked([one], decision.measure.name, facts.histories.get(decision.measure.name) or PartitionHistory())
            for decision in decisions
        )
    ]


def hold_on(facts: TableFacts, name: str) -> pb.OptimizationHold | None:
    """The longest hold on a partition; None: there is none."""
    holds = [facts.holds.get(one) for one in dict.fromkeys(("", name))]
    return max(
        (one for one in holds if one is not None and one.until_ms > facts.now_ms),
        key=lambda one: one.until_ms,
        default=None,
    )


def _wanted_by(asked: AskedOptimization, measure: PartitionMeasure, policy: OptimizationPolicy) -> _Want | Decision:
    """What a user has asked for, as far as there is anything to do."""
    by = f"asked for by {asked.by or 'a user'}"
    if asked.kind == pb.FULL and not policy.buckets:
        return _Want(pb.FULL, f"a full run was {by}", measure.files / 2, measure.bytes)
    if measure.deltas and policy.buckets:
        return _fold(asked.kind, f"a run was {by}: {measure.deltas} deltas", measure, policy)
    if asked.kind == pb.MINOR and measure.mergeable:
        saved = measure.mergeable - measure.merged
        return _Want(pb.MINOR, f"a minor run was {by}: {measure.mergeable} fragments", saved, measure.merge_bytes)
    if asked.kind == pb.MAJOR and measure.large_mergeable:
        saved = measure.large_mergeable - measure.large_merged
        reason = f"a major run was {by}: {measure.large_mergeable} small files"
        return _Want(pb.MAJOR, reason, saved, measure.large_merge_bytes)
    return Decision(
        measure,
        pb.IDLE,
        f"a run was {by}, and there is nothing to compact or merge: {_figures(measure, policy)}",
        "more commits",
    )


def _fold(kind: Kind, reason: str, measure: PartitionMeasure, policy: OptimizationPolicy) -> _Want:
    # A read merges each delta, and cannot use the bounds of what they change.
    return _Want(kind, reason, measure.deltas + measure.fold_groups, min(measure.fold_bytes, policy.run_bytes_max))


def _wanted(
    measure: PartitionMeasure, policy: OptimizationPolicy, history: PartitionHistory, now: int
) -> _Want | Decision:
    """The run that a threshold asks for, or why none does."""
    if policy.buckets:
        return _folding(measure, policy, history, now)
    return _merging(measure, policy, history, now)


def _folding(
    measure: PartitionMeasure, policy: OptimizationPolicy, history: PartitionHistory, now: int
) -> _Want | Decision:
    if not measure.deltas:
        return Decision(measure, pb.IDLE, "it has no deltas to compact", "a commit that writes deltas")
    changed = 100 * measure.delta_rows // max(1, measure.fold_rows)
    if measure.fold_rows and changed > policy.delete_percent:
        reason = (
            f"the deltas have {measure.delta_rows} rows, {changed} % of the {measure.fold_rows} rows under them, and "
            f"{DELETE_PERCENT_PROPERTY} is {policy.delete_percent}"
        )
        return _fold(pb.MAJOR, reason, measure, policy)
    if measure.delta_commits >= policy.delta_commits:
        reason = f"{measure.delta_commits} delta commits of {policy.delta_commits} needed"
        return _fold(pb.MINOR, reason, measure, policy)
    if measure.delta_bytes >= policy.delta_bytes:
        reason = f"{_size(measure.delta_bytes)} of deltas of {_size(policy.delta_bytes)} needed"
        return _fold(pb.MINOR, reason, measure, policy)
    due = _interval_due(measure, policy, history)
    if due and due <= now:
        return _fold(pb.MINOR, _overdue(f"{measure.deltas} deltas", policy), measure, policy)
    return Decision(
        measure,
        pb.IDLE,
        f"{measure.delta_commits} delta commits of {policy.delta_commits} needed, {_size(measure.delta_bytes)} of "
        f"deltas of {_size(policy.delta_bytes)} needed, {changed} % changed rows of more than "
        f"{policy.delete_percent} % needed",
        f"more commits, {_wait(due, now)}or a smaller {DELTA_COMMITS_PROPERTY} or {DELTA_BYTES_PROPERTY}",
        due,
    )


def _merging(
    measure: PartitionMeasure, policy: OptimizationPolicy, history: PartitionHistory, now: int
) -> _Want | Decision:
    full = _full(measure, policy, history, now)
    if isinstance(full, _Want):
        return full
    if measure.mergeable >= policy.fragments:
        saved = measure.mergeable - measure.merged
        reason = f"{measure.mergeable} fragments of {policy.fragments} needed"
        return _Want(pb.MINOR, reason, saved, measure.merge_bytes)
    if measure.large_mergeable and measure.segments >= policy.segments:
        saved = measure.large_mergeable - measure.large_merged
        reason = f"{measure.segments} segments of {policy.segments} needed"
        return _Want(pb.MAJOR, reason, saved, measure.large_merge_bytes)
    due = _interval_due(measure, policy, history) if measure.mergeable else 0
    if due and due <= now:
        saved = measure.mergeable - measure.merged
        reason = _overdue(f"{measure.mergeable} fragments", policy)
        return _Want(pb.MINOR, reason, saved, measure.merge_bytes)
    apart = ""
    if measure.fragments > measure.mergeable:
        apart = f" ({measure.fragments} in all, of which the larger ones wait for as much again)"
    return Decision(
        measure,
        pb.IDLE,
        f"{measure.mergeable} fragments of {policy.fragments} needed{apart}, {measure.segments} segments of "
        f"{policy.segments} needed{full.reason if full else ''}",
        f"more commits, {_wait(due, now)}or a smaller {FRAGMENTS_PROPERTY} or {SEGMENTS_PROPERTY}",
        min((ms for ms in (due, full.next_ms if full else 0) if ms), default=0),
    )


def _full(
    measure: PartitionMeasure, policy: OptimizationPolicy, history: PartitionHistory, now: int
) -> _Want | Decision | None:
    """A full run, or a Decision that says why there is none; None: the table asks for none."""
    if not policy.full_interval_ms:
        return None
    if measure.last_change_ms <= history.last_full_ms:
        return Decision(measure, pb.IDLE, "; in order since its last change")
    due = _after(history.last_full_ms or measure.last_change_ms, policy.full_interval_ms)
    if due > now:
        return Decision(measure, pb.IDLE, f"; next full run in {_seconds(due - now)}", next_ms=due)
    if measure.bytes > policy.run_bytes_max:
        told = f"; too large for a full run: {_size(measure.bytes)}, and {RUN_BYTES_PROPERTY} is "
        return Decision(measure, pb.IDLE, told + _size(policy.run_bytes_max))
    since = _seconds(now - (history.last_full_ms or measure.last_change_ms))
    reason = f"changed since its last full run, {since} ago"
    return _Want(pb.FULL, reason, measure.files / 2, measure.bytes)


def _interval_due(measure: PartitionMeasure, policy: OptimizationPolicy, history: PartitionHistory) -> int:
    """When what there is to do is done in any case; 0: never. From the last run on, or the first change after it."""
    if not policy.minor_interval_ms:
        return 0
    return _after(history.last_run_ms or max(0, measure.last_change_ms), policy.minor_interval_ms)


def _after(ms: int, interval_ms: int) -> int:
    """When so much time is over. Intervals are what users say, so that the sum may be out of all bounds."""
    return min(ms + interval_ms, TIME_MS_MAX)


def _overdue(what: str, policy: OptimizationPolicy) -> str:
    return f"{what}, and no run for {_seconds(policy.minor_interval_ms)} ({MINOR_INTERVAL_PROPERTY})"


def _figures(measure: PartitionMeasure, policy: OptimizationPolicy) -> str:
    if policy.buckets:
        return f"{measure.deltas} deltas"
    return f"{measure.fragments} fragments, {measure.segments} segments"


def _wait(due: int, now: int) -> str:
    return f"{_seconds(due - now)} more, " if due else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _seconds(ms: int) -> str:
    seconds = max(0, -(-ms // 1_000))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7_200:
        return f"{seconds // 60} min"
    return f"{seconds // 3_600} h" if seconds < 172_800 else f"{seconds // 86_400} days"


def _size(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes} B"
