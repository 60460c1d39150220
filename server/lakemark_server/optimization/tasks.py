"""Tasks from their plan to their end: who has one, who has lost it, and what its instant has become.

A task has one instant and one attempt. When an attempt ends without a commit, its instant is rolled back in the same
transaction, so that a worker that comes back late has nothing that it could commit; the work is planned anew, with the
files that there are then. What counts in the end is the instant: if it is committed, the task is done, whatever the
worker says or does not say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Final

import structlog

from lakemark_core.errors import (
    FailedPrecondition,
    InstantNotFound,
    InvalidArgument,
    LakemarkError,
    NotFound,
    TableNotFound,
)
from lakemark_core.optimization import check_group, policy_of
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord, VersionRecord
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1 import timeline_pb2
from lakemark_server.catalog import lake
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import Store
from lakemark_server.metrics.process import OPTIMIZATION_BYTES, OPTIMIZATION_TASKS_ENDED
from lakemark_server.optimization import events, records
from lakemark_server.optimization.decisions import retry_pause_ms
from lakemark_server.optimization.records import HEARTBEAT_MS, TaskId, task_id
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.timeline import records as timeline_records
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.publication.rollback import delete_files, roll_back

PROTOCOL: Final = 1
"""Of ``OptimizerService``. A worker of another one is refused when it registers."""
ACKNOWLEDGE_MS: Final = 30_000
RUN_MS_MAX: Final = 6 * 3_600_000
"""An executor that has not ended by then is given up."""
WAIT_MS_MAX: Final = 900_000
"""A plan that no worker has taken by then is withdrawn, and made anew of the files that there are then."""
SLOTS_MAX: Final = 1_000
NAME_CHARS_MAX: Final = 100
MESSAGE_CHARS_MAX: Final = 2_000
EXECUTORS: Final = ("arrow", "spark", "spark-submit")
_LOOKED_AT: Final = 256
"""Tasks of a group that a worker looks at when it takes one."""
_OUTCOMES: Final = (pb.TASK_DONE, pb.TASK_NOTHING, pb.TASK_CONFLICTED, pb.TASK_FAILED)
_FAILURES: Final = (pb.TASK_FAILED, pb.TASK_LOST)
_WORKED: Final = (pb.TASK_ASSIGNED, pb.TASK_RUNNING)

_log = structlog.get_logger(__name__)


class TaskLost(FailedPrecondition):
    """The task belongs to nobody or to another worker: what this one has done does not count."""

    code = "task_lost"


class WorkerUnknown(NotFound):
    """The worker is not registered, or was given up because it said nothing."""

    code = "worker_unknown"


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that has ended. ``location``: of the table, whose files of the instant are to be deleted; "": none."""

    task: pb.OptimizationTask
    location: str = ""


