"""What is stored of tables that look after themselves, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar, cast

from google.protobuf.message import Message

from lakemark_proto.store.v1.optimization_pb2 import OptimizationRecord, PartitionHistory
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_server.kv import ReadTransaction, Space, Transaction, counter
from lakemark_server.store.keyspace import (
    GROUP_TIMES,
    LAKE_TABLES,
    OPTIMIZATION_HOLDS,
    OPTIMIZATION_RUN_TIMES,
    OPTIMIZATION_RUNS,
    OPTIMIZATION_TASKS,
    OPTIMIZATIONS,
    OPTIMIZATIONS_DUE,
    OPTIMIZER_GROUPS,
    OPTIMIZER_WORKERS,
    PARTITION_HISTORIES,
    TABLE_READS,
    TABLE_TIMES,
    TASKS_READY,
)

HOUR_MS: Final = 3_600_000
SLOT_MS: Final = 300_000
"""Worker time is counted in pieces of five minutes, so that an hour is the last twelve of them."""
HEARTBEAT_MS: Final = 60_000
"""After so much silence of a worker its tasks are lost."""
RUNS_KEPT_MS: Final = 30 * 24 * HOUR_MS
READS_KEPT_MS: Final = 24 * HOUR_MS

M = TypeVar("M", bound=Message)


class TaskId(NamedTuple):
    """The name of a task."""

    table_id: int
    instant: int


def task_id(task: pb.OptimizationTask) -> TaskId:
    """The name of this task."""
    return TaskId(task.table_id, task.instant)


def exists(tx: ReadTransaction, table_id: int) -> bool:
    """Whether there is such a table, or it was dropped and can be brought back: nothing is kept of others."""
    return tx.get(LAKE_TABLES.key(table_id, 0)) is not None


# -- tables -----------------------------------------------------------------------------------------------------------


def table(tx: ReadTransaction, table_id: int) -> OptimizationRecord:
    """What the planner knows of a table; an empty record if it was never looked at."""
    stored = tx.get(OPTIMIZATIONS.key(table_id))
    return OptimizationRecord() if stored is None else OptimizationRecord.FromString(stored)


def put_table(tx: Transaction, table_id: int, record: OptimizationRecord) -> None:
    """Writes the record, and when the table is due, which was ``record.due_ms`` of what is stored."""
    before = table(tx, table_id).due_ms
    if before != record.due_ms:
        if before:
            tx.clear(OPTIMIZATIONS_DUE.key(before, table_id))
        if record.due_ms:
            tx.set(OPTIMIZATIONS_DUE.key(record.due_ms, table_id), b"")
    tx.set(OPTIMIZATIONS.key(table_id), record.SerializeToString())


def make_due(tx: Transaction, table_id: int, ms: int) -> None:
    """Lets the planner look at a table at this time, unless it does so earlier anyway."""
    record = table(tx, table_id)
    if (not record.due_ms or record.due_ms > ms) and exists(tx, table_id):
        record.due_ms = ms
        put_table(tx, table_id, record)


def due(tx: ReadTransaction, now_ms: int, limit: int) -> list[tuple[int, int]]:
    """(when it is due, table id) of tables that are due, the earliest first. Dropped tables may be among them."""
    begin, end = OPTIMIZATIONS_DUE.range()[0], OPTIMIZATIONS_DUE.key(now_ms + 1)
    pairs = tx.get_range(begin, end, limit=limit, snapshot=True)
    return [cast("tuple[int, int]", OPTIMIZATIONS_DUE.unpack(key)) for key, _ in pairs]


def dismiss(tx: Transaction, ms: int, table_id: int) -> None:
    """The table was dropped, and is not looked at; if it is brought back, an event tells so."""
    tx.clear(OPTIMIZATIONS_DUE.key(ms, table_id))
    record = table(tx, table_id)
    if not exists(tx, table_id):
        tx.clear(OPTIMIZATIONS.key(table_id))
    elif record.due_ms:
        record.due_ms = 0
        put_table(tx, table_id, record)


def histories(tx: ReadTransaction, table_id: int) -> dict[str, PartitionHistory]:
    """What became of earlier runs, by partition."""
    pairs = tx.get_range(*PARTITION_HISTORIES.range(table_id), snapshot=True)
    return {str(PARTITION_HISTORIES.unpack(key)[-1]): PartitionHistory.FromString(value) for key, value in pairs}


def history(tx: ReadTransaction, table_id: int, partition: str) -> PartitionHistory:
    """The same of one partition."""
    stored = tx.get(PARTITION_HISTORIES.key(table_id, partition))
    return PartitionHistory() if stored is None else PartitionHistory.FromString(stored)


def put_history(tx: Transaction, table_id: int, partition: str, record: PartitionHistory) -> None:
    """Writes what became of earlier runs on a partition."""
    tx.set(PARTITION_HISTORIES.key(table_id, partition), record.SerializeToString())


def clear_history(tx: Transaction, table_id: int, partition: str) -> None:
    """Forgets a partition that has no files any more."""
    tx.clear(PARTITION_HISTORIES.key(table_id, partition))


# -- tasks ------------------------------------------------------------------------------------------------------------


def task(tx: ReadTransaction, name: TaskId) -> pb.OptimizationTask | None:
    """An open task; None if there is none."""
    stored = tx.get(OPTIMIZATION_TASKS.key(*name))
    return None if stored is None else pb.OptimizationTask.FromString(stored)


def tasks_of_table(tx: ReadTransaction, table_id: int) -> list[pb.OptimizationTask]:
    """Open tasks of a table."""
    return _messages(tx, OPTIMIZATION_TASKS, pb.OptimizationTask, table_id)


def open_tasks(tx: ReadTransaction) -> list[pb.OptimizationTask]:
    """Open tasks of all tables. They are few: tasks are planned only for workers that are there."""
    pairs = tx.get_range(*OPTIMIZATION_TASKS.range(), snapshot=True)
    return [pb.OptimizationTask.FromString(value) for _, value in pairs]


def put_task(tx: Transaction, record: pb.OptimizationTask) -> None:
    """Writes an open task; one that waits is to be found by its group."""
    tx.set(OPTIMIZATION_TASKS.key(*task_id(record)), record.SerializeToString())
    ready = TASKS_READY.key(record.group, record.planned_ms, *task_id(record))
    if record.state == pb.TASK_WAITING:
        tx.set(ready, b"")
    else:
        tx.clear(ready)


def clear_task(tx: Transaction, record: pb.OptimizationTask) -> None:
    """Removes an open task."""
    tx.clear(OPTIMIZATION_TASKS.key(*task_id(record)))
    tx.clear(TASKS_READY.key(record.group, record.planned_ms, *task_id(record)))


def end_task(tx: Transaction, record: pb.OptimizationTask) -> None:
    """Moves a task to the runs that have ended, and forgets very old ones of the table."""
    clear_task(tx, record)
    key = OPTIMIZATION_RUNS.key(record.table_id, record.ended_ms, record.instant)
    tx.set(key, record.SerializeToString())
    tx.set(OPTIMIZATION_RUN_TIMES.key(record.ended_ms, *task_id(record)), b"")
    first = OPTIMIZATION_RUNS.range(record.table_id)[0]
    tx.clear_range(first, OPTIMIZATION_RUNS.key(record.table_id, max(0, record.ended_ms - RUNS_KEPT_MS)))
    tx.clear_range(
        OPTIMIZATION_RUN_TIMES.range()[0], OPTIMIZATION_RUN_TIMES.key(max(0, record.ended_ms - RUNS_KEPT_MS))
    )


def ready(tx: ReadTransaction, group: str, limit: int) -> list[tuple[bytes, TaskId]]:
    """Tasks of a group that wait, in the order in which they were planned, with the keys under which they do.

    Some may be gone: those of a table that was deleted.
    """
    pairs = tx.get_range(*TASKS_READY.range(group), limit=limit, snapshot=True)
    return [(key, TaskId(*cast("tuple[int, int]", TASKS_READY.unpack(key)[-2:]))) for key, _ in pairs]


def runs(tx: ReadTransaction, table_id: int, before: tuple[int, int] | None, limit: int) -> list[pb.OptimizationTask]:
    """Ended tasks of a table, the last one first. ``before``: end and instant of the last one seen."""
    begin, end = OPTIMIZATION_RUNS.range(table_id)
    if before is not None:
        end = OPTIMIZATION_RUNS.key(table_id, *before)
    pairs = tx.get_range(begin, end, limit=limit, reverse=True) if begin < end else []
    return [pb.OptimizationTask.FromString(value) for _, value in pairs]


def all_runs(
    tx: ReadTransaction, before: tuple[int, int, int] | None, limit: int
) -> tuple[list[pb.OptimizationTask], tuple[int, int, int] | None]:
    """The same of all tables, and where to read on; None: these were the last. ``before``: end, table id, instant."""
    begin, end = OPTIMIZATION_RUN_TIMES.range()
    if before is not None:
        end = OPTIMIZATION_RUN_TIMES.key(*before)
    pairs = tx.get_range(begin, end, limit=limit, reverse=True) if begin < end else []
    names = [cast("tuple[int, int, int]", OPTIMIZATION_RUN_TIMES.unpack(key)) for key, _ in pairs]
    stored = tx.get_many([OPTIMIZATION_RUNS.key(table_id, ms, instant) for ms, table_id, instant in names])
    # Those of tables that were deleted are gone.
    records = [pb.OptimizationTask.FromString(value) for value in stored if value is not None]
    return records, names[-1] if len(names) == limit else None


# -- holds ------------------------------------------------------------------------------------------------------------


def holds(tx: ReadTransaction, table_id: int) -> list[pb.OptimizationHold]:
    """Holds of a table, those included whose time is over."""
    return _messages(tx, OPTIMIZATION_HOLDS, pb.OptimizationHold, table_id)


def put_hold(tx: Transaction, table_id: int, hold: pb.OptimizationHold) -> None:
    """Sets the hold on a table or partition."""
    tx.set(OPTIMIZATION_HOLDS.key(table_id, hold.partition), hold.SerializeToString())


def clear_hold(tx: Transaction, table_id: int, partition: str) -> bool:
    """Whether there was one."""
    key = OPTIMIZATION_HOLDS.key(table_id, partition)
    there = tx.get(key) is not None
    tx.clear(key)
    return there


# -- groups and workers -----------------------------------------------------------------------------------------------


def group(tx: ReadTransaction, name: str) -> pb.OptimizerGroup:
    """What was configured for a group; the defaults if nothing was."""
    stored = tx.get(OPTIMIZER_GROUPS.key(name))
    return pb.OptimizerGroup(name=name) if stored is None else pb.OptimizerGroup.FromString(stored)


def put_group(tx: Transaction, record: pb.OptimizerGroup) -> None:
    """Writes what is configured for a group."""
    tx.set(OPTIMIZER_GROUPS.key(record.name), record.SerializeToString())


def groups(tx: ReadTransaction) -> list[pb.OptimizerGroup]:
    """Groups that are configured."""
    return _messages(tx, OPTIMIZER_GROUPS, pb.OptimizerGroup)


def worker(tx: ReadTransaction, group_name: str, worker_id: str) -> pb.OptimizerWorker | None:
    """A worker that is registered."""
    stored = tx.get(OPTIMIZER_WORKERS.key(group_name, worker_id))
    return None if stored is None else pb.OptimizerWorker.FromString(stored)


def put_worker(tx: Transaction, record: pb.OptimizerWorker) -> None:
    """Writes a worker."""
    tx.set(OPTIMIZER_WORKERS.key(record.group, record.worker_id), record.SerializeToString())


def clear_worker(tx: Transaction, record: pb.OptimizerWorker) -> None:
    """Removes a worker."""
    tx.clear(OPTIMIZER_WORKERS.key(record.group, record.worker_id))


def workers(tx: ReadTransaction, *group_name: str) -> list[pb.OptimizerWorker]:
    """Workers of a group, or of all."""
    pairs = tx.get_range(*OPTIMIZER_WORKERS.range(*group_name), snapshot=True)
    return [pb.OptimizerWorker.FromString(value) for _, value in pairs]


# -- what was used ----------------------------------------------------------------------------------------------------


def worked_ms(task: pb.OptimizationTask, now_ms: int) -> int:
    """The worker time of an open task; of a lost one, not longer than anything was heard of it."""
    if not task.assigned_ms:
        return 0
    return max(0, min(now_ms, max(task.assigned_ms, task.heartbeat_ms) + HEARTBEAT_MS) - task.assigned_ms)


def add_time(tx: Transaction, table_id: int, group_name: str, ended_ms: int, used_ms: int) -> None:
    """Counts worker time of a task that has ended now."""
    slot = ended_ms // SLOT_MS * SLOT_MS
    for space, name in ((GROUP_TIMES.space(group_name), slot), (TABLE_TIMES.space(table_id), slot)):
        tx.add(space.key(name), used_ms)
        tx.clear_range(space.range()[0], space.key(max(0, slot - 2 * HOUR_MS)))


def group_time(tx: ReadTransaction, name: str, now_ms: int) -> int:
    """Worker time of a group's tasks that ended within the last hour, in ms."""
    return _sum(tx, GROUP_TIMES.space(name), now_ms - HOUR_MS)


