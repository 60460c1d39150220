"""DataFrames into lake tables, by real Spark against a real service: appends and overwrites."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lakemark import Client, DataFile
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark


def directories(files: list[DataFile]) -> list[str]:
    return [file.path.rpartition("/")[0] for file in files]


@pytest.mark.one_spark
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("distribute", [True, False])
def test_each_directory_holds_one_file(
    server: Client, spark: SparkProcess, table: str, adaptive: str, distribute: bool
) -> None:
    server.tables.create(table, "id bigint, p int", partitioned_by=["p"])

    count = run(
        spark,
        """
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
        df = spark.range(0, 3000, 1, 6).selectExpr("id", "cast(id % 7 as int) as p")
        ls.append(df, t, server=client, distribute=distribute)
        spark.conf.set("spark.sql.adaptive.enabled", "true")
        result = ls.read(spark, t, server=client).selectExpr("count(*)", "sum(id)").first()
        """,
        t=table,
        adaptive=adaptive,
        distribute=distribute,
    )

    assert count == [3000, 2999 * 3000 // 2]
    plan = server.plan(table)
    files = plan.files()
    assert len(set(directories(files))) == len(files)
    for path in plan.paths:
        directory = Path(path.removeprefix("file:")).parent
        assert [one.name for one in directory.iterdir() if not one.name.startswith(".")] == [Path(path).name]
    assert len(files) == (7 if distribute else 42)
    assert len({file.file_group for file in files}) == len(files)


@pytest.mark.one_spark
def test_overwrites_replace_what_they_name(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, p int", partitioned_by=["p"])

    counts = run(
        spark,
        """
        def state():
            return [list(row) for row in ls.read(spark, t, server=client).groupBy("p").count().orderBy("p").collect()]
        whole = spark.range(30).selectExpr("id", "cast(id % 3 as int) as p")
        one = spark.range(5).selectExpr("id", "1 as p")
        none = whole.where("false")
        result = []
        ls.append(whole, t, server=client); result.append(state())
        ls.overwrite(one, t, partitions="dynamic", server=client); result.append(state())
        ls.overwrite(one, t, partitions=[{"p": 1}, {"p": 2}], server=client); result.append(state())
        ls.overwrite(none, t, partitions="dynamic", server=client); result.append(state())
        ls.overwrite(whole, t, server=client); result.append(state())
        ls.append(none, t, server=client); result.append(state())
        ls.overwrite(none, t, server=client); result.append(state())
        """,
        t=table,
    )

    full = [[0, 10], [1, 10], [2, 10]]
    assert counts == [full, [[0, 10], [1, 5], [2, 10]], [[0, 10], [1, 5]], [[0, 10], [1, 5]], full, full, []]
    assert server.snapshot(table).version == 7, "an empty DataFrame is a commit, too"
    assert run(spark, "result = ls.read(spark, t, version=1, server=client).count()") == 30

    with pytest.raises(SparkStatementError, match="not to be overwritten: p=0, p=2") as refusal:
        run(spark, "ls.overwrite(whole, t, partitions=[{'p': 1}], server=client)")
    assert refusal.value.kind == "InvalidArgument"
    assert server.timeline.instants(table, newest_first=True)[0].state == "rolled_back"


@pytest.mark.one_spark
def test_rows_are_sorted_only_where_somebody_asked_for_it(server: Client, spark: SparkProcess, table: str) -> None:
    """Left to itself, Spark sorts what it writes into partitions, which costs an append a tenth of its time."""
    server.tables.create(table, "id bigint, p int", partitioned_by=["p"])

    plans = run(
        spark,
        """
        def written(change):
            store = spark._jsparkSession.sharedState().statusStore()
            def executions():
                spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)  # which tells the store
                told = store.executionsList()  # the latest ones only
                return {one.executionId(): one for one in map(told.apply, range(told.size()))}
            before = executions().keys()
            change()
            plans = [one.physicalPlanDescription() for number, one in executions().items() if number not in before]
            return [plan for plan in plans if "InsertIntoHadoopFsRelationCommand" in plan]
        result = [
            written(lambda: ls.append(spark.range(9).selectExpr("id", "cast(id % 3 as int) as p"), t, server=client)),
            written(lambda: ls.cluster(spark, t, columns=["id"], server=client)),
        ]
        """,
        t=table,
    )

    assert [["Sort [" in plan for plan in plans_of_change] for plans_of_change in plans] == [[False], [True]], plans


@pytest.mark.one_spark
def test_a_request_id_commits_once(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint")

    versions = run(
        spark,
        """
        df = spark.range(10)
        result = [ls.append(df, t, request_id=t + "-1", server=client).version for _ in range(3)]
        result.append(ls.append(df, t, request_id=t + "-2", server=client).version)
        """,
        t=table,
    )

    assert versions == [1, 1, 1, 2]
    assert server.snapshot(table).rows == 20


@pytest.mark.one_spark
def test_every_misfit_is_told_and_nothing_is_committed(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id int, name boolean, at date NOT NULL, p int", partitioned_by=["p"])

    with pytest.raises(SparkStatementError) as refusal:
        run(spark, "ls.append(spark.sql(\"select '7' id, 1 name, 2 extra\"), t, server=client)", t=table)

    assert refusal.value.kind == "InvalidSchema"
    for part in ("'id' is string; the table has int", "'name' is int", "'extra'", "'at' is missing", "'p' is missing"):
        assert part in refusal.value.message
    with pytest.raises(SparkStatementError, match="NOT NULL"):
        run(spark, 'ls.append(spark.sql("select 1 id, true name, cast(null as date) at, 1 p"), t, server=client)')
    assert {one.state for one in server.timeline.instants(table)} == {"rolled_back"}
    assert server.snapshot(table).version == 0


@pytest.mark.one_spark
def test_lengths_of_strings_are_kept(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "v varchar(3), c char(3)")

    rows = run(
        spark,
        """
        ls.append(spark.sql("select 'abc' v, 'x' c"), t, server=client)
        result = [list(row) for row in ls.read(spark, t, server=client).collect()]
        """,
        t=table,
    )

    assert rows == [["abc", "x  "]]
    with pytest.raises(SparkStatementError, match=r"longer than varchar\(3\)"):
        run(spark, "ls.append(spark.sql(\"select 'abcd' v, 'x' c\"), t, server=client)")


@pytest.mark.one_spark
def test_a_job_that_fails_is_rolled_back_and_the_session_is_as_before(
    server: Client, spark: SparkProcess, table: str
) -> None:
    server.tables.create(table, "id bigint, at timestamp")

    with pytest.raises(SparkStatementError, match="boom"):
        run(
            spark,
            """
            before = spark.conf.get("spark.sql.parquet.outputTimestampType")
            df = spark.range(100).selectExpr("if(id = 99, raise_error('boom'), id) as id", "current_timestamp() as at")
            ls.append(df.selectExpr("cast(id as bigint) id", "at"), t, server=client)
            """,
            t=table,
        )

    assert run(spark, "result = spark.conf.get('spark.sql.parquet.outputTimestampType') == before") is True
    (instant,) = server.timeline.instants(table)
    assert instant.state == "rolled_back"
    assert instant.rolled_back_reason.startswith("the writer failed: ")


@pytest.mark.one_spark
def test_many_files_are_described_by_the_executors(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, x double, p int", partitioned_by=["p"])

    run(
        spark,
        """
        df = spark.range(0, 48, 1, 2).selectExpr("id", "id / 2 as x", "cast(id % 12 as int) as p")
        with mock.patch.multiple(lakemark_spark.footers, IN_DRIVER_MAX=5, FILES_PER_TASK=4):
            ls.append(df, t, server=client)
        """,
        t=table,
    )

    files = server.plan(table, statistics=["id", "x"]).files()
    assert len(files) == 12
    for file in files:
        (p,) = file.partition
        assert isinstance(p, int)
        id_statistics, x_statistics = file.statistics
        assert (id_statistics.min, id_statistics.max, id_statistics.null_count) == (p, p + 36, 0)
        assert isinstance(x_statistics.max, float)
        assert math.isclose(x_statistics.max, (p + 36) / 2)
        assert x_statistics.nan_count == 0
    assert run(spark, "result = ls.read(spark, t, 'p >= 10', server=client).count()") == 8


def test_a_spark_without_the_jars_for_s3_is_told_which(spark: SparkProcess) -> None:
    with pytest.raises(SparkStatementError, match=r"Spark does not reach s3a://lakes/t/1/a\.parquet") as refusal:
        run(
            spark,
            """
            import os
            import lakemark_spark.files
            from pyspark.sql.types import StructType
            with mock.patch.dict(os.environ, LAKEMARK_S3_ENDPOINT="http://127.0.0.1:9000"):
                lakemark_spark.files.scan(spark, ["s3://lakes/t/1/a.parquet"], StructType())
            """,
        )
    assert refusal.value.kind == "StorageRefused"
    hadoop = run(spark, "result = spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()")
    assert f"--packages org.apache.hadoop:hadoop-aws:{hadoop}" in refusal.value.message
    assert "spark.hadoop.fs.s3a.endpoint=http://127.0.0.1:9000" in refusal.value.message
