"""Tables that look after themselves, over gRPC: a service that plans, a worker without Spark, and the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark import Client, DataFile
from lakemark.cli.app import run
from lakemark.client.optimization import OptimizationTask
from lakemark.files.model import FileKind
from lakemark_core.bucket_tree import at_depth
from lakemark_core.buckets import hash_of_key
from lakemark_core.errors import InvalidArgument, LakemarkError
from lakemark_core.storage import open_location
from lakemark_core.types import BIGINT, Field
from lakemark_optimizer.arrow import ArrowExecutor
from lakemark_optimizer.executor import Result
from lakemark_optimizer.worker import Worker
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1.types_pb2 import TableName
from lakemark_server.context.clock import now_ms
from lakemark_server.optimization.records import HEARTBEAT_MS
from lakemark_server.optimization.tasks import PROTOCOL, Tasks
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service

FRAGMENTS = "lakemark.optimize.minor.fragments"
REST = "lakemark.optimize.interval-min-ms"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "d": ["a", "a", "b"]})
WAIT_S = 30.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path, optimizer=True, optimizer_interval_s=0.05) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with connected(service) as opened:
        yield opened


@contextmanager
def working(client: Client, executors: dict[str, Any] | None = None, group: str = "default") -> Iterator[Worker]:
    worker = Worker(client, group, executors or {"arrow": ArrowExecutor(client)}, 2, ask_s=0.02, heartbeat_s=0.2)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def until(what: Callable[[], Any]) -> Any:
    """The first answer that is true; asked all the time."""
    ended = threading.Event()
    timer = threading.Timer(WAIT_S, ended.set)
    timer.start()
    try:
        while not ended.wait(0.02):
            answer = what()
            if answer:
                return answer
    finally:
        timer.cancel()
    raise AssertionError("it did not come true")


def commits(client: Client, table: str, count: int) -> None:
    for _ in range(count):
        with client.begin(table) as writer:
            writer.write(ROWS)
            writer.commit()


def test_fragments_of_each_partition_are_merged_and_no_row_changes(client: Client) -> None:
    client.tables.create("default.t", "id bigint, d string", partitioned_by=["d"], properties={FRAGMENTS: "4"})
    commits(client, "default.t", 5)
    before = client.read("default.t").sort_by([("id", "ascending")])
    with working(client):
        runs = until(lambda: len(found := list(client.optimizations.runs("default.t"))) == 2 and found)
    assert client.plan("default.t").summary.files_planned == 2
    assert client.read("default.t").sort_by([("id", "ascending")]) == before
    assert {run.partition for run in runs} == {"d=a", "d=b"}
    for done in runs:
        assert (done.state, done.kind, done.files_before, done.files_after) == ("done", "minor", 5, 1)
        assert (done.executor, done.rows_before) == ("arrow", done.rows_after)
        assert done.reason == "5 fragments of 4 needed"
    instants = client.timeline.instants("default.t", states=["completed"])
    assert {one.owner for one in instants if one.operation == "cluster"} == {"optimizer"}


def slice_of(
    client: Client, kind: FileKind, rows: list[tuple[int, str]], group: str = "bucket-0", bucket: int = 0
) -> None:
    """One commit with a base file or a delta of a file group of default.k."""
    with client.begin("default.k", "upsert") as writer:
        table = pa.table({"id": pa.array([one for one, _ in rows], pa.int64()), "d": [value for _, value in rows]})
        if kind == "delta":
            for name, value in (("lakemark_operation", "upsert"), ("lakemark_instant", writer.instant)):
                table = table.append_column(name, pa.array([value] * len(rows)))
            table = table.append_column("lakemark_columns", pa.nulls(len(rows), pa.string()))
        path = f"{writer.instant}/{group}/f.parquet"
        place = Path(open_location(writer.location)[1]).parent / path
        place.parent.mkdir(parents=True)
        pq.write_table(table, place)
        size = place.stat().st_size
        writer.commit([DataFile(path, size, len(rows), file_group=group, kind=kind, bucket=bucket)])


def test_deltas_are_folded_into_their_file_groups(client: Client) -> None:
    properties = {
        "lakemark.primary-key": "id",
        "lakemark.bucket.count": "1",
        "lakemark.write.mode": "merge-on-read",
        "lakemark.optimize.minor.delta-commits": "3",
        "lakemark.optimize.major.delete-percent": "100",
    }
    client.tables.create("default.k", "id bigint, d string", properties=properties)
    told = client.optimizations.explain("default.k")
    assert (told.state, told.reason) == ("idle", "the table has no files")
    slice_of(client, "base", [(number, "old") for number in range(10)])
    for number in range(3):
        slice_of(client, "delta", [(number, "new"), (10 + number, "new")])
    before = client.read("default.k").sort_by([("id", "ascending")])
    with working(client):
        (done,) = until(lambda: list(client.optimizations.runs("default.k")))
    assert (done.state, done.executor, done.files_before, done.files_after) == ("done", "arrow", 4, 1)
    assert "3 delta commits of 3 needed" in done.reason
    (file,) = client.plan("default.k")
    assert (file.kind, file.file_group, file.bucket) == ("base", "bucket-0", 0)
    assert client.read("default.k").sort_by([("id", "ascending")]) == before
    assert before.num_rows == 13


def test_split_buckets_wait_for_spark(client: Client) -> None:
    """A delta of a new bucket lies on the base file of the old one: folded alone, rows would be there twice."""
    properties = {
        "lakemark.primary-key": "id",
        "lakemark.bucket.index": "extendible",
        "lakemark.bucket.count": "1",
        "lakemark.write.mode": "merge-on-read",
        "lakemark.optimize.minor.delta-commits": "3",
    }
    client.tables.create("default.k", "id bigint, d string", properties=properties)
    slice_of(client, "base", [(number, "old") for number in range(20)], "bucket-0-of-1", 1)
    client.buckets.alter("default.k", split=["bucket-0-of-1"])
    field = Field(1, "id", BIGINT)
    low = [number for number in range(20) if at_depth(hash_of_key([number], [field]), 1) == 2]
    for _ in range(3):
        slice_of(client, "delta", [(number, "new") for number in low], "bucket-0-of-2", 2)
    before = client.read("default.k").sort_by([("id", "ascending")])
    assert before.num_rows == 20
    with working(client):
        told = until(lambda: (one := client.optimizations.explain("default.k")).state == "pending" and one)
    assert "needs Spark" in told.reason
    assert client.read("default.k").sort_by([("id", "ascending")]) == before


def test_why_compares_figures_and_says_what_would_change_it(client: Client) -> None:
    client.tables.create("default.t", "id bigint, d string", properties={FRAGMENTS: "4"})
    commits(client, "default.t", 2)
    told = client.optimizations.explain("default.t")
    assert told.state == "idle"
    assert told.reason.startswith("2 fragments of 4 needed")
    assert FRAGMENTS in told.change
    assert told.policy[FRAGMENTS] == "4"
    until(lambda: client.optimizations.explain("default.t").leader)
    commits(client, "default.t", 2)
    waiting = client.optimizations.explain("default.t")
    assert waiting.state == "pending"
    assert waiting.reason == "4 fragments of 4 needed; group 'default' has no worker"
    assert waiting.change == "lakemark optimizer run --group default"


def test_holds_pauses_and_runs_that_are_asked_for(client: Client) -> None:
    client.tables.create("default.t", "id bigint, d string", properties={FRAGMENTS: "4"})
    commits(client, "default.t", 4)
    assert run(["-s", client.address, "optimize", "hold", "default.t", "--for", "1h", "--reason", "audit"]) == 0
    with working(client):
        held = until(lambda: (one := client.optimizations.explain("default.t")).state == "held" and one)
        assert "audit" in held.reason
        assert list(client.optimizations.runs("default.t")) == []
        assert client.optimizations.release("default.t")
        until(lambda: list(client.optimizations.runs("default.t")))
        client.optimizations.pause("default.t", "a migration")
        commits(client, "default.t", 6)
        assert client.optimizations.explain("default.t").state == "paused"
        assert client.optimizations.resume("default.t").state in {"resting", "pending", "planned", "running"}
        client.optimizations.run("default.t")  # whatever the interval says
        until(lambda: len(list(client.optimizations.runs("default.t"))) == 2)


class Failing:
    """An executor that never succeeds."""

    name = "arrow"

    def run(self, task: OptimizationTask, cancelled: threading.Event) -> Result:
        raise OSError("no space left on device")

    def close(self) -> None:
        pass


def test_what_fails_is_tried_again_and_then_stopped_with_an_alarm(client: Client) -> None:
    client.tables.create(
        "default.t", "id bigint, d string", properties={FRAGMENTS: "2", "lakemark.optimize.attempts-max": "1"}
    )
    commits(client, "default.t", 2)
    with working(client, {"arrow": Failing()}):
        stopped = until(lambda: (one := client.optimizations.explain("default.t")).state == "stopped" and one)
    assert "no space left on device" in stopped.reason
    assert "resume" in stopped.change
    (event,) = client.events(0, follow=False, kinds=["optimization_stopped"])
    assert event.table == "t"
    with working(client):
        client.optimizations.resume("default.t")
        until(lambda: any(one.state == "done" for one in client.optimizations.runs("default.t")))
    assert [one.state for one in client.optimizations.runs()] == ["done", "failed"]


def test_a_worker_that_lost_its_task_cannot_complete_it(client: Client) -> None:
    client.tables.create("default.t", "id bigint, d string", properties={FRAGMENTS: "2"})
    commits(client, "default.t", 2)
    tasks = client.optimizer_tasks
    slow = tasks.register("default", "slow", 1, ["arrow"])
    task: OptimizationTask = until(lambda: tasks.take("default", slow.worker_id))
    assert tasks.leave("default", slow.worker_id) == 1
    with pytest.raises(LakemarkError, match="does not count") as refused:
        tasks.complete(slow.worker_id, task, "done")
    assert refused.value.code == "task_lost"
    with pytest.raises(LakemarkError, match="cannot be taken over"):
        ArrowExecutor(client).run(task, threading.Event())
    assert client.plan("default.t").summary.files_planned == 2
    with working(client):
        until(lambda: client.plan("default.t").summary.files_planned == 1)


def test_workers_and_policies_that_do_not_fit_are_refused_in_words(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidArgument, match="none of them"):
        client.optimizer_tasks.register("default", "h", 1, ["abacus"])
    with pytest.raises(InvalidArgument, match="more often than"):
        client.tables.create("default.t", "id bigint", properties={"lakemark.optimize.minor.interval-ms": "1"})
    assert run(["-s", client.address, "optimizer", "run", "--executor", "abacus"]) != 0
    assert "not known; use arrow, spark, spark-submit" in capsys.readouterr().err


def test_the_command_line_shows_what_is_answered(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.tables.create("default.t", "id bigint, d string", properties={FRAGMENTS: "2"})
    commits(client, "default.t", 3)
    with working(client):
        until(lambda: list(client.optimizations.runs("default.t")))

    def told(*words: str) -> Any:
        capsys.readouterr()
        assert run(["-s", client.address, "--json", "optimize", *words]) == 0
        return json.loads(capsys.readouterr().out)

    (ran,) = told("history", "default.t")
    assert (ran["state"], ran["files_before"], ran["files_after"]) == ("done", 3, 1)
    assert told("why", "default.t")["table"] == "default.t"
    shown = until(lambda: (answer := told("show"))["tables"] and answer)
    assert shown["tables"][0]["table"] == "default.t"
    assert told("group", "etl", "--order", "fifo", "--quota", "1h")["quota_ms"] == 3_600_000
    assert {one["name"] for one in told("groups")["groups"]} >= {"etl"}
    for words in (["show"], ["why", "default.t"], ["history"], ["groups"], ["show", "--follow", "--rounds", "2"]):
        assert run(["-s", client.address, "optimize", *words]) == 0
    assert "default.t" in capsys.readouterr().out


def test_the_command_line_shows_which_partitions_go(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.tables.create("default.t", "id bigint, d string", partitioned_by=["d"])
    with client.begin("default.t") as writer:
        writer.write(pa.table({"id": [1, 2], "d": ["2020-01-01", "JFK"]}))
        writer.commit()
    given = ["--with", "lakemark.partition-ttl.ms=86400000", "--with", "lakemark.partition-ttl.column=d"]

    def told(*words: str) -> str:
        capsys.readouterr()
        assert run(["-s", client.address, *words]) == 0
        return capsys.readouterr().out

    assert "partitions of default.t stay" in told("optimize", "ttl", "default.t")
    shown = told("optimize", "ttl", "default.t", *given)
    assert "0 of 2 partitions of default.t go with the next look; the next one at" in shown
    assert "never" in shown
    assert "old partitions" in told("optimize", "why", "default.t", *given)
    assert "fragments of 2 needed" in told("optimize", "why", "default.t", "--with", f"{FRAGMENTS}=2")
    answer = json.loads(told("--json", "optimize", "ttl", "default.t", *given))
    assert [one["partition"] for one in answer["partition_states"]] == ["d=2020-01-01", "d=JFK"]
    assert client.tables.get("default.t").properties.keys().isdisjoint({"lakemark.partition-ttl.ms"})
    with pytest.raises(InvalidArgument, match="none of the partition columns"):
        client.tables.set_properties(
            "default.t", {"lakemark.partition-ttl.ms": "86400000", "lakemark.partition-ttl.column": "id"}
        )
    with pytest.raises(InvalidArgument, match="kind 4 of a run is not known"):
        client.optimizations._call(
            client.optimizations._stub.RequestOptimization,
            pb.RequestOptimizationRequest(
                table=TableName(catalog="hive", database="default", table="t"), kind=pb.EXPIRE
            ),
        )


def test_workers_and_tasks_are_given_up_also_where_no_process_plans(tmp_path: Path) -> None:
    def long_ago() -> int:
        return now_ms() - 10 * HEARTBEAT_MS

    with running_service(tmp_path) as service, connected(service) as client:
        Tasks(service.store, long_ago).register(
            pb.OptimizerWorker(group="default", host="silent", slots=1, executors=["arrow"]), PROTOCOL
        )
        until(lambda: not client.optimizations.groups()[0])
