"""Tasks from their plan to their end, on a real timeline."""

from __future__ import annotations

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_proto.store.v1.optimization_pb2 import PartitionHistory
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import events_pb2
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.events.log import EventLog
from lakemark_server.kv import Transaction
from lakemark_server.optimization import generator, records
from lakemark_server.optimization.leader import PlannerThread
from lakemark_server.optimization.reads import ReadCounts
from lakemark_server.optimization.records import HEARTBEAT_MS, TaskId, task_id
from lakemark_server.optimization.service import Optimization
from lakemark_server.optimization.tasks import ACKNOWLEDGE_MS, PROTOCOL, RUN_MS_MAX, TaskLost, Tasks, WorkerUnknown
from lakemark_server.store import keyspace
from lakemark_server.verify import verify
from tests.lakes import FLAT, Lake
from tests.optimization_world import planner_thread


class Bench:
    """A table with four fragments, a planner and a worker."""

    def __init__(self, lake: Lake, **properties: str) -> None:
        self.lake = lake
        given = {f"lakemark.optimize.{name.replace('_', '-')}": value for name, value in properties.items()}
        given |= {"lakemark.optimize.minor.fragments": "4"}
        record = LakeTableRecord(database="default", name="t", properties=given)
        self.table: LakeTable = lake.catalog.create_lake_table(record, FLAT)
        for _ in range(4):
            instant = lake.open(self.table)
            lake.commit(self.table, instant, [_file(instant)])
        self.tasks = Tasks(lake.store, lake.clock)
        self.planner: PlannerThread = planner_thread(lake.store, lake)
        self.optimization = Optimization(lake.store, lake.snapshots, lake.clock)
        self.worker = self.register()

    def register(self) -> pb.OptimizerWorker:
        wanted = pb.OptimizerWorker(group="default", host="h", slots=1, executors=["arrow"])
        return self.tasks.register(wanted, PROTOCOL)

    def task(self) -> pb.OptimizationTask:
        self.planner.once()
        taken = self.tasks.take("default", self.worker.worker_id)
        assert taken is not None
        return taken

    def state(self) -> pb.OptimizationState.ValueType:
        return self.optimization.explain(self.table).state

    def runs(self) -> list[pb.OptimizationTask]:
        return self.optimization.runs(self.table, None, 100).runs

    def instant(self, number: int) -> t.InstantState.ValueType:
        return self.lake.timeline.instant(self.table.table_id, number)[0].state


def _file(instant: int) -> object:
    from lakemark_proto.v1.types_pb2 import DataFile

    return DataFile(path=f"{instant}/g{instant}/a.parquet", size_bytes=10, row_count=1)


@pytest.fixture
def bench(lake: Lake) -> Bench:
    return Bench(lake)


def test_a_plan_is_a_requested_instant_with_its_task(bench: Bench) -> None:
    assert bench.planner.once() == 1
    (task,) = bench.lake.store.read(records.open_tasks)
    record, _ = bench.lake.timeline.instant(bench.table.table_id, task.instant)
    assert (record.state, record.operation, record.owner) == (t.REQUESTED, t.CLUSTER, "optimizer")
    assert record.metadata["lakemark.optimizer.reason"] == task.reason == "4 fragments of 4 needed"
    assert bench.state() == pb.PLANNED
    assert bench.planner.once() == 0, "not twice"


def test_a_task_that_is_not_begun_in_time_goes_to_another_one(bench: Bench) -> None:
    task = bench.task()
    bench.lake.clock.advance(ACKNOWLEDGE_MS + 1)
    with pytest.raises(TaskLost, match="in time"):
        bench.tasks.acknowledge(bench.worker.worker_id, task_id(task))
    bench.tasks.heartbeat("default", bench.worker.worker_id, [])
    bench.planner.once()
    assert bench.instant(task.instant) == t.ROLLED_BACK
    assert [run.state for run in bench.runs()] == [pb.TASK_LOST]
    other = bench.task()
    assert other.instant != task.instant, "at once"
    bench.lake.clock.advance(ACKNOWLEDGE_MS + 1)
    bench.tasks.heartbeat("default", bench.worker.worker_id, [])
    bench.planner.once()
    assert bench.state() == pb.BACKING_OFF, "but not again and again"


def test_a_silent_worker_loses_its_task_and_its_place(bench: Bench) -> None:
    task = bench.task()
    bench.tasks.acknowledge(bench.worker.worker_id, task_id(task))
    bench.lake.clock.advance(HEARTBEAT_MS)
    assert bench.tasks.heartbeat("default", bench.worker.worker_id, [task_id(task)]) == []
    bench.planner.once()
    assert bench.state() == pb.RUNNING
    bench.lake.clock.advance(HEARTBEAT_MS + 1)
    bench.planner.once()
    with pytest.raises(WorkerUnknown):
        bench.tasks.heartbeat("default", bench.worker.worker_id, [task_id(task)])
    with pytest.raises(TaskLost):
        bench.tasks.complete(bench.worker.worker_id, task_id(task), pb.TASK_DONE)
    assert "has said nothing for more than 60 s" in bench.runs()[0].message


