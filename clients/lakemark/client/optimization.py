"""Tables that look after themselves: why, what ran, run, pause, hold; and what workers call (docs/management.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar
from uuid import uuid4

from google.protobuf.message import Message

from lakemark.arguments import Duration, Natural, checked
from lakemark.client.calls import Calls
from lakemark.client.names import parse_table_name
from lakemark_core.messages.optimization import plain_value
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1.optimization_pb2_grpc import OptimizationServiceStub, OptimizerServiceStub

PROTOCOL = 1
"""Of the contract between workers and service that this release speaks."""

OptimizationKind: TypeAlias = Literal["minor", "major", "full"]
GroupOrder: TypeAlias = Literal["fair", "priority", "fifo"]
Outcome: TypeAlias = Literal["done", "nothing", "conflicted", "failed"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OptimizationTask:
    """The work on one partition, from its plan to its end. Times in ms since 1970; 0: not yet.

    ``state``: waiting, assigned, running; done, nothing, conflicted, failed, lost, withdrawn. ``files`` and ``bytes``
    were expected when it was planned; those ``before`` and ``after`` are of the commit. ``message``: how it ended.
    """

    table: str
    table_id: int
    instant: int
    request_id: str
    plan: int
    partition: str
    kind: str
    state: str
    group: str
    reason: str
    read_version: int
    buckets: bool
    small_bytes: int
    bytes_max: int
    needs_spark: bool
    files: int
    bytes: int
    planned_ms: int
    assigned_ms: int
    acknowledged_ms: int
    heartbeat_ms: int
    ended_ms: int
    worker: str
    executor: str
    version: int
    files_before: int
    bytes_before: int
    rows_before: int
    files_after: int
    bytes_after: int
    rows_after: int
    message: str


@dataclass(frozen=True, slots=True)
class OptimizationHold:
    """A user has asked not to touch a partition ("": the table) until a time."""

    table: str
    partition: str
    until_ms: int
    reason: str
    by: str
    made_ms: int


@dataclass(frozen=True, slots=True)
class PartitionOptimization:
    """Why a partition is, or is not, being optimized now, and what would change it; and its figures.

    ``expires_ms`` (0: never) and ``expiry``: when it goes because of its age, and why; "" if partitions stay.
    """

    partition: str
    state: str
    reason: str
    change: str
    next_ms: int
    kind: str
    benefit: float
    cost_bytes: int
    files: int
    bytes: int
    rows: int
    fragments: int
    fragment_bytes: int
    segments: int
    deltas: int
    delta_commits: int
    delta_bytes: int
    delta_rows: int
    last_change_ms: int
    last_run_ms: int
    failures: int
    last_error: str
    expires_ms: int
    expiry: str


@dataclass(frozen=True, slots=True)
class TableOptimization:
    """A table: its state is the most telling one of its partitions. ``used_ms``: worker time in the last hour.

    Partitions, tasks, holds and policy are answers of ``explain`` only.
    """

    table: str
    table_id: int
    group: str
    state: str
    reason: str
    change: str
    next_look_ms: int
    version: int
    looked_ms: int
    files: int
    bytes: int
    partitions: int
    fragments: int
    deltas: int
    used_ms: int
    allowed_ms: int
    reads: int
    priority: int
    pending_since_ms: int
    partition_states: Sequence[PartitionOptimization]
    tasks: Sequence[OptimizationTask]
    holds: Sequence[OptimizationHold]
    policy: Mapping[str, str]
    leader: str
    expired_partitions: int
    next_expiry_ms: int
    large_buckets: Sequence[str]


@dataclass(frozen=True, slots=True)
class OptimizerWorker:
    """A program that does tasks of a group, ``slots`` at once."""

    worker_id: str
    group: str
    host: str
    slots: int
    executors: Sequence[str]
    release: str
    started_ms: int
    heartbeat_ms: int
    heartbeat_timeout_ms: int
    acknowledge_timeout_ms: int


@dataclass(frozen=True, slots=True)
class OptimizerGroup:
    """Workers that serve some tables. ``quota_ms``: worker time in an hour; 0: unlimited."""

    name: str
    order: str
    quota_ms: int
    paused: bool
    used_ms: int
    slots: int
    running: int
    waiting: int
    workers: Sequence[OptimizerWorker]


@checked
class Optimizations:
    """``client.optimizations``. Tables are named ``database.table``; partitions by their names, as ``month=1``."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = OptimizationServiceStub(calls.channel)

    def explain(
        self,
        table: str,
        partition: str = "",
        *,
        limit: Natural = 0,
        properties: Mapping[str, str] | None = None,
        by_expiry: bool = False,
    ) -> TableOptimization:
        """Why the table and its partitions ("": all, up to ``limit``) are, or are not, being optimized now.

        ``properties``: as if the table had these, too; nothing is changed. ``by_expiry``: partitions in the order in
        which they will be too old. Raises TableNotFound, NotFound (partition), InvalidArgument (properties).
        """
        request = pb.ExplainOptimizationRequest(
            table=parse_table_name(table),
            partition=partition,
            limit=limit,
            properties=properties,
            expiries=by_expiry,
        )
        return from_message(TableOptimization, self._call(self._stub.ExplainOptimization, request))

    def list(self, *, group: str = "", states: Sequence[str] = (), catalog: str = "") -> Iterator[TableOptimization]:
        """Tables as the planner has seen them last, of this group and in these states ("": all)."""
        request = pb.ListOptimizationsRequest(
            catalog=catalog, group=group, states=[pb.OptimizationState.Value(state.upper()) for state in states]
        )
        while True:
            answer = self._call(self._stub.ListOptimizations, request)
            yield from (from_message(TableOptimization, one) for one in answer.tables)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return

    def run(self, table: str, partition: str = "", kind: OptimizationKind = "minor") -> TableOptimization:
        """Asks for a run now, whatever the thresholds say. Raises InvalidArgument."""
        request = pb.RequestOptimizationRequest(
            table=parse_table_name(table),
            partition=partition,
            kind=pb.OptimizationKind.Value(kind.upper()),
            request_id=str(uuid4()),
        )
        return self._changed(self._stub.RequestOptimization, request)

    def pause(self, table: str, reason: str = "") -> TableOptimization:
        """Nothing more is planned for the table; what runs goes on."""
        request = pb.PauseOptimizationRequest(table=parse_table_name(table), reason=reason, request_id=str(uuid4()))
        return self._changed(self._stub.PauseOptimization, request)

    def resume(self, table: str) -> TableOptimization:
        """The table is planned again, and partitions that were stopped are tried again."""
        request = pb.ResumeOptimizationRequest(table=parse_table_name(table), request_id=str(uuid4()))
        return self._changed(self._stub.ResumeOptimization, request)

    def hold(self, table: str, duration: Duration, partition: str = "", reason: str = "") -> OptimizationHold:
        """Keeps the planner away for a while. What runs goes on. Raises InvalidArgument."""
        request = pb.HoldOptimizationRequest(
            table=parse_table_name(table),
            partition=partition,
            duration_ms=round(duration.total_seconds() * 1_000),
            reason=reason,
            request_id=str(uuid4()),
        )
        answer = self._call(self._stub.HoldOptimization, request, mutation=True, tell_user=True)
        return from_message(OptimizationHold, answer)

    def release(self, table: str, partition: str = "") -> bool:
        """Ends a hold. False: there was none."""
        request = pb.ReleaseOptimizationRequest(
            table=parse_table_name(table), partition=partition, request_id=str(uuid4())
        )
        return self._call(self._stub.ReleaseOptimization, request, mutation=True, tell_user=True).released

    def runs(self, table: str = "") -> Iterator[OptimizationTask]:
        """Tasks that have ended, of a table ("": of all), the last one first."""
        request = pb.ListOptimizationRunsRequest(table=parse_table_name(table) if table else None)
        while True:
            answer = self._call(self._stub.ListOptimizationRuns, request)
            yield from (from_message(OptimizationTask, one) for one in answer.runs)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return

    def groups(self) -> tuple[tuple[OptimizerGroup, ...], str]:
        """The groups with their workers, and the process that plans now ("": none does)."""
        answer = self._call(self._stub.ListOptimizerGroups, pb.ListOptimizerGroupsRequest())
        return tuple(from_message(OptimizerGroup, one) for one in answer.groups), answer.leader

    def set_group(
        self, name: str, *, order: GroupOrder | None = None, quota: Duration | None = None, paused: bool | None = None
    ) -> OptimizerGroup:
        """Changes what is given. ``quota``: worker time in an hour; zero: unlimited."""
        request = pb.SetOptimizerGroupRequest(
            name=name,
            order=pb.GROUP_ORDER_UNSPECIFIED if order is None else pb.GroupOrder.Value(order.upper()),
            quota_ms=None if quota is None else round(quota.total_seconds() * 1_000),
            paused=paused,
            request_id=str(uuid4()),
        )
        answer = self._call(self._stub.SetOptimizerGroup, request, mutation=True, tell_user=True)
        return from_message(OptimizerGroup, answer)

    def _changed(self, method: Any, request: Message) -> TableOptimization:
        return from_message(TableOptimization, self._call(method, request, mutation=True, tell_user=True))


