"""A standalone cluster of Spark on loopback: two hosts, so that Spark runs copies of slow tasks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from benchmarks.peers.java import java_home

from tests.e2e.spark_runner import java_options

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
"""One machine, but two hosts to Spark, which runs no copy of a task on the host where the task runs."""
START_S_MAX: Final = 180.0
STOP_S_MAX: Final = 20.0
_STARTED: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile("Registering worker")


class SparkCluster:
    """A master, and on each host a worker with one core. ``python``: the interpreter of an environment with PySpark.

    ``directory``, which is made, gets the logs, and the files of workers. ``settings`` are those of an application that
    has an executor on each host. ``close`` ends it.
    """

    def __init__(self, python: Path, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._python, self._directory = python, directory
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start("master", HOSTS[0], "master.Master")
            (url,) = self._await_lines(_STARTED, 1)
            for host in HOSTS:
                limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / host))
                self._start(f"worker-{host}", host, "worker.Worker", *limits, url)
            self._await_lines(_REGISTERED, len(HOSTS))
        except BaseException:
            self.close()
            raise
        self.settings = {
            "spark.master": url,
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": java_options(python),
            "spark.cores.max": str(len(HOSTS)),
            # No task begins before both executors are there.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_S_MAX:.0f}s",
        }

    def _start(self, name: str, host: str, program: str, *arguments: str) -> None:
        (spark,) = (self._python.parent.parent / "lib").glob("python*/site-packages/pyspark")
        command = [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}"]
        command += ["--host", host, "--port", "0", "--webui-port", "0", *arguments]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        chosen = {"SPARK_HOME": str(spark), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m", "TZ": "UTC"}
        home = java_home()
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self._directory,
                env=kept | chosen | ({"JAVA_HOME": str(home)} if home is not None else {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # with the executors that a worker starts
            )
        self._processes.append(process)

    def _await_lines(self, pattern: re.Pattern[str], times: int) -> list[str]:
        """What the pattern matches in the master's log."""
        until = time.monotonic() + START_S_MAX
        while len(matches := pattern.findall(self._log("master").read_text())) < times:
            logs = "\n".join(log.read_text()[-2_000:] for log in sorted(self._directory.glob("*.log")))
            assert all(process.poll() is None for process in self._processes), logs
            assert time.monotonic() < until, logs
            time.sleep(0.2)
        return matches

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def close(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
