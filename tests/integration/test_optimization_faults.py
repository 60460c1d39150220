"""Workers and plans that do not fit what is there: each is told in words, and nothing is lost."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.cli.app import run
from lakemark.client import optimization
from lakemark.client.optimization import OptimizationTask
from lakemark_core.errors import InvalidArgument
from lakemark_core.storage import open_location
from lakemark_optimizer.arrow import ArrowExecutor
from lakemark_optimizer.worker import Worker
from tests.integration.grpc_server import connected, running_service
from tests.integration.test_optimization import FRAGMENTS, until, working

ATTEMPTS = "lakemark.optimize.attempts-max"
SMALL_DISK = """
import resource, signal, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from lakemark.cli.app import run
sys.exit(run(["-s", sys.argv[1], "optimizer", "run", "--executor", "arrow", "--tasks", "1"]))
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    given = {"optimizer": True, "optimizer_interval_s": 0.05}
    with running_service(tmp_path, **given) as service, connected(service) as opened:
        yield opened


def make(client: Client, rows: int = 2) -> pa.Table:
    """A table with three fragments, which waits for a worker."""
    properties = {FRAGMENTS: "3", ATTEMPTS: "1", "lakemark.optimize.interval-min-ms": "3600000"}
    client.tables.create("default.t", "id bigint, s string", properties=properties)
    for number in range(3):
        with client.begin("default.t") as writer:
            ids = range(number * rows, (number + 1) * rows)
            writer.write(pa.table({"id": pa.array(ids, pa.int64()), "s": [f"{one * 7919:032x}" for one in ids]}))
            writer.commit()
    return client.read("default.t").sort_by("id")


def paths(client: Client) -> list[Path]:
    place = Path(open_location(client.tables.get("default.t").location)[1])
    return [place / file.path for file in client.plan("default.t")]


class Late(ArrowExecutor):
    """An executor that begins when a writer has done its work."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.taken, self.go = threading.Event(), threading.Event()

    def run(self, task: OptimizationTask, cancelled: threading.Event):  # type: ignore[no-untyped-def]
        self.taken.set()
        assert self.go.wait(30)
        return super().run(task, cancelled)


def test_a_worker_of_another_release_is_told_so_and_ends(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(optimization, "PROTOCOL", 2)
    worker = Worker(client, "default", {"arrow": ArrowExecutor(client)}, heartbeat_s=0.02)
    with pytest.raises(InvalidArgument, match="install the same release of lakemark on both"):
        worker.run()
    until(lambda: not any(one.name == "lakemark-worker-heartbeat" for one in threading.enumerate()))
    assert run(["-s", client.address, "optimizer", "run", "--executor", "arrow"]) != 0
    assert "speaks protocol 2 of optimizers, and this service speaks 1" in capsys.readouterr().err


def test_a_worker_without_spark_says_what_to_install(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else find_spec(name))
    assert run(["-s", client.address, "optimizer", "run", "--executor", "spark"]) != 0
    assert "pip install 'lakemark[spark]', or run with --executor arrow" in capsys.readouterr().err


def test_a_plan_whose_files_were_replaced_has_lost_and_the_writer_has_not(client: Client) -> None:
    make(client)
    executor = Late(client)
    with working(client, {"arrow": executor}):
        assert executor.taken.wait(30)
        with client.begin("default.t", "overwrite_table") as writer:
            writer.write(pa.table({"id": [99], "s": ["new"]}))
            writer.commit()
        executor.go.set()
        (ended,) = until(lambda: list(client.optimizations.runs("default.t")))
    assert ended.state == "conflicted"
    assert "OVERWRITE_TABLE" in ended.message
    assert client.read("default.t").to_pylist() == [{"id": 99, "s": "new"}]
    (told,) = client.optimizations.explain("default.t").partition_states
    assert told.failures == 0


def test_a_plan_whose_file_is_gone_from_the_disk_names_it(client: Client) -> None:
    make(client)
    executor = Late(client)
    with working(client, {"arrow": executor}):
        assert executor.taken.wait(30)
        lost = paths(client)[0]
        lost.unlink()
        executor.go.set()
        (ended,) = until(lambda: list(client.optimizations.runs("default.t")))
    assert ended.state == "failed"
    assert lost.name in ended.message
    told = client.optimizations.explain("default.t")
    assert (told.state, lost.name in told.reason) == ("stopped", True)
    assert client.plan("default.t").summary.files_planned == 3


def test_a_full_disk_is_told_and_leaves_nothing_behind(client: Client) -> None:
    before = make(client, rows=400)  # each file is smaller than the worker may write, and all together are not
    files = {path: path.stat().st_size for path in paths(client)}
    assert all(size < 10_000 for size in files.values())
    assert sum(files.values()) > 12_000
    worker = subprocess.run([sys.executable, "-c", SMALL_DISK, client.address], check=False, timeout=60)
    assert worker.returncode == 0
    (ended,) = until(lambda: list(client.optimizations.runs("default.t")))
    assert ended.state == "failed"
    assert "cannot be written" in ended.message
    assert "File too large" in ended.message
    assert client.read("default.t").sort_by("id") == before
    until(lambda: not (next(iter(files)).parents[2] / str(ended.instant)).exists())
    assert client.timeline.instant("default.t", ended.instant).state == "rolled_back"
