"""Tasks by PySpark: one Spark in this process for many tasks, started when the first one needs it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from lakemark import Client
from lakemark.client.optimization import OptimizationTask
from lakemark.files.runs import RunLimits
from lakemark_optimizer.executor import METADATA, Result, where_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE_S: Final = 300.0
"""After so long without a task Spark is stopped; the next one that needs it starts it again."""


def run_with_spark(spark: SparkSession, client: Client, task: OptimizationTask) -> Result:
    """Does a task with the jobs of ``lakemark_spark``. Raises what these raise."""
    from lakemark_spark import cluster, compact

    job = cluster if task.kind == "full" else partial(compact, limits=RunLimits(task.small_bytes, task.bytes_max))
    commit = job(
        spark,
        task.table,
        where_of(client, task),
        server=client,
        metadata={METADATA: task.kind},
        request_id=task.request_id,
        instant=task.instant,
    )
    if commit is None:
        return Result("nothing", "there is nothing to merge any more")
    return Result("done", version=commit.version)


class SparkExecutor:
    """An ``Executor``. Thread-safe: tasks that run at once share the session. ``configuration``: of Spark."""

    name = "spark"

    def __init__(
        self,
        client: Client,
        master: str = "local[*]",
        configuration: Mapping[str, str] | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self._client, self._master, self._configuration = client, master, dict(configuration or {})
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._spark: SparkSession | None = None
        self._running = 0
        self._used_s = time.monotonic()

    def run(self, task: OptimizationTask, cancelled: threading.Event) -> Result:
        """As ``Executor`` says. What is cancelled goes on, and finds its instant given up when it commits."""
        del cancelled
        spark = self._begin()
        try:
            return run_with_spark(spark, self._client, task)
        finally:
            with self._lock:
                self._running -= 1
                self._used_s = time.monotonic()

    def close(self) -> None:
        """Stops Spark."""
        with self._lock:
            self._stop()

    def rest(self) -> None:
        """Stops Spark if it has had nothing to do for a while."""
        with self._lock:
            if not self._running and time.monotonic() - self._used_s > self._idle_s:
                self._stop()

    def _stop(self) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def _begin(self) -> SparkSession:
        with self._lock:
            if self._spark is None:
                self._spark = _session(self._master, self._configuration)
            self._running += 1
            return self._spark


def _session(master: str, configuration: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("lakemark-optimizer").master(master)
    defaults = {"spark.ui.enabled": "false", "spark.scheduler.mode": "FAIR", "spark.sql.session.timeZone": "UTC"}
    for name, value in {**defaults, **configuration}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
