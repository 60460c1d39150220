"""Which of the tables that want a run comes first, and whether it may run at all now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from lakemark_core.optimization import QUOTA_PROPERTY, OptimizationPolicy
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_server.optimization.records import HOUR_MS

AGING_MS: Final = 600_000
"""After so long a table that waits rises by one priority, so that nobody waits for ever."""
AHEAD: Final = 1
"""For each slot so many tasks are planned beside those that run: a worker that is done need not wait for the next
round, and no plan gets old."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A table that wants a run. ``score``: of its best partition (``Decision.score``). ``used_ms``: its worker time in
    the last hour, running tasks included."""

    table_id: int
    policy: OptimizationPolicy
    since_ms: int
    score: float
    used_ms: int = 0
    needs_spark: bool = False


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group and its workers now. ``used_ms``: in the last hour, running tasks included. ``open_tasks``: that run or
    wait."""

    name: str
    settings: pb.OptimizerGroup = field(default_factory=pb.OptimizerGroup)
    workers: tuple[pb.OptimizerWorker, ...] = ()
    used_ms: int = 0
    open_tasks: int = 0
    running: int = 0

    @property
    def slots(self) -> int:
        """How many tasks its workers run at once."""
        return sum(worker.slots for worker in self.workers)

    @property
    def room(self) -> int:
        """How many more tasks can be planned."""
        return max(0, self.slots * (1 + AHEAD) - self.open_tasks)

    @property
    def has_spark(self) -> bool:
        """Whether any worker can run Spark."""
        return any(set(worker.executors) & {"spark", "spark-submit"} for worker in self.workers)

    def allowed_ms(self, policy: OptimizationPolicy) -> int:
        """The worker time in an hour that a table of this policy may use."""
        return self.slots * HOUR_MS * policy.quota_percent // 100


def obstacle(candidate: Candidate, group: GroupFacts) -> tuple[str, str] | None:
    """Why a table that wants a run does not get one now, and what would change it; None: it may."""
    told = group_obstacle(group)
    if told is not None:
        return told
    name, policy = group.name, candidate.policy
    if candidate.needs_spark and not group.has_spark:
        return (
            f"it needs Spark, and no worker of group {name!r} has it",
            f"lakemark optimizer run --group {name} where PySpark is installed",
        )
    allowed = group.allowed_ms(policy)
    if candidate.used_ms >= allowed:
        return (
            f"the table has used its share of group {name!r}: {candidate.used_ms // 1_000} s of {allowed // 1_000} s "
            f"in the last hour ({QUOTA_PROPERTY} = {policy.quota_percent}, {group.slots} slots)",
            f"time, more workers, or a larger {QUOTA_PROPERTY}",
        )
    return None


def group_obstacle(group: GroupFacts) -> tuple[str, str] | None:
    """The same as far as it concerns all tables of the group."""
    name = group.name
    if group.settings.paused:
        return f"group {name!r} is paused", f"lakemark optimize group {name} --resume"
    if not group.workers:
        return f"group {name!r} has no worker", f"lakemark optimizer run --group {name}"
    quota = group.settings.quota_ms
    if quota and group.used_ms >= quota:
        return (
            f"group {name!r} has used its quota: {group.used_ms // 1_000} s of {quota // 1_000} s in the last hour",
            "time, or a larger quota of the group",
        )
    if not group.room:
        return (
            f"all {group.slots} slots of group {name!r} are busy: {group.running} tasks run and "
            f"{group.open_tasks - group.running} wait",
            "the end of a task, or more workers",
        )
    return None


def in_order(candidates: Iterable[Candidate], group: GroupFacts, now_ms: int) -> list[Candidate]:
    """The candidates of one group, whose turn it is first at the beginning."""
    order = group.settings.order
    if order == pb.FIFO:
        return sorted(candidates, key=lambda one: (one.since_ms, one.table_id))
    if order == pb.PRIORITY:
        return sorted(candidates, key=lambda one: (-_risen(one, now_ms), -one.score, one.since_ms, one.table_id))
    return sorted(candidates, key=lambda one: (_share(one, group, now_ms), -one.score, one.since_ms, one.table_id))


def _risen(candidate: Candidate, now_ms: int) -> int:
    return candidate.policy.priority + (now_ms - candidate.since_ms) // AGING_MS


def _share(candidate: Candidate, group: GroupFacts, now_ms: int) -> float:
    """How much of its share a table has used, in tenths, less one for each time that it has waited long: so hot tables
    come first among those that have had about as much."""
    allowed = max(1, group.allowed_ms(candidate.policy))
    return candidate.used_ms * 10 // allowed - (now_ms - candidate.since_ms) // AGING_MS


def by_group(candidates: Mapping[int, Candidate]) -> dict[str, list[Candidate]]:
    """The candidates of each group."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates.values():
        groups.setdefault(candidate.policy.group, []).append(candidate)
    return groups