class Tasks:
    """Thread-safe. On a fenced store its changes happen only while the lease is held."""

    def __init__(self, store: Store, clock: ClockMs) -> None:
        self._store, self._clock = store, clock
        self._mutations = Mutations(store, clock)

    # -- workers ------------------------------------------------------------------------------------------------------

    def register(self, wanted: pb.OptimizerWorker, protocol: int, request_id: str = "") -> pb.OptimizerWorker:
        """A new worker of a group. ``wanted``: group, host, slots, executors, release. Raises InvalidArgument."""
        if protocol != PROTOCOL:
            raise InvalidArgument(
                f"the worker's release {wanted.release or 'unknown'} speaks protocol {protocol} of optimizers, and "
                f"this service speaks {PROTOCOL}: install the same release of lakemark on both"
            )
        check_group(wanted.group)
        if not 1 <= wanted.slots <= SLOTS_MAX:
            raise InvalidArgument(f"a worker has 1 to {SLOTS_MAX} slots, not {wanted.slots}")
        unknown = [name for name in wanted.executors if name not in EXECUTORS]
        if unknown or not wanted.executors:
            raise InvalidArgument(
                f"a worker has one or more of the executors {', '.join(EXECUTORS)}"
                + (f", and {unknown[0]!r} is none of them" if unknown else "")
            )
        if len(wanted.host) > NAME_CHARS_MAX or len(wanted.release) > NAME_CHARS_MAX:
            raise InvalidArgument(f"host and release have at most {NAME_CHARS_MAX} characters")
        worker_id = f"{wanted.host or 'worker'}-{token_hex(4)}"

        def body(mutation: Mutation) -> pb.OptimizerWorker:
            record = pb.OptimizerWorker(
                worker_id=worker_id,
                group=wanted.group,
                host=wanted.host,
                slots=wanted.slots,
                executors=sorted(set(wanted.executors)),
                release=wanted.release,
                started_ms=mutation.now_ms,
                heartbeat_ms=mutation.now_ms,
                heartbeat_timeout_ms=HEARTBEAT_MS,
                acknowledge_timeout_ms=ACKNOWLEDGE_MS,
            )
            records.put_worker(mutation.tx, record)
            return record

        return self._mutations.once(request_id, "RegisterWorker", pb.OptimizerWorker, body).answer

    def take(self, group: str, worker_id: str) -> pb.OptimizationTask | None:
        """The next task of the group that the worker can do; None: there is none. Raises WorkerUnknown.

        Whoever asks again after an unknown outcome has a task that it does not know of; that is given to another one
        when it was not acknowledged in time.
        """

        def body(mutation: Mutation) -> pb.OptimizationTask | None:
            tx = mutation.tx
            worker = _worker(mutation, group, worker_id)
            if records.group(tx, group).paused:
                return None
            for key, name in records.ready(tx, group, _LOOKED_AT):
                task = records.task(tx, name)
                if task is None:
                    tx.clear(key)  # its table was deleted
                    continue
                if task.state != pb.TASK_WAITING:
                    continue
                if task.needs_spark and not set(worker.executors) & {"spark", "spark-submit"}:
                    continue
                task.state, task.worker, task.assigned_ms = pb.TASK_ASSIGNED, worker_id, mutation.now_ms
                records.put_task(tx, task)
                return task
            return None

        return self._mutations.run(body)

    def acknowledge(self, worker_id: str, name: TaskId) -> pb.OptimizationTask:
        """The worker begins. Asked again, nothing happens. Raises TaskLost."""

        def body(mutation: Mutation) -> pb.OptimizationTask:
            task = _own(mutation, worker_id, name)
            if task.state == pb.TASK_ASSIGNED:
                if mutation.now_ms > task.assigned_ms + ACKNOWLEDGE_MS:
                    raise _lost(name, worker_id, "it was not acknowledged in time")
                task.state = pb.TASK_RUNNING
                task.acknowledged_ms = task.heartbeat_ms = mutation.now_ms
                records.put_task(mutation.tx, task)
            return task

        return self._mutations.run(body)

    def heartbeat(self, group: str, worker_id: str, names: Sequence[TaskId]) -> list[TaskId]:
        """The worker and these tasks live. Returns those that are no longer its own. Raises WorkerUnknown."""
        if len(names) > SLOTS_MAX:
            raise InvalidArgument(f"a heartbeat names at most {SLOTS_MAX} tasks")

        def body(mutation: Mutation) -> list[TaskId]:
            worker = _worker(mutation, group, worker_id)
            worker.heartbeat_ms = mutation.now_ms
            records.put_worker(mutation.tx, worker)
            cancelled = []
            for name in names:
                task = records.task(mutation.tx, name)
                if task is None or task.worker != worker_id or task.state not in _WORKED:
                    cancelled.append(name)
                elif task.state == pb.TASK_RUNNING:
                    task.heartbeat_ms = mutation.now_ms
                    records.put_task(mutation.tx, task)
            return cancelled

        return self._mutations.run(body)

    def complete(
        self, worker_id: str, name: TaskId, outcome: pb.TaskState.ValueType, message: str = "", executor: str = ""
    ) -> pb.OptimizationTask:
        """How the task ended, as the worker says; its instant has the last word. Asked again, it answers the same.

        Raises TaskLost for a task that is not, or no longer, the worker's; InvalidArgument.
        """
        if outcome not in _OUTCOMES:
            raise InvalidArgument(
                f"a task ends as one of {', '.join(pb.TaskState.Name(one) for one in _OUTCOMES)}, not {outcome}"
            )
        if executor and executor not in EXECUTORS:
            raise InvalidArgument(f"executor {executor!r} is none of {', '.join(EXECUTORS)}")
        kind = f"CompleteTask {name.table_id}.{name.instant} by {worker_id}"

        def body(mutation: Mutation) -> tuple[pb.OptimizationTask, str]:
            location = ""

            def change(_: Mutation) -> pb.OptimizationTask:
                nonlocal location
                task = _own(mutation, worker_id, name)
                task.executor = executor
                ended = end(mutation, task, outcome, message)
                location = ended.location
                return ended.task

            request_id = f"complete/{name.table_id}/{name.instant}/{worker_id}"
            return mutation.once(request_id, kind, pb.OptimizationTask, change).answer, location

        task, location = self._mutations.run(body)
        _after(Ended(task, location))
        return task

    def leave(self, group: str, worker_id: str) -> int:
        """The worker goes, and gives back its tasks, of which this is the number. They count as no failures."""

        def body(mutation: Mutation) -> list[Ended]:
            worker = records.worker(mutation.tx, group, worker_id)
            if worker is not None:
                records.clear_worker(mutation.tx, worker)
            own = [task for task in records.open_tasks(mutation.tx) if task.worker == worker_id]
            return [
                end(mutation, task, pb.TASK_WITHDRAWN, "its worker was stopped")
                for one in own
                if (task := records.task(mutation.tx, task_id(one))) is not None and task.worker == worker_id
            ]

        given_back = self._mutations.run(body)
        for ended in given_back:
            _after(ended)
        return len(given_back)

    # -- the leader ---------------------------------------------------------------------------------------------------

    def end_overdue(self) -> list[pb.OptimizationTask]:
        """Ends what is overdue: workers that say nothing, tasks that were not begun, that hang, or that nobody took."""
        now = self._clock()
        tasks, workers = self._store.read(lambda tx: (records.open_tasks(tx), records.workers(tx)))
        for worker in workers:
            if worker.heartbeat_ms + HEARTBEAT_MS < now:
                self._mutations.run(partial(_give_up, worker))
        living = {worker.worker_id for worker in workers if worker.heartbeat_ms + HEARTBEAT_MS >= now}
        ended = []
        for task in tasks:
            if overdue(task, living, now) is not None:
                one = self._mutations.run(partial(_end_overdue, task, living))
                if one is not None:
                    _after(one)
                    ended.append(one.task)
        return ended


