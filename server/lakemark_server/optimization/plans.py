"""A plan: tasks on partitions of a table, each with a requested instant, made in one transaction of the timeline.

So no task is without an instant, and no instant of the optimizer without a task. What decisions were made by is read
again in the transaction: a hold, a pause or another plan that came meanwhile keeps the plan from being made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Final

from lakemark_core.errors import FailedPrecondition, LakemarkError, Unavailable
from lakemark_core.optimization import OptimizationPolicy
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1 import timeline_pb2
from lakemark_proto.v1.types_pb2 import TableName
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.optimization import records
from lakemark_server.optimization.decisions import Decision
from lakemark_server.timeline.jobs.job import JOB_BYTES, Batch, Job, Opened
from lakemark_server.timeline.jobs.opening import OpenJob

OWNER: Final = "optimizer"
TASKS_MAX: Final = 16
"""Of one plan."""
INSTANT_TIMEOUT_MS: Final = 7_200_000
"""How long an instant lives that nobody takes over; a worker that does sends heartbeats. Longer than a task waits."""
METADATA_KIND: Final = "lakemark.optimizer.kind"
METADATA_REASON: Final = "lakemark.optimizer.reason"
ARROW_BYTES_MAX: Final = 64 << 20
"""What is read by more needs Spark, if the worker has it or not: it would not fit into the memory of a small one."""
_REASON_CHARS_MAX: Final = 500


class PlanRefused(FailedPrecondition):
    """Something came between the decision and the plan: nothing was planned."""

    code = "plan_refused"


def needs_spark(decision: Decision, table: LakeTable) -> bool:
    """Whether pyarrow in the worker cannot do it: rows in order, deletes that are kept, split buckets, or much data."""
    if decision.kind == pb.FULL or decision.cost_bytes > ARROW_BYTES_MAX:
        return True
    if not table.kind.buckets:
        return False
    # One group is compacted whole, also if a run should read less. If buckets split and merge, a delta may lie on files
    # of others, and rows come into new ones. The rules of other tables are those that only Spark's job has.
    return (
        decision.measure.fold_bytes > ARROW_BYTES_MAX
        or table.kind.directory is not None
        or bool(table.kind.ordering_column)
        or table.policy == "row"
    )


def chosen(decisions: Sequence[Decision], policy: OptimizationPolicy, room: int) -> list[Decision]:
    """The partitions of one plan: the best first, bounded in bytes and in tasks. At least one if any is wanted."""
    taken: list[Decision] = []
    total = 0
    for decision in sorted((one for one in decisions if one.wanted), key=lambda one: (-one.score, one.measure.name)):
        if taken and (total + decision.cost_bytes > policy.run_bytes_max or len(taken) >= min(TASKS_MAX, room)):
            break
        taken.append(decision)
        total += decision.cost_bytes
    return taken


@dataclass(frozen=True, slots=True)
class PlanJob(Job):
    """Opens an instant for each decision, and writes its task beside it. ``name``: what its request ids begin with."""

    decisions: tuple[Decision, ...]
    policy: OptimizationPolicy
    name: str

    @classmethod
    def of(cls, decisions: Sequence[Decision], policy: OptimizationPolicy) -> PlanJob:
        """A plan that was not made before."""
        return cls(tuple(decisions), policy, f"optimize/{token_hex(8)}")

    @property
    def size_bytes(self) -> int:
        """As ``Job`` says."""
        return sum(2 * JOB_BYTES + 4 * len(one.reason) for one in self.decisions)

    def run(self, batch: Batch) -> Opened:
        """The first instant. Raises PlanRefused, and what ``OpenJob.run`` raises for the first one."""
        state, now = batch.state, batch.mutation.now_ms
        table = state.table
        self._check(batch)
        first: Opened | None = None
        for number, decision in enumerate(self.decisions):
            try:
                opened = self._opening(decision, number).run(batch)
            except Unavailable:
                raise  # of the store, in the middle
            except LakemarkError:
                if first is None:
                    raise
                break  # what was planned so far is a plan
            first = first or opened
            task = self._task(table, decision, opened, number)
            task.plan, task.planned_ms = first.record.instant, now
            records.put_task(state.tx, task)
        if first is None:
            raise PlanRefused("there is nothing to plan")
        return first

    def _check(self, batch: Batch) -> None:
        tx, table_id, now = batch.state.tx, batch.state.table_id, batch.mutation.now_ms
        if records.table(tx, table_id).paused_ms:
            raise PlanRefused("the table was paused meanwhile")
        planned = {task.partition for task in records.tasks_of_table(tx, table_id)}
        held = {hold.partition for hold in records.holds(tx, table_id) if hold.until_ms > now}
        for decision in self.decisions:
            if decision.measure.name in planned:
                raise PlanRefused(f"partition {decision.measure.name!r} has a task already")
            if {"", decision.measure.name} & held:
                raise PlanRefused(f"partition {decision.measure.name!r} is held meanwhile")

    def _opening(self, decision: Decision, number: int) -> OpenJob:
        return OpenJob(
            timeline_pb2.COMPACT if self.policy.buckets else timeline_pb2.CLUSTER,
            request_id=f"{self.name}/{number}",
            owner=OWNER,
            metadata={
                METADATA_KIND: pb.OptimizationKind.Name(decision.kind).lower(),
                METADATA_REASON: decision.reason[:_REASON_CHARS_MAX],
            },
            heartbeat_timeout_ms=INSTANT_TIMEOUT_MS,
        )

    def _task(self, table: LakeTable, decision: Decision, opened: Opened, number: int) -> pb.OptimizationTask:
        policy, measure = self.policy, decision.measure
        record = table.record
        files = measure.files
        if policy.buckets:
            files = measure.deltas + measure.fold_groups
        elif decision.kind != pb.FULL:
            files = measure.mergeable if decision.kind == pb.MINOR else measure.large_mergeable
        return pb.OptimizationTask(
            table=TableName(catalog=record.catalog, database=record.database, table=record.name),
            table_id=table.table_id,
            instant=opened.record.instant,
            request_id=f"{self.name}/{number}",
            partition=measure.name,
            kind=decision.kind,
            state=pb.TASK_WAITING,
            group=policy.group,
            reason=decision.reason,
            read_version=opened.record.read_version,
            buckets=bool(policy.buckets),
            small_bytes=policy.fragment_bytes if decision.kind == pb.MINOR else policy.segment_bytes,
            bytes_max=policy.run_bytes_max,
            needs_spark=needs_spark(decision, table),
            files=files,
            bytes=decision.cost_bytes,
        )
