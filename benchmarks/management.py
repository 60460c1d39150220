"""What it is worth, and costs, that tables look after themselves: ``scripts/bench management [--json] [--minutes N]``.

One table gets a commit of real parquet every second, and a fixed query reads all of it, again and again, in plain Spark
(``--reader spark``) or by the Python client: once without optimization and once with a planning service and a worker
(pyarrow, in a process of its own), half of the time each.
``managed_growth`` and ``unmanaged_growth``: the median time of the query in the last tenth by that in the first.
``writer_slowdown``: commits a second with management by those without. ``files_ratio``: files of the table at the end,
managed by unmanaged. ``write_amplification``: bytes that optimization wrote by bytes that the writer wrote.

Then one planner has ``--tables`` tables, of which one in a hundred changes, at the pace of 1,000 a minute:
``decision_p99_s`` from the commit after which a table is due to its plan, ``plans_per_s`` by the time that the planner
worked, ``leader_rss_mb``: memory of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from tests.e2e.spark_runner import SparkProcess, as_users_run_it, interpreter

from benchmarks import machine
from benchmarks.service import Service, running_service
from lakemark import Client, connect
from lakemark_core.types import BIGINT, Field, Schema, assign_ids
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1 import timeline_pb2, types_pb2
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.service import Catalog
from lakemark_server.context.clock import now_ms
from lakemark_server.events.service import Events
from lakemark_server.events.upkeep import EventRetention
from lakemark_server.kv import Store, open_store
from lakemark_server.optimization import records
from lakemark_server.optimization.assessments import Assessor
from lakemark_server.optimization.generator import PlanGenerator
from lakemark_server.optimization.tasks import PROTOCOL, Tasks
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store import store_format
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.timeline.service import Timeline

SPARK: Final = "4.3"
WARM_UP: Final = 20  # queries: Spark becomes faster meanwhile
ROWS: Final = 200
TABLE: Final = "default.stream"
FRAGMENTS: Final = 8
"""Of a table of the planner's load: its last commit makes it due."""
CHANGED_PART: Final = 100
CHANGES_PER_S: Final = 1_000 / 60
"""Of all tables together: what 100,000 tables have of which one in a hundred changes each minute."""
ROUND_S: Final = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench management", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--minutes", type=float, default=30.0, help="of the stream, both turns together")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two commits")
    parser.add_argument("--reader", choices=("spark", "python"), default="spark", help="who reads the table")
    parser.add_argument("--tables", type=int, default=100_000, help="of the planner")
    arguments = parser.parse_args()
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        work_dir = Path(directory)
        seconds = arguments.minutes * 30
        by_spark = arguments.reader == "spark"
        without = _stream(work_dir / "without", seconds, arguments.interval, managed=False, by_spark=by_spark)
        managed = _stream(work_dir / "managed", seconds, arguments.interval, managed=True, by_spark=by_spark)
        result: dict[str, Any] = {
            "minutes": arguments.minutes,
            "reader": arguments.reader,
            "queries": len(managed.queries_s),
            "managed_growth": _growth(managed.queries_s),
            "unmanaged_growth": _growth(without.queries_s),
            "query_last_s": _last_tenth(managed.queries_s),
            "query_last_unmanaged_s": _last_tenth(without.queries_s),
            "writer_slowdown": round(managed.commits_per_s / without.commits_per_s, 3),
            "files_ratio": round(managed.files / max(1, without.files), 4),
            "files_managed": managed.files,
            "files_unmanaged": without.files,
            "runs": managed.runs,
            "write_amplification": round(managed.rewritten_bytes / max(1, managed.written_bytes), 2),
            **_planner(work_dir / "planner", arguments.tables),
        }
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    for name, value in result.items():
        print(f"{name:>22}  {value}")
    if arguments.json:
        versions = machine.versions("lakemark", "grpcio", "pyarrow")
        print(json.dumps({"benchmark": "management", "machine": described, "versions": versions, **result}))