def overdue(task: pb.OptimizationTask, living: Iterable[str], now_ms: int) -> tuple[pb.TaskState.ValueType, str] | None:
    """How an open task is to be ended because nothing more comes, and why; None: it goes on. ``living``: workers."""
    if task.state == pb.TASK_WAITING:
        if now_ms > task.planned_ms + WAIT_MS_MAX:
            return pb.TASK_WITHDRAWN, f"no worker took it within {WAIT_MS_MAX // 1_000} s"
        return None
    if task.state == pb.TASK_ASSIGNED:
        if now_ms > task.assigned_ms + ACKNOWLEDGE_MS:
            return pb.TASK_LOST, f"{task.worker} took it and did not begin within {ACKNOWLEDGE_MS // 1_000} s"
        return None
    if now_ms > task.heartbeat_ms + HEARTBEAT_MS:
        return pb.TASK_LOST, f"{task.worker} has said nothing for more than {HEARTBEAT_MS // 1_000} s"
    if task.worker not in set(living):
        return pb.TASK_LOST, f"{task.worker} is gone"
    if now_ms > task.acknowledged_ms + RUN_MS_MAX:
        return pb.TASK_LOST, f"it did not end within {RUN_MS_MAX // 3_600_000} hours"
    return None


def end(mutation: Mutation, task: pb.OptimizationTask, outcome: pb.TaskState.ValueType, message: str) -> Ended:
    """Ends an open task together with its instant, and lets the planner look at the table again.

    If the instant is committed, the task is done; else the instant is rolled back.
    """
    tx, now = mutation.tx, mutation.now_ms
    task.ended_ms = now
    task.message = message[:MESSAGE_CHARS_MAX]
    try:
        table: LakeTableRecord | None = lake.get_record(tx, task.table_id, or_dropped=True)
    except TableNotFound:
        table = None
    given_up = False
    version: VersionRecord | None = None
    if table is not None:
        version, given_up = _settle(mutation, table, task, outcome)
    if version is not None:
        task.state = pb.TASK_DONE
        _measured(task, version)
    elif outcome == pb.TASK_DONE:
        task.state = pb.TASK_FAILED
        task.message = f"the worker says that it is done, and instant {task.instant} was not committed. {message}"
    else:
        task.state = outcome
    if table is None:  # all that belonged to it is gone
        records.clear_task(tx, task)
        return Ended(task)
    if task.assigned_ms:
        records.add_time(tx, task.table_id, task.group, now, records.worked_ms(task, now))
    records.end_task(tx, task)
    _remember(mutation, table, task)
    record = records.table(tx, task.table_id)
    record.due_ms = now
    records.put_table(tx, task.table_id, record)
    return Ended(task, table.location if given_up else "")


def _settle(
    mutation: Mutation, table: LakeTableRecord, task: pb.OptimizationTask, outcome: pb.TaskState.ValueType
) -> tuple[VersionRecord | None, bool]:
    """The version that the instant was committed as; else it is rolled back, unless it was, which is told."""
    tx = mutation.tx
    try:
        instant = timeline_records.instant(tx, task.table_id, task.instant)
    except InstantNotFound:  # of a version that was cleaned long ago, perhaps: its files may be alive
        return None, False
    if instant.state == timeline_pb2.COMPLETED:
        lineage = forks.lineage(tx, task.table_id, instant.branch)
        task.version = instant.version
        # Its record may have been cleaned already; then only the figures are not known.
        version = timeline_records.version(tx, task.table_id, lineage, instant.version)
        return version or VersionRecord(), False
    if instant.state != timeline_pb2.ROLLED_BACK:
        reason = f"optimizer: {pb.TaskState.Name(outcome).removeprefix('TASK_').lower()}"
        roll_back(mutation, table, instant, f"{reason}: {task.message}" if task.message else reason)
    return None, True


