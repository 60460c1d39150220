"""Changes of rows by key while executors are killed with -9: each is made once, or not at all and says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from lakemark import Client
from lakemark_server.process import Service
from lakemark_server.verify import verify
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, interpreter
from tests.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]

ROWS: Final = 400
KINDS: Final = {
    "rewritten": {"lakemark.primary-key": "id,p", "lakemark.bucket.count": "4"},
    "merged": {"lakemark.primary-key": "id,p", "lakemark.bucket.count": "4", "lakemark.write.mode": "merge-on-read"},
    "without_buckets": {"lakemark.primary-key": "id,p"},
}
CHANGES: Final = {
    "upsert": "ls.upsert(source(frame), t, server=client)",
    "merge": 'ls.merge(source(frame), t, server=client).when_matched_update({"x": "s.x"})'
    ".when_not_matched_insert_all().execute()",
    "delete": "ls.delete(spark, t, where, server=client)",
    "compact": "ls.compact(spark, t, server=client)",
    "cluster": "ls.cluster(spark, t, columns=['x'], server=client)",
}
OF_CALLER: Final = ("upsert", "merge")
"""Changes whose rows are the caller's."""
MOMENTS: Final = ("task", "before the write", "in the write", "before the commit")

HELPERS: Final = """
from pathlib import Path
from unittest import mock
import os, signal
import lakemark, lakemark_spark as ls
from lakemark import Writer
from lakemark_core.errors import Unavailable
from lakemark_spark import layout
from pyspark.sql import functions as F

client = lakemark.connect(address)

def end_of_executor(value, marker):
    # The first to make the file ends the JVM that its daemon of Python workers belongs to.
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return value
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    return value

fatal_udf = F.udf(end_of_executor, "bigint").asNondeterministic()

def source(rows):
    return rows.withColumn("id", fatal_udf("id", F.lit(marker))) if moment == "task" else rows

def kill():
    spark.sparkContext.parallelize([0], 1).foreach(lambda at, marker=marker: end_of_executor(at, marker))

def while_killing(change):
    save, commit = layout._save, Writer.commit
    def saved(rows, *args, **how):
        if moment == "before the write":
            kill()
        if moment == "in the write":
            name = rows.columns[0]
            rows = rows.withColumn(name, F.when(fatal_udf(F.lit(0), F.lit(marker)) == 0, F.col(f"`{name}`")))
        return save(rows, *args, **how)
    def committed(*args, **how):
        if moment == "before the commit":
            kill()
        return commit(*args, **how)
    with mock.patch.object(layout, "_save", saved), mock.patch.object(Writer, "commit", committed):
        try:
            change()
            return "done"
        except Unavailable as error:
            return str(error)
"""


@pytest.fixture(scope="module")
def spark(
    cluster: SparkCluster, service: Service, spark_version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkProcess]:
    work = tmp_path_factory.mktemp("spark")
    # An executor that ends is not held against its host.
    settings = cluster.settings | {"spark.deploy.maxExecutorRetries": "-1"}
    with SparkProcess(interpreter(spark_version), service.hms_uri, work, settings=settings) as process:
        run(process, HELPERS, address=service.grpc_address)
        yield process


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_whose_executor_is_killed_is_made_once_or_not_at_all(
    client: Client, service: Service, spark: SparkProcess, spark_version: str, tmp_path: Path, kind: str
) -> None:
    table = f"default.killed_{kind}_{spark_version.replace('.', '')}"
    client.tables.create(table, "id bigint, x int, p string", partitioned_by=["p"], properties=KINDS[kind])
    rows = "frame = spark.range({}, {}, 1, 4).selectExpr('id', 'cast({} as int) x', \"concat('p', id % 2) p\")\n"
    upsert = "ls.upsert(frame, t, server=client)"
    run(spark, rows.format(0, ROWS, 0) + upsert, t=table)
    expected = dict.fromkeys(range(ROWS), 0)
    answers = []
    changes = [change for change in CHANGES if (change, kind) != ("compact", "rewritten")]  # nothing to merge there
    cases = [(change, at) for change in changes for at in MOMENTS if at != "task" or change in OF_CALLER]
    for number, (change, moment) in enumerate(cases, 1):
        if change == "delete":
            expected = {key: x for key, x in expected.items() if key % 100 != number}
        else:
            expected |= dict.fromkeys(range(20 * number, 20 * number + ROWS), number)
            run(spark, rows.format(20 * number, 20 * number + ROWS, number) + ("" if change in OF_CALLER else upsert))
        before, marker = client.snapshot(table).version, tmp_path / f"{change} {moment}"
        names = {"moment": moment, "marker": str(marker), "where": f"id % 100 = {number}"}
        call = f"result = while_killing(lambda: {CHANGES[change]})"

        answer = run(spark, call, **names)

        assert marker.exists(), f"nobody was killed: {change} {moment}"
        answers.append(answer)
        if answer != "done":
            assert "nothing is changed: call again" in answer
            assert client.snapshot(table).version == before
            assert run(spark, call, moment="") == "done"
        assert client.snapshot(table).version == before + 1
        read = client.read(table, columns=["id", "x"]).to_pylist()
        assert sorted((row["id"], row["x"]) for row in read) == sorted(expected.items()), (change, moment)

    shown = run(spark, "result = sorted(list(row) for row in spark.table(t).select('id', 'x').collect())")
    assert shown == sorted([key, x] for key, x in expected.items())
    assert "done" in answers, "Spark did what was lost again, where it could"
    assert verify(service.store) == []
