"""Optimization: each open task has its instant and each open instant of the optimizer its task, and both are found by
the indexes."""

from __future__ import annotations

from typing import cast

from lakemark_proto.store.v1.optimization_pb2 import OptimizationRecord
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_server.kv import Store, keys_below
from lakemark_server.optimization import records
from lakemark_server.optimization.plans import METADATA_KIND
from lakemark_server.optimization.records import TaskId, task_id
from lakemark_server.store.keyspace import (
    ALIVE,
    INSTANTS,
    OPTIMIZATION_TASKS,
    OPTIMIZATIONS,
    OPTIMIZATIONS_DUE,
    TASKS_READY,
)
from lakemark_server.verify.lake import Problems


def check(store: Store) -> Problems:
    """A sentence for each violation."""
    tasks = {task_id(one): one for one in _tasks(store)}
    return [*_check_tasks(store, tasks), *_check_instants(store, tasks), *_check_due(store)]


def _tasks(store: Store) -> list[pb.OptimizationTask]:
    return [pb.OptimizationTask.FromString(value) for _, value in keys_below(store, OPTIMIZATION_TASKS)]


def _check_tasks(store: Store, tasks: dict[TaskId, pb.OptimizationTask]) -> Problems:
    ready = {TaskId(*cast("tuple[int, int]", items[-2:])) for items, _ in keys_below(store, TASKS_READY)}
    problems = []
    for name, task in tasks.items():
        if store.read(lambda tx, name=name: tx.get(INSTANTS.key(*name))) is None:  # type: ignore[misc]
            problems.append(f"the optimization of table id {name.table_id} with instant {name.instant} has no instant")
        if (name in ready) is not (task.state == pb.TASK_WAITING):
            which = "waits, and no worker finds it" if name not in ready else "does not wait, and workers find it"
            problems.append(f"the optimization of table id {name.table_id} with instant {name.instant} {which}")
    return problems


def _check_instants(store: Store, tasks: dict[TaskId, pb.OptimizationTask]) -> Problems:
    """No instant of a plan is open without its task: nobody would ever carry it out."""
    problems = []
    for items, _ in keys_below(store, ALIVE):
        name = TaskId(*cast("tuple[int, int]", items))
        if name in tasks:
            continue
        stored = store.read(lambda tx, name=name: tx.get(INSTANTS.key(*name)))  # type: ignore[misc]
        if stored is not None and InstantRecord.FromString(stored).metadata.get(METADATA_KIND):
            problems.append(f"instant {name.instant} of table id {name.table_id} was planned, and has no task")
    return problems


def _check_due(store: Store) -> Problems:
    due = {cast("tuple[int, int]", items) for items, _ in keys_below(store, OPTIMIZATIONS_DUE)}
    problems = []
    for (table_id, *_), value in keys_below(store, OPTIMIZATIONS):
        ms = OptimizationRecord.FromString(value).due_ms
        if ms and (ms, table_id) not in due:
            problems.append(f"table id {table_id} is to be looked at by the optimizer, and is not among those due")
    for ms, table_id in due:
        if store.read(lambda tx, table_id=table_id: records.table(tx, table_id)).due_ms not in (ms, 0):  # type: ignore[misc]
            problems.append(f"table id {table_id} is due twice for the optimizer")
    return problems