@dataclass
class Turn:
    """One stream of commits, with the times of the query in their order."""

    queries_s: list[float] = field(default_factory=list)
    commits_per_s: float = 0.0
    files: int = 0
    runs: int = 0
    written_bytes: int = 0
    rewritten_bytes: int = 0


def _stream(work_dir: Path, seconds: float, interval_s: float, *, managed: bool, by_spark: bool) -> Turn:
    turn = Turn()
    settings = {"LAKEMARK_OPTIMIZER": str(managed)}
    with running_service(work_dir, hms=by_spark, settings=settings) as service, connect(service.grpc_address) as client:
        properties = {"lakemark.optimize.interval-min-ms": "2000"}
        client.tables.create(TABLE, "id bigint, v double, name string", properties=properties)
        _commit(client, 0)
        with (
            _worker(service.grpc_address, work_dir) if managed else _nothing(),
            _spark_query(service, work_dir) if by_spark else _client_query(service) as query,
        ):
            for _ in range(WARM_UP):
                query()
            ended = threading.Event()
            reader = threading.Thread(target=_read, args=(query, turn.queries_s, ended))
            reader.start()
            began, commits = time.monotonic(), 0
            while time.monotonic() - began < seconds:
                due = began + commits * interval_s
                time.sleep(max(0.0, due - time.monotonic()))
                turn.written_bytes += _commit(client, commits)
                commits += 1
            turn.commits_per_s = commits / (time.monotonic() - began)
            ended.set()
            reader.join()
        turn.files = client.plan(TABLE).summary.files_planned
        runs = [run for run in client.optimizations.runs(TABLE) if run.state == "done"]
        turn.runs, turn.rewritten_bytes = len(runs), sum(run.bytes_after for run in runs)
        rows = client.read(TABLE).num_rows
        assert rows == (commits + 1) * ROWS, "no row is lost, and none is there twice"
    return turn


def _commit(client: Client, number: int) -> int:
    first = number * ROWS
    rows = pa.table(
        {
            "id": pa.array(range(first, first + ROWS), pa.int64()),
            "v": pa.array([(one * 7919 % 1_000) / 8 for one in range(ROWS)], pa.float64()),
            "name": [f"name {one % 40}" for one in range(ROWS)],
        }
    )
    with client.begin(TABLE) as writer:
        written = writer.write(rows)
        writer.commit()
        return sum(file.size_bytes for file in written.files)


def _read(query: Callable[[], object], queries_s: list[float], ended: threading.Event) -> None:
    while not ended.is_set():
        began = time.monotonic()
        query()
        queries_s.append(time.monotonic() - began)
        ended.wait(0.1)


@contextmanager
def _client_query(service: Service) -> Iterator[Callable[[], object]]:
    with connect(service.grpc_address) as client:
        yield lambda: client.read(TABLE, columns=["id", "v"])


@contextmanager
def _spark_query(service: Service, work_dir: Path) -> Iterator[Callable[[], object]]:
    """Plain Spark, which has nothing of ours."""
    work = work_dir / "spark"
    address = f"thrift://127.0.0.1:{service.hms_port}"
    with SparkProcess(interpreter(SPARK), address, work, settings=as_users_run_it(work)) as spark:
        yield lambda: spark.sql(f"SELECT count(id), sum(v) FROM {TABLE}")


