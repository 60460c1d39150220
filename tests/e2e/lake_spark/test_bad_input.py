"""What goes wrong while rows are written: a clear error, and the table is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark import Client
from lakemark_core.storage import local_path
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

KEYED = {"lakemark.primary-key": "id", "lakemark.bucket.count": "2", "lakemark.write.mode": "merge-on-read"}


@pytest.mark.one_spark
def test_a_location_that_cannot_be_written_is_told(server: Client, spark: SparkProcess, table: str) -> None:
    location = Path(local_path(server.tables.create(table, "id bigint").location))
    # Permissions would not stop a test that runs as root.
    location.rmdir()
    location.write_text("a file in the place of the table's directory")

    with pytest.raises(SparkStatementError, match="cannot be written there") as refusal:
        run(spark, "ls.append(spark.range(3), t, server=client)", t=table)

    assert refusal.value.kind == "StorageRefused"
    assert server.snapshot(table).version == 0
    assert [one.state for one in server.timeline.instants(table)] == ["rolled_back"]


@pytest.mark.one_spark
def test_a_full_disk_is_told_and_leaves_nothing(server: Client, spark: SparkProcess, table: str) -> None:
    location = Path(local_path(server.tables.create(table, "id bigint, v string", properties=KEYED).location))
    run(spark, "ls.upsert(spark.range(3).selectExpr('id', 'string(null) v'), t, server=client)", t=table)
    before = sorted(location.rglob("*"))

    # A limit of the JVM's files stands for the size of the disk.
    write = """
        import resource
        jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        limits = resource.prlimit(jvm, resource.RLIMIT_FSIZE)
        resource.prlimit(jvm, resource.RLIMIT_FSIZE, (100_000, limits[1]))
        try:
            ls.upsert(spark.range(20_000).selectExpr("id", "sha2(string(id), 512) v"), t, server=client)
        finally:
            resource.prlimit(jvm, resource.RLIMIT_FSIZE, limits)
    """
    with pytest.raises(SparkStatementError, match="no room is left there") as refusal:
        run(spark, write)

    assert refusal.value.kind == "StorageRefused"
    assert server.snapshot(table).version == 1
    assert [one.state for one in server.timeline.instants(table)] == ["completed", "rolled_back"]
    assert sorted(location.rglob("*")) == before
    run(spark, "ls.upsert(spark.range(2, 5).selectExpr('id', 'string(-1) v'), t, server=client)")
    assert server.read(table, "v = '-1'").num_rows == 3


@pytest.mark.one_spark
def test_rows_that_are_lost_with_an_executor_change_nothing(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, x int", properties=KEYED)

    write = """
        import lakemark_spark.groups as writing
        ls.upsert(spark.range(4).selectExpr("id", "0 x"), t, server=client)
        real = writing.layout.write_numbered
        def lost(*args):
            # What becomes of the rows if the executor that keeps them is killed.
            for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
                rdd.unpersist(True)
            return real(*args)
        with mock.patch.object(writing.layout, "write_numbered", lost):
            ls.upsert(spark.range(2, 8).selectExpr("id", "1 x"), t, server=client)
    """
    with pytest.raises(SparkStatementError, match=r"lost with an executor, .* call again") as refusal:
        run(spark, write, t=table)

    assert refusal.value.kind == "Unavailable"
    assert server.snapshot(table).version == 1
    run(spark, "ls.upsert(spark.range(2, 8).selectExpr('id', '1 x'), t, server=client)")
    assert server.read(table, "x = 1").num_rows == 6
