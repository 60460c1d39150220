"""Statements through doors while Spark speculates: a copy of a slow task runs on another host at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from lakemark import Client
from lakemark_server.process import Service
from tests.e2e.spark_runner import SparkProcess, interpreter
from tests.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SPECULATION: Final = {
    "spark.speculation": "true",
    # So nothing but speculation begins a task again.
    "spark.task.maxFailures": "1",
}
STATEMENT_S_MAX: Final = 300.0

_INSERT: Final = """
import time
from pathlib import Path
from pyspark import TaskContext

def rows(numbers):
    here = TaskContext.get()
    attempt = "%d-%d" % (here.partitionId(), here.attemptNumber())
    for number in numbers:
        yield (number, number % 3)
    directory = Path({directory!r})
    (directory / attempt).touch()
    until = time.monotonic() + 200
    while not (directory / {awaited!r}.get(attempt, attempt)).exists():
        assert time.monotonic() < until, "nobody came"
        time.sleep(0.05)

numbers = spark.sparkContext.parallelize(range(4_000), 4).mapPartitions(rows)
spark.createDataFrame(numbers, "id long, m long").selectExpr("id", "cast(m as int) m").write.insertInto({door!r})
result = None
"""


@pytest.fixture(scope="module")
def spark(
    cluster: SparkCluster, service: Service, spark_version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkProcess]:
    work = tmp_path_factory.mktemp("spark")
    settings = cluster.settings | SPECULATION
    with SparkProcess(interpreter(spark_version), service.hms_uri, work, settings=settings) as process:
        yield process


# By attempt: which attempt must have given its rows before this one ends. The file "never" does not come.
@pytest.mark.parametrize(
    "awaited",
    [
        pytest.param({"0-0": "never"}, id="copy-first"),
        pytest.param({"0-0": "0-1", "0-1": "never"}, id="copy-last"),
        pytest.param({"0-0": "0-1"}, id="both"),
    ],
)
@pytest.mark.parametrize("partitioned", [False, True], ids=["files", "partitions"])
def test_of_a_task_and_its_copy_one_counts(
    client: Client, spark: SparkProcess, spark_version: str, tmp_path: Path, awaited: dict[str, str], partitioned: bool
) -> None:
    """The first try of one of four tasks ends only when its copy has given all rows, or does not end by itself."""
    name = f"default.speculated{spark_version.replace('.', '')}_{'_'.join(awaited.values()).replace('-', '')}"
    name += "p" if partitioned else "f"
    client.tables.create(name, "id bigint, m int", partitioned_by=["m"] if partitioned else [])
    code = _INSERT.format(directory=str(tmp_path), awaited=awaited, door=f"{name}__append")
    spark.python(code, timeout_s=STATEMENT_S_MAX)
    spark.sql(f"INSERT INTO {name}__append VALUES (5000, 1)")
    assert {path.name for path in tmp_path.iterdir()} == {"0-0", "0-1", "1-0", "2-0", "3-0"}
    assert sorted(client.read(name).column("id").to_pylist()) == [*range(4_000), 5_000]
    assert len(client.timeline.versions(name)) == 2