@contextmanager
def _worker(address: str, work_dir: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "lakemark", "-s", address, "optimizer", "run", "--executor", "arrow"]
    with (work_dir / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with connect(address) as client:
            while not any(group.workers for group in client.optimizations.groups()[0]):
                assert process.poll() is None, (work_dir / "worker.log").read_text()
                time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _tenths_s(queries_s: Sequence[float]) -> tuple[float, float] | None:
    """The medians of the first and of the last tenth; None: too few queries to say."""
    tenth = len(queries_s) // 10
    return (statistics.median(queries_s[:tenth]), statistics.median(queries_s[-tenth:])) if tenth else None


def _growth(queries_s: Sequence[float]) -> float | None:
    """The median of the last tenth by that of the first; None: too few queries to say."""
    tenths = _tenths_s(queries_s)
    return None if tenths is None else round(tenths[1] / tenths[0], 3)


def _last_tenth(queries_s: Sequence[float]) -> float | None:
    tenths = _tenths_s(queries_s)
    return None if tenths is None else round(tenths[1], 4)


def _planner(work_dir: Path, tables: int) -> dict[str, Any]:
    """One planner with many tables, on a store of its own in this process."""
    work_dir.mkdir()
    store = open_store(f"sqlite:///{work_dir}/lakemark.db")
    try:
        return _planned(store, work_dir, tables)
    finally:
        store.close()


def _planned(store: Store, work_dir: Path, tables: int) -> dict[str, Any]:
    store_format.ensure(store)
    catalog = Catalog(store, f"file:{work_dir}/warehouse", now_ms)
    catalog.ensure_default_database()
    schema = assign_ids(Schema.build([Field(0, "id", BIGINT)], [], 1))[0]
    properties = {"lakemark.optimize.minor.fragments": str(FRAGMENTS)}
    made_tables = [
        catalog.create_lake_table(LakeTableRecord(database="default", name=f"t{at}", properties=properties), schema)
        for at in range(tables)
    ]
    snapshots = Snapshots(store, 64 << 20)
    timeline = Timeline(store, snapshots)
    events = Events(store, EventRetention(7 * 86_400_000, 1 << 30), now_ms)
    generator = PlanGenerator(store, now_ms, timeline, Assessor(store, snapshots, now_ms), events.log, events.consumers)
    tasks = Tasks(store, now_ms)
    changed = made_tables[: max(1, tables // CHANGED_PART)]
    worker = tasks.register(pb.OptimizerWorker(group="default", host="b", slots=1_000, executors=["arrow"]), PROTOCOL)
    while generator.round() or store.read(lambda tx: records.due(tx, now_ms(), 1)):
        tasks.heartbeat("default", worker.worker_id, [])  # tables that it has not seen are looked at once
    committed_ms: dict[int, int] = {}
    planned, working_s, delays_s = 0, 0.0, []
    first_s = began = time.monotonic()
    while planned < len(changed) and began < first_s + 240:
        due = min(len(changed), int((began - first_s) * CHANGES_PER_S) + 1)
        for table in changed[len(committed_ms) : due]:
            committed_ms[table.table_id] = _change(timeline, table)
        tasks.heartbeat("default", worker.worker_id, [])
        began = time.monotonic()
        made = generator.round()
        working_s += time.monotonic() - began
        for task in store.read(records.open_tasks):  # what workers do at once
            if task.state == pb.TASK_WAITING:
                delays_s.append((task.planned_ms - committed_ms[task.table_id]) / 1_000)
        planned += made
        while tasks.take("default", worker.worker_id) is not None:
            pass
        _end_all(store, tasks, worker.worker_id)
        time.sleep(max(0.0, began + ROUND_S - time.monotonic()))  # as the service plans
        began = time.monotonic()
    delays_s.sort()
    return {
        "tables": tables,
        "plans": planned,
        "plans_per_s": round(planned / working_s, 1) if working_s else None,
        "decision_p99_s": round(delays_s[int(len(delays_s) * 0.99) - 1], 3) if delays_s else None,
        "leader_rss_mb": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20,
    }


def _change(timeline: Timeline, table: LakeTable) -> int:
    """A commit of as many fragments as make the table due. When it was."""
    job = OpenJob(timeline_pb2.APPEND, profile=timeline_pb2.WorkProfile())
    instant = timeline.open(table.table_id, job).record.instant
    given = [
        types_pb2.DataFile(path=f"{instant}/g{at}/a.parquet", size_bytes=1_000, row_count=1) for at in range(FRAGMENTS)
    ]
    draft = CommitDraft(instant, types_pb2.DataFiles(list=types_pb2.DataFileList(files=given)))
    return timeline.commit(table, draft).committed_ms


def _end_all(store: Store, tasks: Tasks, worker_id: str) -> None:
    for task in store.read(records.open_tasks):
        tasks.complete(worker_id, records.task_id(task), pb.TASK_NOTHING)


if __name__ == "__main__":
    main()
