"""An archive of the classes that Spark loads, with which the JVMs of the tests start in half the time.

``python -m tests.e2e.class_archives`` makes that of the Spark which most tests start, if it is missing: it runs a few
statements and lets the JVM write down what it has loaded (class data sharing). A JVM for which an archive does not fit,
because the jars or Java have changed since, goes on without it.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lakemark_server.process import Service
from lakemark_server.settings import Settings
from tests.e2e.spark_runner import SparkProcess, archive_of, directory_options, interpreter, java_options

VERSION: Final = "4.3"  # too few JVMs of the other one are started for an archive to pay
WRITTEN_WITHIN_S: Final = 120.0
STATEMENTS: Final = (
    "CREATE TABLE warm (id BIGINT, name STRING, m INT) USING parquet PARTITIONED BY (m)",
    "INSERT INTO warm SELECT id, concat('n', id), id % 2 FROM range(10)",
    "SELECT m, count(*), max(name) FROM warm WHERE id > 2 GROUP BY m ORDER BY m",
    "SELECT a.id FROM warm a JOIN (SELECT id FROM warm WHERE m = 1) b ON a.id = b.id",
)


def main() -> None:
    """Make the archive if it is missing."""
    python = interpreter(VERSION)
    if not archive_of(python).exists():
        with _metastore() as uri:
            make(python, uri)


def make(python: Path, metastore_uri: str) -> None:
    """Write the archive of this environment's Spark, or none if it does not come to its end."""
    archive = archive_of(python)
    # A JVM that finds the file takes it for whole.
    unfinished = archive.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory() as directory:
        options = f"{java_options(python)} {directory_options(Path(directory))} -XX:ArchiveClassesAtExit={unfinished}"
        settings = {
            "spark.driver.extraJavaOptions": options,
            "spark.sql.warehouse.dir": Path(directory, "warehouse").as_uri(),
        }
        with SparkProcess(python, metastore_uri, Path(directory), settings=settings) as spark:
            for statement in STATEMENTS:
                spark.sql(statement)
            jvm = spark.python("result = spark._jvm.ProcessHandle.current().pid()")
        deadline = time.monotonic() + WRITTEN_WITHIN_S
        while Path(f"/proc/{jvm}").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    if unfinished.exists():
        unfinished.rename(archive)


@contextlib.contextmanager
def _metastore() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as root:
        store, warehouse = f"sqlite:///{root}/lakemark.db", f"{root}/warehouse"
        with Service(Settings(store=store, warehouse=warehouse, grpc_port=0, hms_port=0)) as service:
            yield service.hms_uri


if __name__ == "__main__":
    main()