def table_time(tx: ReadTransaction, table_id: int, now_ms: int) -> int:
    """Worker time of a table's tasks that ended within the last hour, in ms."""
    return _sum(tx, TABLE_TIMES.space(table_id), now_ms - HOUR_MS)


def add_reads(tx: Transaction, table_id: int, now_ms: int, count: int) -> None:
    """Counts plan requests, unless the table is gone."""
    if not exists(tx, table_id):
        return
    hour = now_ms // HOUR_MS * HOUR_MS
    space = TABLE_READS.space(table_id)
    tx.add(space.key(hour), count)
    tx.clear_range(space.range()[0], space.key(max(0, hour - 2 * READS_KEPT_MS)))


def reads(tx: ReadTransaction, table_id: int, now_ms: int) -> int:
    """Plan requests of the last day."""
    return _sum(tx, TABLE_READS.space(table_id), now_ms - READS_KEPT_MS)


def _sum(tx: ReadTransaction, space: Space, since_ms: int) -> int:
    pairs = tx.get_range(space.key(max(0, since_ms)), space.range()[1], snapshot=True)
    return sum(counter(value) for _, value in pairs)


def _messages(tx: ReadTransaction, space: Space, kind: type[M], *items: int | str) -> list[M]:
    return list(_parsed(tx, space, kind, *items))


def _parsed(tx: ReadTransaction, space: Space, kind: type[M], *items: int | str) -> Iterator[M]:
    for _, value in tx.get_range(*space.range(*items)):
        message = kind()
        message.ParseFromString(value)
        yield message