@checked
class OptimizerTasks:
    """``client.optimizer_tasks``: what a worker calls. Each call may be repeated."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = OptimizerServiceStub(calls.channel)

    def register(
        self, group: str, host: str, slots: Natural, executors: Sequence[str], release: str = ""
    ) -> OptimizerWorker:
        """A new worker. Raises InvalidArgument, also if the service is of a release that does not fit."""
        request = pb.RegisterWorkerRequest(
            group=group,
            host=host,
            slots=slots,
            executors=executors,
            release=release,
            protocol=PROTOCOL,
            request_id=str(uuid4()),
        )
        return from_message(OptimizerWorker, self._call(self._stub.RegisterWorker, request, mutation=True))

    def take(self, group: str, worker_id: str) -> OptimizationTask | None:
        """The next task; None: there is none. Raises NotFound (``worker_unknown``): register again."""
        request = pb.TakeTaskRequest(worker_id=worker_id, group=group)
        answer = self._call(self._stub.TakeTask, request, mutation=True)
        return from_message(OptimizationTask, answer.task) if answer.HasField("task") else None

    def acknowledge(self, worker_id: str, task: OptimizationTask) -> OptimizationTask:
        """The worker begins. Raises FailedPrecondition (``task_lost``)."""
        request = pb.WorkerTaskRequest(worker_id=worker_id, table_id=task.table_id, instant=task.instant)
        return from_message(OptimizationTask, self._call(self._stub.AcknowledgeTask, request, mutation=True))

    def heartbeat(self, group: str, worker_id: str, tasks: Sequence[OptimizationTask]) -> set[tuple[int, int]]:
        """The worker and these tasks live. Returns (table id, instant) of those that are no longer its own."""
        request = pb.WorkerHeartbeatRequest(worker_id=worker_id, group=group)
        for task in tasks:
            request.tasks.add(table_id=task.table_id, instant=task.instant)
        answer = self._call(self._stub.WorkerHeartbeat, request, mutation=True)
        return {(one.table_id, one.instant) for one in answer.cancelled}

    def complete(
        self, worker_id: str, task: OptimizationTask, outcome: Outcome, message: str = "", executor: str = ""
    ) -> OptimizationTask:
        """How the task ended. The answer says what the service made of it. Raises FailedPrecondition (task_lost)."""
        request = pb.CompleteTaskRequest(
            worker_id=worker_id,
            table_id=task.table_id,
            instant=task.instant,
            outcome=pb.TaskState.Value(f"TASK_{outcome.upper()}"),
            message=message,
            executor=executor,
        )
        return from_message(OptimizationTask, self._call(self._stub.CompleteTask, request, mutation=True))

    def leave(self, group: str, worker_id: str) -> int:
        """The worker goes, and gives back its tasks, of which this is the number."""
        request = pb.LeaveGroupRequest(worker_id=worker_id, group=group)
        return self._call(self._stub.LeaveGroup, request, mutation=True).tasks


_PARTS: Mapping[str, type[Any]] = {
    "OptimizationTask": OptimizationTask,
    "OptimizationHold": OptimizationHold,
    "PartitionOptimization": PartitionOptimization,
    "OptimizerWorker": OptimizerWorker,
}


def from_message(kind: type[T], message: Message) -> T:
    """The message as a dataclass whose fields have the names of the message's: enums are words, tables are names."""
    descriptors = message.DESCRIPTOR.fields_by_name
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: plain_value(descriptors[name], getattr(message, name), _part) for name in names})


def _part(message: Message) -> object:
    return from_message(_PARTS[message.DESCRIPTOR.name], message)
