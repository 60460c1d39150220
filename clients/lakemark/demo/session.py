"""Plain Spark: pyspark as it comes, told only where the metastore is and to use its built-in Hive catalog."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from lakemark.demo.report import Report


class Sql:
    """Runs statements and shows them."""

    def __init__(self, spark: SparkSession, report: Report) -> None:
        self.spark = spark
        self._report = report

    def __call__(self, text: str, *, quiet: bool = False) -> list[Row]:
        """Rows of the result."""
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
        """Names, without Spark's temporary views."""
        return sorted(row[1] for row in self(f"SHOW TABLES IN {database}", quiet=True) if row[0] == database)

    def fails(self, text: str) -> str:
        """The first line of the error that the statement ends with; "" if it works."""
        self._report.sql(text)
        try:
            self.spark.sql(text).collect()
        except Exception as error:
            return str(error).strip().splitlines()[0]
        return ""


def start(metastore: str, directory: Path) -> SparkSession:
    """A new session; what Spark drops where it runs (spark-warehouse …) goes into the demo's directory."""
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
def _errors_to(log: Path) -> Iterator[None]:
    """What is started meanwhile, the JVM, writes its errors and progress bars to the log and not over ours."""
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
