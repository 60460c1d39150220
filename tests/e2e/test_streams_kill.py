"""Streaming drivers that are killed at random points: each batch is in the tables exactly once.

Two jobs write the same two tables at the same time: one gets all rows, the other the newest value of each key. Both
compact the latter now and then, and may be killed while they do.
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import pytest
from benchmarks.peers.java import java_home

from lakemark import Client
from lakemark_server.process import Service
from tests.e2e.spark_runner import INTERPRETED, interpreter, java_options
from tests.lengths import long

pytestmark = pytest.mark.spark

DRIVER: Final = Path(__file__).with_name("stream_driver.py")
ROWS_A_BATCH: Final = 5
KEYS: Final = 7
RUN_TIMEOUT_S: Final = 240.0
BATCH_S_MAX: Final = 10.0
MOMENTS: Final = ("begun", "appended", "upserted")
SETTINGS: Final = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": java_options(interpreter("4.3")),
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    **INTERPRETED,
}


@dataclass(frozen=True)
class Job:
    """One streaming job: its name, its directory, and how often its driver is killed."""

    name: str
    directory: Path
    kills: int
    batches: int
    seed: int

    def rows(self, batch: int) -> list[dict[str, Any]]:
        keys = random.Random(f"{self.name} {batch}").sample(range(KEYS), ROWS_A_BATCH)
        return [
            {"id": key, "job": self.name, "value": batch * 1_000 + at * 10 + self.seed} for at, key in enumerate(keys)
        ]

    def write_source(self) -> None:
        source = self.directory / "source"
        source.mkdir(parents=True)
        for batch in range(self.batches):
            file = source / f"{batch:04d}.json"
            file.write_text("".join(json.dumps(row) + "\n" for row in self.rows(batch)))
            os.utime(file, (batch + 1, batch + 1))  # the order in which Spark takes them

    def run(self, server: str, log: str, newest: str) -> int:
        """Starts drivers, and kills them, until one comes to the end. Returns how many were killed."""
        chance = random.Random(self.seed)
        killed = 0
        while True:
            driver = _Driver(self, server, log, newest)
            try:
                if killed >= self.kills:
                    assert driver.end(RUN_TIMEOUT_S + BATCH_S_MAX * self.batches) == 0, driver.said()
                    return killed
                # A batch takes about a second: any moment of it may be the last one.
                if driver.killed_at(chance.choice(MOMENTS), chance.randrange(2), chance.uniform(0, 0.7)):
                    killed += 1
                elif killed < self.kills:
                    return killed  # it was faster
            finally:
                driver.close()


class _Driver:
    def __init__(self, job: Job, server: str, log: str, newest: str) -> None:
        arguments = {
            "settings": {**SETTINGS, "spark.local.dir": str(job.directory / "tmp")},
            "server": server,
            "source": str(job.directory / "source"),
            "checkpoint": str(job.directory / "checkpoint"),
            "log": log,
            "newest": newest,
        }
        python = interpreter("4.3")
        self._log = (job.directory / "driver.log").open("ab")
        self._path = job.directory / "driver.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        home = java_home()
        self._process = subprocess.Popen(
            [str(python), str(DRIVER), json.dumps(arguments)],
            cwd=job.directory,
            env={
                **kept,
                **({} if home is None else {"JAVA_HOME": str(home)}),
                "PYSPARK_PYTHON": str(python),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "TZ": "UTC",
            },
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,  # so that the JVM is killed with it
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def killed_at(self, moment: str, after: int, delay_s: float) -> bool:
        """Kills the driver so long after the moment has come for the (``after`` + 1)th time; False: it ended before."""
        while (line := self._lines.get(timeout=RUN_TIMEOUT_S)) is not None:
            if not line.startswith(moment):
                continue
            if after:
                after -= 1
                continue
            try:
                return self._process.wait(delay_s) is None
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                return True
        assert self._process.wait(RUN_TIMEOUT_S) == 0, self.said()
        return False

    def end(self, timeout_s: float) -> int:
        return self._process.wait(timeout_s)

    def said(self) -> str:
        return self._path.read_text(errors="replace")[-4_000:]

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)


def _play(client: Client, service: Service, directory: Path, name: str, kills: int, batches: int) -> None:
    client.databases.create("streams", if_not_exists=True)
    log, newest = f"streams.log_{name}", f"streams.newest_{name}"
    client.tables.create(log, "id bigint, value bigint, job string", partitioned_by=["job"])
    properties = {
        "lakemark.primary-key": "id",
        "lakemark.bucket.count": "2",
        "lakemark.write.mode": "merge-on-read",
        "lakemark.merge.ordering-column": "value",
    }
    # Two upserts of one key exclude each other under the default policy: the one that loses is tried again.
    client.tables.create(newest, "id bigint, value bigint, job string", properties=properties)
    jobs = [Job(one, directory / one, kills, batches, at) for at, one in enumerate(("one", "two"))]
    for job in jobs:
        job.write_source()
    with ThreadPoolExecutor(len(jobs)) as pool:
        killed = list(pool.map(lambda job: job.run(service.grpc_address, log, newest), jobs))

    assert sum(killed) >= kills, f"drivers were too fast: {killed} killed"
    given = [row for job in jobs for batch in range(batches) for row in job.rows(batch)]
    rows = client.read(log).to_pylist()
    assert len(rows) == len(given)
    assert sum(row["value"] for row in rows) == sum(row["value"] for row in given)
    in_order = lambda row: (row["value"], row["id"])  # noqa: E731
    assert sorted(rows, key=in_order) == sorted(given, key=in_order)
    last = {row["id"]: row for row in sorted(given, key=lambda row: row["value"])}
    assert {row["id"]: row for row in client.read(newest).to_pylist()} == last
    operations = [one.operation for one in client.timeline.versions(newest, limit=10_000)]
    assert "compact" in operations
    versions = client.timeline.versions(log, limit=10_000)
    epochs = [(one.metadata["lakemark.stream.query"], int(one.metadata["lakemark.stream.epoch"])) for one in versions]
    # After a kill between the notes of its source and its own, Spark makes one batch of two files.
    assert len(set(epochs)) == len(epochs) <= len(jobs) * batches


def test_two_jobs_whose_drivers_are_killed_write_each_batch_once(
    client: Client, service: Service, tmp_path: Path
) -> None:
    _play(client, service, tmp_path, "short", kills=1, batches=4)


@pytest.mark.slow
@pytest.mark.timeout(long(1_800))
def test_many_kills(client: Client, service: Service, tmp_path: Path) -> None:
    _play(client, service, tmp_path, "long", kills=long(10), batches=long(20))