def _measured(task: pb.OptimizationTask, version: VersionRecord) -> None:
    task.files_before, task.files_after = version.removed.files, version.staged.files
    task.bytes_before, task.bytes_after = version.removed.bytes, version.staged.bytes
    task.rows_before, task.rows_after = version.removed.rows, version.staged.rows


def _remember(mutation: Mutation, table: LakeTableRecord, task: pb.OptimizationTask) -> None:
    """What the end of the task means for the next runs on its partition; after too many failures, an alarm."""
    tx, now = mutation.tx, mutation.now_ms
    history = records.history(tx, task.table_id, task.partition)
    if task.state in (pb.TASK_DONE, pb.TASK_NOTHING):
        history.last_run_ms = history.last_done_ms = now
        if task.kind == pb.FULL:
            history.last_full_ms = now
        history.failures, history.retry_ms, history.stopped_ms, history.last_error = 0, 0, 0, ""
    elif task.state == pb.TASK_CONFLICTED:
        history.last_run_ms = now  # the writer goes first, and is left alone for a while
    elif task.state in _FAILURES:
        history.failures += 1
        history.failed_ms = now
        history.last_error = task.message or pb.TaskState.Name(task.state)
        # The work of a worker that is lost goes to another one at once, unless it was what the worker was lost by.
        alone = task.state == pb.TASK_LOST and history.failures == 1
        history.retry_ms = 0 if alone else now + retry_pause_ms(history.failures)
        try:
            attempts_max = policy_of(table.properties).attempts_max
        except LakemarkError:  # set by an earlier release
            attempts_max = 1
        if history.failures >= attempts_max:
            history.stopped_ms = now
            mutation.tell(events.of_stop(table, task, history))
    else:
        return
    records.put_history(tx, task.table_id, task.partition, history)


def _after(ended: Ended) -> None:
    """Deletes the files of an instant that was given up, and counts."""
    task = ended.task
    if ended.location:
        delete_files(ended.location, task.instant)
    state = pb.TaskState.Name(task.state).removeprefix("TASK_").lower()
    OPTIMIZATION_TASKS_ENDED.add(state)
    OPTIMIZATION_BYTES.add(by=task.bytes_after)
    _log.info(
        "an optimization has ended",
        table=f"{task.table.database}.{task.table.table}",
        partition=task.partition,
        kind=pb.OptimizationKind.Name(task.kind).lower(),
        state=state,
        files=f"{task.files_before} -> {task.files_after}",
        bytes=f"{task.bytes_before} -> {task.bytes_after}",
        seconds=(task.ended_ms - task.assigned_ms) / 1_000 if task.assigned_ms else 0,
        message=task.message,
    )


def _worker(mutation: Mutation, group: str, worker_id: str) -> pb.OptimizerWorker:
    worker = records.worker(mutation.tx, group, worker_id)
    if worker is None:
        raise WorkerUnknown(
            f"worker {worker_id[:NAME_CHARS_MAX]!r} of group {group[:NAME_CHARS_MAX]!r} is not registered, or was "
            "given up because it said nothing: register again"
        )
    return worker


def _own(mutation: Mutation, worker_id: str, name: TaskId) -> pb.OptimizationTask:
    """Raises TaskLost."""
    task = records.task(mutation.tx, name)
    if task is None:
        raise _lost(name, worker_id, "it has ended")
    if task.worker != worker_id or task.state not in _WORKED:
        raise _lost(name, worker_id, f"{task.worker or 'nobody'} has it")
    return task


def _lost(name: TaskId, worker_id: str, why: str) -> TaskLost:
    return TaskLost(
        f"the task of table id {name.table_id} with instant {name.instant} is not one of worker "
        f"{worker_id[:NAME_CHARS_MAX]!r}: {why}; what was done for it does not count"
    )


def _give_up(worker: pb.OptimizerWorker, mutation: Mutation) -> None:
    current = records.worker(mutation.tx, worker.group, worker.worker_id)
    if current is not None and current.heartbeat_ms + HEARTBEAT_MS < mutation.now_ms:
        records.clear_worker(mutation.tx, current)


def _end_overdue(task: pb.OptimizationTask, living: Iterable[str], mutation: Mutation) -> Ended | None:
    current = records.task(mutation.tx, task_id(task))
    why = None if current is None else overdue(current, living, mutation.now_ms)
    return None if current is None or why is None else end(mutation, current, *why)
