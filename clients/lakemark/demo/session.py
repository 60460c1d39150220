"""Plain Spark: pyspark as it comes, with its built-in Hive catalog and the address of the metastore."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.logger import PySparkLogger
from pyspark.sql import Row, SparkSession

from lakemark.demo.report import Report


class Sql:
    """Runs statements and prints them."""

    def __init__(self, spark: SparkSession, report: Report) -> None:
        self.spark = spark
        self._report = report

    def __call__(self, text: str, *, quiet: bool = False) -> list[Row]:
        """The rows of the result."""
        if not quiet:
            self._report.sql(text)
        return self.spark.sql(text).collect()

    def one(self, text: str, *, quiet: bool = True) -> Any:
        """The only value of the only row."""
        return self(text, quiet=quiet)[0][0]

    def column(self, text: str, *, quiet: bool = True) -> list[Any]:
        """The first value of each row."""
        return [row[0] for row in self(text, quiet=quiet)]

    def tables(self, database: str) -> list[str]:
        """The names of the database's tables, without Spark's temporary views."""
        return sorted(row[1] for row in self(f"SHOW TABLES IN {database}", quiet=True) if row[0] == database)

    def fails(self, text: str) -> str:
        """The first line of the error that the statement raises; "" if it succeeds."""
        self._report.sql(text)
        try:
            with _no_stack_traces():
                self.spark.sql(text).collect()
        except Exception as error:
            return str(error).strip().splitlines()[0]
        return ""


def start(metastore: str, directory: Path) -> SparkSession:
    """A new session. What Spark writes to its working directory (spark-warehouse …) goes into the demo's directory."""
    os.chdir(directory)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _errors_to(directory / "spark.log"):
        return (
            SparkSession.builder.appName("lakemark-demo")
            .config("spark.hive.metastore.uris", metastore)
            .enableHiveSupport()
            .getOrCreate()
        )


@contextmanager
def _no_stack_traces() -> Iterator[None]:
    """PySpark logs each error of a statement with its stack trace, also one that is caught."""
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Processes started meanwhile (the JVM) write their errors and progress bars to the log instead of our stderr."""
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
