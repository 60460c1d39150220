"""Statements through doors with tasks that run twice, and with ten thousand files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest

from lakemark import Client
from lakemark_server.process import Service
from tests.e2e.spark_runner import SparkProcess, interpreter

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_200)]

FILES: Final = 10_000
CALL_S_MAX: Final = 600.0
"""Hive's clients give a call up after so long (hive.metastore.client.socket.timeout)."""
TWICE: Final = {"spark.master": "local[2,2]"}
"""A task that fails is run once more. Copies of slow tasks have tests of their own (test_doors_speculation)."""

_FAILS_AT_FIRST: Final = """
from pathlib import Path
from pyspark import TaskContext

def rows(numbers):
    here = TaskContext.get()
    attempt = here.partitionId(), here.attemptNumber()
    Path({directory!r}, "%d-%d" % attempt).touch()
    for number in numbers:
        yield (number, number % 3)
    if attempt == (0, 0):
        raise ValueError("once")

numbers = spark.sparkContext.parallelize(range(4_000), 4).mapPartitions(rows)
spark.createDataFrame(numbers, "id long, m long").selectExpr("id", "cast(m as int) m").write.insertInto({door!r})
result = None
"""


def test_of_tasks_that_run_twice_one_counts(
    client: Client, service: Service, spark_version: str, tmp_path: Path
) -> None:
    """Both copies have written rows."""
    name = f"default.twice{spark_version.replace('.', '')}"
    client.tables.create(name, "id bigint, m int", partitioned_by=["m"])
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    with SparkProcess(interpreter(spark_version), service.hms_uri, tmp_path / "spark", settings=TWICE) as spark:
        spark.python(_FAILS_AT_FIRST.format(directory=str(attempts), door=f"{name}__append"), timeout_s=300)
        spark.sql(f"INSERT INTO {name}__append VALUES (5000, 1)")
    assert {"0-0", "0-1"} <= {path.name for path in attempts.iterdir()}
    assert sorted(client.read(name).column("id").to_pylist()) == [*range(4_000), 5_000]
    assert len(client.timeline.versions(name)) == 2


@pytest.mark.parametrize("partitioned", [False, True], ids=["files", "partitions"])
def test_ten_thousand_files(client: Client, spark: SparkProcess, spark_version: str, partitioned: bool) -> None:
    """Each has a row. For partitions Spark calls a hundred times before the call that ends the statement."""
    name = f"default.large{spark_version.replace('.', '')}{'p' if partitioned else 'f'}"
    client.tables.create(name, "id bigint, p int", partitioned_by=["p"] if partitioned else [])
    spark.sql("SET spark.sql.files.maxRecordsPerFile=1")
    began = time.monotonic()
    try:
        query = f"SELECT id, CAST(id AS INT) FROM range(0, {FILES}, 1, 2)"
        spark.sql(f"INSERT INTO {name}__append {query}", timeout_s=900)
    finally:
        spark.sql("RESET spark.sql.files.maxRecordsPerFile")
    took_s = time.monotonic() - began
    (version,) = client.timeline.versions(name)
    assert version.added_files == FILES
    assert sorted(client.read(name).column("id").to_pylist()) == list(range(FILES))
    print(f"Spark {spark_version}, {FILES} {'partitions' if partitioned else 'files'}: {took_s:.1f} s")
    assert took_s < CALL_S_MAX