def test_the_instant_has_the_last_word(bench: Bench) -> None:
    task = bench.task()
    bench.tasks.acknowledge(bench.worker.worker_id, task_id(task))
    ended = bench.tasks.complete(bench.worker.worker_id, task_id(task), pb.TASK_DONE, "sure")
    assert (ended.state, "was not committed" in ended.message) == (pb.TASK_FAILED, True)
    assert bench.instant(task.instant) == t.ROLLED_BACK
    assert bench.tasks.complete(bench.worker.worker_id, task_id(task), pb.TASK_DONE) == ended, "asked again"


def test_a_task_belongs_to_one_worker(bench: Bench) -> None:
    task, other = bench.task(), bench.register()
    assert bench.tasks.take("default", other.worker_id) is None
    for call in (bench.tasks.acknowledge, lambda *given: bench.tasks.complete(*given, pb.TASK_NOTHING)):
        with pytest.raises(TaskLost, match=f"{bench.worker.worker_id} has it"):
            call(other.worker_id, task_id(task))
    assert bench.tasks.heartbeat("default", other.worker_id, [task_id(task)]) == [task_id(task)]


def test_an_executor_that_never_answers_loses_its_task_though_its_worker_lives(bench: Bench) -> None:
    task = bench.task()
    bench.tasks.acknowledge(bench.worker.worker_id, task_id(task))
    lost: list[TaskId] = []
    for _ in range(RUN_MS_MAX // HEARTBEAT_MS + 1):
        assert not lost
        bench.lake.clock.advance(HEARTBEAT_MS)
        lost = bench.tasks.heartbeat("default", bench.worker.worker_id, [task_id(task)])
        bench.tasks.end_overdue()
    assert bench.runs()[0].message == "it did not end within 6 hours"
    assert bench.runs()[0].state == pb.TASK_LOST
    bench.lake.clock.advance(1_000)
    assert bench.tasks.heartbeat("default", bench.worker.worker_id, [task_id(task)]) == [task_id(task)]
    assert "has used its share of group 'default'" in bench.optimization.explain(bench.table).reason
    bench.lake.clock.advance(records.HOUR_MS)
    bench.worker = bench.register()
    assert bench.task().instant != task.instant, "it is planned anew"


def test_a_conflict_is_no_failure(bench: Bench) -> None:
    task = bench.task()
    bench.tasks.acknowledge(bench.worker.worker_id, task_id(task))
    bench.tasks.complete(bench.worker.worker_id, task_id(task), pb.TASK_CONFLICTED, "a writer was first")
    assert bench.state() == pb.RESTING
    (told,) = bench.optimization.explain(bench.table).partition_states
    assert told.failures == 0


def test_failures_back_off_and_stop_with_an_alarm(lake: Lake) -> None:
    bench = Bench(lake, attempts_max="2")
    log = EventLog(lake.store)
    position = log.end("hive")
    for expected in (pb.BACKING_OFF, pb.STOPPED):
        task = bench.task()
        bench.tasks.acknowledge(bench.worker.worker_id, task_id(task))
        bench.tasks.complete(bench.worker.worker_id, task_id(task), pb.TASK_FAILED, "no disk")
        assert bench.state() == expected
        lake.clock.advance(30_001)
        bench.tasks.heartbeat("default", bench.worker.worker_id, [])
    told = [event for event in log.page("hive", position).events if event.kind == events_pb2.OPTIMIZATION_STOPPED]
    (event,) = told
    assert (event.table, event.optimization.failures, event.optimization.last_error) == ("t", 2, "no disk")
    assert bench.planner.once() == 0
    bench.optimization.resume(bench.table)
    assert bench.planner.once() == 1


def test_a_hold_or_pause_between_look_and_plan_keeps_it_from_being_made(bench: Bench) -> None:
    bench.optimization.hold(bench.table, "", 60_000, "audit")
    assert bench.planner.once() == 0
    assert bench.state() == pb.HELD
    bench.lake.clock.advance(60_001)
    bench.tasks.heartbeat("default", bench.worker.worker_id, [])
    assert bench.planner.once() == 1


def test_a_plan_that_nobody_takes_is_withdrawn_and_made_anew(bench: Bench) -> None:
    bench.planner.once()
    (first,) = bench.lake.store.read(records.open_tasks)
    for _ in range(16):
        bench.lake.clock.advance(59_000)
        bench.tasks.heartbeat("default", bench.worker.worker_id, [])
    assert bench.planner.once() == 1
    (second,) = bench.lake.store.read(records.open_tasks)
    assert second.instant != first.instant
    assert [run.state for run in bench.runs()] == [pb.TASK_WITHDRAWN]


def test_a_dropped_table_takes_its_tasks_along(bench: Bench) -> None:
    task = bench.task()
    bench.tasks.acknowledge(bench.worker.worker_id, task_id(task))
    bench.lake.catalog.dropped.drop("", "default", "t")
    bench.planner.once()
    bench.tasks.complete(bench.worker.worker_id, task_id(task), pb.TASK_FAILED, "the table is gone")
    assert bench.lake.store.read(records.open_tasks) == []
    bench.planner.once()


def test_nothing_is_left_of_a_table_that_was_deleted(bench: Bench) -> None:
    bench.planner.once()
    bench.lake.catalog.dropped.drop("", "default", "t", now=True)
    bench.planner.once()
    reads = ReadCounts(bench.lake.store, bench.lake.clock)
    reads.note(bench.table.table_id)
    reads.write()
    assert bench.tasks.take("default", bench.worker.worker_id) is None
    bench.planner.once()
    assert list(verify(bench.lake.store)) == []
    assert bench.lake.store.read(lambda tx: records.ready(tx, "default", 10)) == []


def test_verify_finds_what_was_lost(bench: Bench) -> None:
    store = bench.lake.store
    bench.planner.once()
    (task,) = store.read(records.open_tasks)
    assert list(verify(store)) == []

    def without(key: bytes) -> list[str]:
        value = store.read(lambda tx: tx.get(key))
        assert value is not None
        store.transact(lambda tx: tx.clear(key))
        problems = list(verify(store))
        store.transact(lambda tx: tx.set(key, value))
        return problems

    name = task_id(task)
    told = f"the optimization of table id {name.table_id} with instant {name.instant}"
    assert without(keyspace.TASKS_READY.key("default", task.planned_ms, *name)) == [
        f"{told} waits, and no worker finds it"
    ]
    assert without(keyspace.OPTIMIZATION_TASKS.key(*name)) == [
        f"instant {name.instant} of table id {name.table_id} was planned, and has no task"
    ]
    assert f"{told} has no instant" in without(keyspace.INSTANTS.key(*name))
    due = store.read(lambda tx: records.table(tx, name.table_id)).due_ms
    assert without(keyspace.OPTIMIZATIONS_DUE.key(due, name.table_id)) == [
        f"table id {name.table_id} is to be looked at by the optimizer, and is not among those due"
    ]
    assert list(verify(store)) == []


def test_the_list_says_what_the_group_lacks(bench: Bench) -> None:
    bench.tasks.leave("default", bench.worker.worker_id)
    assert bench.planner.once() == 0
    tables, following, leader = bench.optimization.tables("hive", 0, 10)
    assert [one.reason for one in tables] == ["4 fragments of 4 needed; group 'default' has no worker"]
    assert (following, leader) == (None, bench.planner.holder)
    assert bench.optimization.tables("hive", 0, 10, group="other")[0] == []
    assert bench.optimization.tables("hive", 0, 10, states=[pb.IDLE])[0] == []
    bench.register()
    bench.lake.clock.advance(HEARTBEAT_MS + 1)
    told = bench.optimization.explain(bench.table)
    assert told.reason.endswith("group 'default' has no worker; but no process plans"), "silent ones do not count"


def test_partitions_that_have_vanished_are_forgotten_a_bounded_number_at_a_time(bench: Bench) -> None:
    table_id, store = bench.table.table_id, bench.lake.store
    bench.tasks.leave("default", bench.worker.worker_id)

    def remember(tx: Transaction) -> None:
        for number in range(generator.FORGOTTEN_A_LOOK + 3):
            records.put_history(tx, table_id, f"d={number}", PartitionHistory(last_run_ms=1))

    store.transact(remember)
    left = []
    for _ in range(3):
        bench.planner.once()
        left.append(len(store.read(lambda tx: records.histories(tx, table_id))))
        bench.lake.clock.advance(generator.AGAIN_MS)
    assert left == [3, 0, 0]


def test_another_release_and_a_policy_of_an_earlier_one_are_told(bench: Bench) -> None:
    with pytest.raises(InvalidArgument, match="install the same release"):
        bench.tasks.register(pb.OptimizerWorker(group="default", slots=1, executors=["arrow"]), PROTOCOL + 1)


def test_of_two_planners_one_plans_and_the_fenced_one_cannot(bench: Bench) -> None:
    other = planner_thread(bench.lake.store, bench.lake)
    assert bench.planner.once() == 1
    assert other.once() == 0
    planning = bench.planner._current[2]  # type: ignore[index]
    bench.lake.clock.advance(60_000)
    other.once()  # it has the lease now
    from lakemark_server.store.leases import LeaseLost

    with pytest.raises(LeaseLost):
        planning.look(bench.table.table_id)
