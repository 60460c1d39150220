"""A simulated world of optimization: real timelines, a seeded clock, and everything that can go wrong.

Tables get small commits. Two processes plan, of which one has the lease; they die, hang, and their store fails. Workers
take tasks, do them in small steps, die at any of them, come back late, and say things twice. After each step the
invariants must hold; in the end, when nothing fails any more, everything that is due must get done.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from lakemark_core.errors import CommitConflict, LakemarkError
from lakemark_core.optimization import FRAGMENTS_PROPERTY, GROUP_PROPERTY, PRIORITY_PROPERTY, files_to_merge
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1.types_pb2 import DataFile, Value
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.events.service import Events
from lakemark_server.events.upkeep import EventRetention
from lakemark_server.kv import Store
from lakemark_server.optimization import records
from lakemark_server.optimization.assessments import Assessor
from lakemark_server.optimization.generator import PlanGenerator
from lakemark_server.optimization.leader import PlannerThread
from lakemark_server.optimization.plans import OWNER
from lakemark_server.optimization.records import HEARTBEAT_MS, TaskId, task_id
from lakemark_server.optimization.schedule import AHEAD
from lakemark_server.optimization.service import Optimization
from lakemark_server.optimization.tasks import Tasks
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.timeline.jobs.start import StartJob
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.timeline.service import Timeline
from lakemark_server.verify import verify
from tests.faulty_store import Faults, FaultyStore, Rates
from tests.lakes import FLAT, Lake, files
from tests.optimization_aging import TTL_MS, Aging, Growing

FRAGMENTS = 4
SLOTS = 2
RUN_MS_MAX = 90_000
LOOKS_A_TABLE = 10
FAULTS = Rates(
    unavailable=0.01, too_old=0.005, conflict=0.05, expired=0.02, unknown_lost=0.02, unknown_done=0.02, disk_full=0.01
)


def planner_thread(store: Store, lake: Lake) -> PlannerThread:
    """A process that plans; call ``once``."""
    events = Events(store, EventRetention(10**12, 10**12), lake.clock)

    def made(fenced: Store) -> PlanGenerator:
        snapshots = Snapshots(fenced)
        return PlanGenerator(
            fenced,
            lake.clock,
            Timeline(fenced, snapshots, lake.clock),
            Assessor(fenced, snapshots, lake.clock),
            events.log,
            Events(fenced, EventRetention(10**12, 10**12), lake.clock).consumers,
        )

    return PlannerThread(store, lake.clock, made)


@dataclass
class Work:
    """A task in the hands of a worker, as the worker sees it."""

    task: pb.OptimizationTask
    step: str = "acknowledge"
    outcome: Any = pb.TASK_DONE
    added: list[DataFile] | None = None
    removed: tuple[str, ...] = ()


class SimulatedWorker:
    """Does its tasks by hand, with the calls that a real worker makes."""

    def __init__(self, world: World, group: str) -> None:
        self.world, self.group = world, group
        self.worker_id = ""
        self.work: list[Work] = []

    def act(self, calls: Tasks) -> None:
        """One step, of one task or of the worker itself. Errors of the store are met as a client does: again later."""
        world, rng = self.world, self.world.rng
        try:
            if not self.worker_id:
                wanted = pb.OptimizerWorker(group=self.group, host="sim", slots=SLOTS, executors=["arrow"])
                self.worker_id = calls.register(wanted, 1).worker_id
            elif rng.random() < 0.4:
                names = [task_id(one.task) for one in self.work]
                lost = set(calls.heartbeat(self.group, self.worker_id, names))
                if rng.random() < 0.8:  # else it does not listen
                    self.work = [one for one in self.work if task_id(one.task) not in lost]
            elif len(self.work) < SLOTS and rng.random() < 0.5:
                task = calls.take(self.group, self.worker_id)
                if task is not None:
                    self.work.append(Work(task))
            elif self.work:
                self._do(calls, rng.choice(self.work))
        except LakemarkError as error:
            if error.code in {"worker_unknown", "task_lost"}:
                world.counts[error.code] += 1
                if error.code == "worker_unknown":
                    self.worker_id = ""
                if rng.random() < 0.7:  # else it goes on as if nothing had happened
                    self.work = []

    def _do(self, calls: Tasks, work: Work) -> None:
        world, name = self.world, task_id(work.task)
        match work.step:
            case "acknowledge":
                calls.acknowledge(self.worker_id, name)
                work.step = "start"
            case "start":
                work.step = "commit" if self._start(work) else "complete"
            case "commit":
                work.outcome = self._commit(work)
                work.step = "complete"
            case _:
                if world.rng.random() < 0.1:
                    work.outcome = pb.TASK_FAILED  # it lies, or does not know better
                calls.complete(self.worker_id, name, work.outcome, "as simulated", "arrow")
                world.counts["completed"] += 1
                if world.rng.random() < 0.9:  # else it says so once more, later
                    self.work.remove(work)

    def _start(self, work: Work) -> bool:
        """Reads what the task says, and begins the instant. False: there is nothing to do, or nothing that may."""
        world, task = self.world, work.task
        table = world.tables[task.table_id]
        try:
            version = world.lake.snapshots.snapshot(
                "", "default", table.record.name, SnapshotReference(version=task.read_version)
            )
            entries = version.snapshot.entries()
            rows = sorted(
                (int(size), str(path), int(count), str(group))
                for size, path, count, group in zip(
                    *(entries.column(name).to_pylist() for name in ("size_bytes", "path", "row_count", "file_group")),
                    strict=True,
                )
                if size < task.small_bytes and (not task.partition or str(path).split("/")[1] == task.partition)
            )
            rows = rows[: files_to_merge([row[0] for row in rows], task.bytes_max)]
            if not rows:
                work.outcome = pb.TASK_NOTHING
                return False
            groups = sorted({row[3] for row in rows})
            world.lake.timeline.open_by(
                task.table_id, StartJob(task.instant, t.WorkProfile(file_groups=groups, whole_table=False))
            )
        except CommitConflict:
            work.outcome = pb.TASK_CONFLICTED
            return False
        except LakemarkError:
            work.outcome = pb.TASK_FAILED
            return False
        directory = f"{task.instant}/{task.partition}/" if task.partition else f"{task.instant}/"
        values = [Value(text=task.partition.removeprefix("h="))] if task.partition else []
        merged = DataFile(
            path=f"{directory}g{task.instant}/a.parquet",
            partition=values,
            size_bytes=sum(row[0] for row in rows),
            row_count=sum(row[2] for row in rows),
        )
        work.added, work.removed = [merged], tuple(row[1] for row in rows)
        return True

    def _commit(self, work: Work) -> Any:
        world, task = self.world, work.task
        table = world.tables[task.table_id]
        try:
            draft = CommitDraft(task.instant, files(*(work.added or ())), removed=work.removed)
            committed = world.lake.timeline.commit(table, draft)
        except CommitConflict:
            return pb.TASK_CONFLICTED
        except LakemarkError as error:
            world.counts[f"refused {error.code}"] += 1
            return pb.TASK_FAILED
        world.counts["committed"] += 1
        if task.table_id in world.aging:
            world.aging[task.table_id].merged(committed.version, *(work.added or ()), work.removed, task.planned_ms)
        world.committed.setdefault(TaskId(task.table_id, task.instant), set()).add(committed.version)
        return pb.TASK_DONE


class World:
    """``step`` does one random thing; ``check`` holds the invariants; ``finish`` lets everything come to an end."""

    def __init__(self, lake: Lake, seed: int, tables: int, workers: int, aging: int = 2, growing: int = 1) -> None:
        self.lake, self.rng, self.clock = lake, random.Random(seed), lake.clock
        self.counts: Counter[str] = Counter()
        self.committed: dict[TaskId, set[int]] = {}
        self.faults = Faults(seed, FAULTS)
        self.groups = ("a", "b")
        self.tables: dict[int, LakeTable] = {}
        self.rows: Counter[int] = Counter()
        for number in range(tables):
            record = LakeTableRecord(
                database="default",
                name=f"t{number}",
                properties={
                    GROUP_PROPERTY: self.groups[number % len(self.groups)],
                    PRIORITY_PROPERTY: str(number % 10),
                    FRAGMENTS_PROPERTY: str(FRAGMENTS),
                },
            )
            table = lake.catalog.create_lake_table(record, FLAT)
            self.tables[table.table_id] = table
        self.plain = list(self.tables.values())
        own = [
            Aging(lake, f"aging{number}", self.groups[number % 2], FRAGMENTS, by_hour=number % 2 == 0)
            for number in range(aging)
        ]
        self.aging = {one.table.table_id: one for one in own}
        self.tables |= {one.table.table_id: one.table for one in own}
        self.growing = [Growing(lake, f"growing{number}", "a") for number in range(growing)]
        self.optimization = Optimization(lake.store, lake.snapshots, lake.clock)
        self.optimization.set_group("a", pb.PRIORITY)
        self.optimization.set_group("b", pb.FIFO, quota_ms=1_800_000)
        self.planners = [self._planner() for _ in range(2)]
        self.workers = [SimulatedWorker(self, self.groups[number % 2]) for number in range(workers)]

    def _planner(self) -> PlannerThread:
        return planner_thread(FaultyStore(self.lake.store, self.faults), self.lake)

    def step(self) -> None:
        rng = self.rng
        match rng.choices(
            ("commit", "plan", "work", "time", "long", "die", "planner", "user", "overwrite", "age", "grow", "hour"),
            (30, 15, 60, 10, 0.6, 0.6, 0.6, 1, 0.6, 12, 4, 1.5),
        )[0]:
            case "commit":
                self.append(rng.choice(self.plain))
            case "age":
                rng.choice(list(self.aging.values())).act(rng, self.optimization)
            case "grow":
                rng.choice(self.growing).act(rng)
            case "hour":
                self.clock.advance(rng.randrange(TTL_MS))
            case "plan":
                self.plan(rng.choice(self.planners))
            case "work":
                rng.choice(self.workers).act(Tasks(FaultyStore(self.lake.store, self.faults), self.clock))
            case "time":
                self.clock.advance(rng.randrange(1, 3_000))
            case "long":
                self.clock.advance(rng.randrange(HEARTBEAT_MS // 2, 2 * HEARTBEAT_MS))
            case "die":
                worker = rng.choice(self.workers)
                worker.worker_id = ""
                if rng.random() < 0.5:  # else an old process goes on with its tasks beside the new one
                    worker.work = []
            case "planner":
                self.planners[rng.randrange(2)] = self._planner()
            case "user":
                self._user(rng.choice(self.plain))
            case "overwrite":
                self._overwrite(rng.choice(self.plain))

    def plan(self, planner: PlannerThread) -> None:
        try:
            self.counts["planned"] += planner.once()
        except LakemarkError as error:
            self.counts[f"round {error.code}"] += 1
        for one in (*self.aging.values(), *self.growing):
            one.observe()

    def append(self, table: LakeTable) -> None:
        instant = self.lake.open(table)
        made = DataFile(path=f"{instant}/g{instant}/a.parquet", size_bytes=self.rng.randrange(50, 150), row_count=3)
        self.lake.commit(table, instant, [made])
        self.rows[table.table_id] += 3

    def _overwrite(self, table: LakeTable) -> None:
        """A writer that takes away what an optimization may be merging."""
        instant = self.lake.open(table, t.OVERWRITE_TABLE)
        made = DataFile(path=f"{instant}/g{instant}/a.parquet", size_bytes=100, row_count=7)
        try:
            self.lake.commit(table, instant, [made])
        except CommitConflict:  # an append was first
            return
        self.rows[table.table_id] = 7

    def _user(self, table: LakeTable) -> None:
        match self.rng.choice(("hold", "release", "pause", "resume", "resume", "run", "why")):
            case "hold":
                self.optimization.hold(table, "", self.rng.randrange(1, 120_000), "a user says so")
            case "release":
                self.optimization.release(table, "")
            case "pause":
                self.optimization.pause(table, "")
            case "resume":
                self.optimization.resume(table)
            case "run":
                self.optimization.request(table, "", pb.MINOR)
            case _:
                told = self.optimization.explain(table)
                assert told.reason
                assert all(one.reason for one in told.partition_states)

    # -- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        tasks = self.lake.store.read(records.open_tasks)
        names = {task_id(task) for task in tasks}
        assert len(names) == len(tasks)
        places = Counter((task.table_id, task.partition) for task in tasks)
        assert max(places.values(), default=1) == 1, "two tasks on one partition"
        for table in self.tables.values():
            self._check_table(table, names)
        ready = Counter()  # type: ignore[var-annotated]
        for group in self.groups:
            waiting = self.lake.store.read(lambda tx, group=group: records.ready(tx, group, 10_000))  # type: ignore[misc]
            ready.update(name for _, name in waiting)
        assert set(ready) == {task_id(task) for task in tasks if task.state == pb.TASK_WAITING}
        assert all(len(versions) == 1 for versions in self.committed.values()), "a task was committed twice"
        self._check_quota()

    def _check_table(self, table: LakeTable, names: set[TaskId]) -> None:
        open_instants, _ = self.lake.timeline.instants(
            table.table_id, states=frozenset({t.REQUESTED, t.INFLIGHT}), limit=1_000
        )
        own = {
            TaskId(table.table_id, one.instant)
            for one in open_instants
            if one.owner == OWNER and one.operation != t.OVERWRITE_PARTITIONS  # by which old partitions go
        }
        assert own <= names, "an instant of the optimizer without a task"
        aging = self.aging.get(table.table_id)
        rows = self.rows[table.table_id] if aging is None else aging.rows
        found = self.lake.snapshots.snapshot("", "default", table.record.name, SnapshotReference()).snapshot
        assert found.rows == rows, "rows were lost, or are there twice"

    def _check_quota(self) -> None:
        settings = self.lake.store.read(lambda tx: records.group(tx, "b"))
        used = self.lake.store.read(lambda tx: records.group_time(tx, "b", self.clock.ms))
        slots = SLOTS * 2 * len(self.workers)  # lost workers are counted for a while beside new ones
        most = settings.quota_ms + slots * (1 + AHEAD) * (2 * HEARTBEAT_MS + RUN_MS_MAX)
        assert not settings.quota_ms or used <= most

    def finish(self) -> None:
        """Nothing fails any more, and nobody writes: in the end nothing is left to do."""
        with self.faults.quiet():
            self.optimization.set_group("b", quota_ms=0)
            for table in self.plain:
                self.optimization.resume(table)
            for aging in self.aging.values():
                aging.let_go(self.optimization)
            for worker in self.workers:
                worker.worker_id, worker.work = "", []
            self.clock.advance(3_700_000)  # what was taken is lost; quotas and pauses are over
            planner = self._planner()
            calls = Tasks(self.lake.store, self.clock)
            for _ in range(400 + 40 * len(self.tables)):
                self.plan(planner)
                for worker in self.workers:
                    worker.act(calls)
                self.clock.advance(1_000)
                if not self._left():
                    break
            self.check()
            assert self._left() == [], "starved"
            self._let_everything_age(planner)
            problems = list(verify(self.lake.store))
            assert not problems, problems
            ended = {task_id(run) for run in self._runs() if run.state == pb.TASK_DONE}
            assert {name for name in self.committed if name.table_id in self.tables} <= ended

    def _let_everything_age(self, planner: PlannerThread) -> None:
        for _ in range(LOOKS_A_TABLE * (1 + len(self.aging) + len(self.growing))):
            self.clock.advance(TTL_MS // 4)
            self.plan(planner)
        assert not any(one.files for one in self.aging.values()), "old partitions stay for ever"
        assert not any(one.too_large() for one in self.growing), "buckets stay too large"
        self.counts["departed"] = sum(one.departed for one in self.aging.values())
        self.counts["splits"] = sum(one.splits for one in self.growing)

    def _left(self) -> list[str]:
        left = []
        for table in self.tables.values():
            told = self.optimization.explain(table)
            if told.state not in (pb.IDLE, pb.RESTING, pb.BACKING_OFF) or told.tasks:
                left.append(f"{table.name}: {told.reason}")
        return left

    def _runs(self) -> list[pb.OptimizationTask]:
        runs: list[pb.OptimizationTask] = []
        before = None
        while True:
            page = self.optimization.runs(None, before, 500)
            runs += page.runs
            before = page.following
            if before is None:
                return runs
