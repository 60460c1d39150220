"""Lake tables through plain Spark: only the metastore's address is told to it. Both versions of Spark."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark import Client, CommitConflict
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark: SparkProcess, spark_version: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new lake table made by Spark's DDL, partitioned by ``m``."""
    database = f"db{spark_version.replace('.', '')}"
    name = f"{database}.{request.node.originalname.removeprefix('test_')[:60]}"
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, Name STRING, x DOUBLE, at TIMESTAMP, m INT) USING parquet "
        "PARTITIONED BY (m) TBLPROPERTIES ('lakemark.type'='lake')"
    )
    yield name
    spark.sql(f"DROP VIEW IF EXISTS {name}")


def rows(first: int, count: int, month: int | None = None) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "Name": [f"n{i}" if i % 3 else None for i in ids],
            "x": [i / 2 for i in ids],
            "at": pa.array([dt.datetime(2013, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=i) for i in ids]),
            "m": pa.array([i % 4 if month is None else month for i in ids], pa.int32()),
        }
    )


def append(client: Client, table: str, data: pa.Table) -> int:
    with client.begin(table, "append") as writer:
        writer.write(data)
        return writer.commit().version


def ids(spark: SparkProcess, table: str, where: str = "true") -> list[int]:
    return [row[0] for row in spark.sql(f"SELECT id FROM {table} WHERE {where} ORDER BY id")]


def at(table: str, reference: str) -> str:
    database, name = table.split(".")
    return f"{database}.`{name}@{reference}`"


def test_each_commit_is_seen_without_refresh(client: Client, spark: SparkProcess, table: str) -> None:
    assert ids(spark, table) == []
    for commit in range(4):
        append(client, table, rows(commit * 5, 5))
        assert ids(spark, table) == list(range(commit * 5 + 5))
    assert spark.sql(f"SELECT id, name, x, at, m FROM {table} WHERE id = 4") == [
        (4, "n4", 2.0, dt.datetime(2013, 1, 1, 4), 0)
    ]


def test_versions_and_times_read_the_past(client: Client, spark: SparkProcess, table: str) -> None:
    moments = []
    for commit in range(3):
        append(client, table, rows(commit * 5, 5))
        time.sleep(0.005)  # a moment after this commit and before the next
        moments.append(dt.datetime.now(dt.UTC).strftime("%Y-%m-%dt%H:%M:%S.%f"))
        time.sleep(0.005)
    with client.begin(table, "overwrite_table") as writer:
        writer.write(rows(100, 2))
        writer.commit()
    for version, moment in enumerate(moments, 1):
        assert ids(spark, at(table, f"v{version}")) == list(range(version * 5))
        assert ids(spark, at(table, moment)) == list(range(version * 5))
    assert ids(spark, at(table, "v0")) == []
    assert ids(spark, table) == ids(spark, at(table, "v4")) == [100, 101]
    both = f"SELECT (SELECT count(*) FROM {at(table, 'v3')}) - (SELECT count(*) FROM {table})"
    assert spark.sql(both) == [(13,)]


def test_branches_and_tags_by_name(client: Client, spark: SparkProcess, table: str) -> None:
    append(client, table, rows(0, 5))
    client.tags.create(table, "first")
    client.branches.create(table, "dev")
    with client.begin(table, "append", branch="dev") as writer:
        writer.write(rows(50, 3))
        writer.commit()
    append(client, table, rows(5, 5))
    assert ids(spark, table) == list(range(10))
    assert ids(spark, at(table, "dev")) == [*range(5), 50, 51, 52]
    assert ids(spark, at(table, "dev@v1")) == ids(spark, at(table, "first")) == list(range(5))
    assert ids(spark, at(table, "dev@v1..v2")) == [50, 51, 52]
    assert spark.sql(f"SELECT count(*) FROM {at(table, 'dev')} d JOIN {table} t USING (id)") == [(5,)]
    client.branches.merge(table, "dev")
    assert ids(spark, table) == [*range(10), 50, 51, 52]
    client.branches.drop(table, "dev")
    with pytest.raises(SparkStatementError, match=r"no branch 'dev'.* it has main; .*it has first"):
        ids(spark, at(table, "dev"))


@pytest.mark.parametrize(
    "where",
    [
        "m = 1",
        "m != 1",
        "m > 1 AND m <= 3",
        "(m = 0 OR m = 3)",
        "m IN (0, 2)",
        "m NOT IN (0, 2)",
        "m IS NULL",
        "m IS NOT NULL AND id > 7",
        "m + 1 = 2",
        "name = 'n4'",
        "x BETWEEN 2 AND 4 AND m < 3",
    ],
)
def test_filters_select_the_same_rows_as_without_partitions(
    client: Client, spark: SparkProcess, spark_version: str, where: str
) -> None:
    name = f"db{spark_version.replace('.', '')}.filtered"
    if not spark.sql(f"SHOW TABLES IN {name.split('.', maxsplit=1)[0]} LIKE 'filtered'"):
        spark.sql(
            f"CREATE TABLE {name} (id BIGINT, Name STRING, x DOUBLE, at TIMESTAMP) PARTITIONED BY (m INT) "
            "STORED AS PARQUET TBLPROPERTIES ('lakemark.type'='lake')"
        )
        append(client, name, rows(0, 10))
        append(client, name, rows(10, 5).set_column(4, "m", pa.nulls(5, pa.int32())))
    everything = f"(SELECT id, name, x, at, CAST(CAST(m AS STRING) AS INT) AS m FROM {name})"
    assert ids(spark, name, where) == ids(spark, everything, where)


def test_an_unpartitioned_table_by_hive_ddl(client: Client, spark: SparkProcess, spark_version: str) -> None:
    name = f"db{spark_version.replace('.', '')}.plain"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, s STRING) STORED AS PARQUET TBLPROPERTIES ('lakemark.type'='lake')")
    append(client, name, pa.table({"id": [1, 2], "s": ["a", None]}))
    append(client, name, pa.table({"id": [3], "s": ["c"]}))
    assert spark.sql(f"SELECT * FROM {name} ORDER BY id") == [(1, "a"), (2, None), (3, "c")]
    assert spark.sql(f"SELECT * FROM {at(name, 'v1')} ORDER BY id") == [(1, "a"), (2, None)]
    spark.sql(f"DROP VIEW {name}")


def test_inserts_are_refused_and_change_nothing(client: Client, spark: SparkProcess, table: str) -> None:
    append(client, table, rows(0, 8))
    spark.sql("SET hive.exec.dynamic.partition.mode=nonstrict")
    values = "VALUES (9, 'x', 1.0, TIMESTAMP '2013-01-01 00:00:00', 1"
    for statement in (
        f"INSERT INTO {table} {values})",
        f"INSERT OVERWRITE {table} {values})",
        f"INSERT INTO {at(table, 'v1')} {values})",
    ):
        with pytest.raises(SparkStatementError, match=r"[Vv]iew"):
            spark.sql(statement)
    for statement in (
        f"INSERT INTO {at(table, 'v1@files')} {values}, 's')",
        f"INSERT INTO {at(table, 'v1@files')} PARTITION (m = 1, lakemark_slice = 's') "
        "VALUES (9, 'x', 1.0, TIMESTAMP '2013-01-01 00:00:00')",
    ):
        with pytest.raises(SparkStatementError, match="lakemark_spark"):
            spark.sql(statement)
    assert ids(spark, table) == list(range(8))
    assert client.snapshot(table).version == 1


def test_increments_are_the_rows_that_came_in_between(client: Client, spark: SparkProcess, table: str) -> None:
    for commit in range(3):
        append(client, table, rows(commit * 5, 5))
    with client.begin(table, "overwrite_partitions", partitions=[{"m": 1}]) as writer:
        writer.write(rows(100, 2, month=1))
        writer.commit()
    assert ids(spark, at(table, "v1..v3")) == list(range(5, 15))
    assert ids(spark, at(table, "v2..v3"), "m = 1") == [13]
    assert ids(spark, at(table, "v3..v4")) == [100, 101]
    assert ids(spark, at(table, "v1..v4"), "m = 1") == [100, 101]
    assert ids(spark, at(table, "v2..v2")) == []


def test_names_that_are_no_snapshot_say_why(client: Client, spark: SparkProcess, table: str) -> None:
    append(client, table, rows(0, 1))
    with pytest.raises(SparkStatementError, match="has no version 9; the latest is 1"):
        ids(spark, at(table, "v9"))
    with pytest.raises(SparkStatementError, match="no branch 'yesterday'"):
        ids(spark, at(table, "yesterday"))
    with pytest.raises(SparkStatementError, match="is no snapshot"):
        ids(spark, at(table, "main@yesterday!"))
    with pytest.raises(SparkStatementError, match="did not exist"):
        ids(spark, at(table, "2001-01-01"))


def test_a_crashed_writer_is_never_seen(client: Client, spark: SparkProcess, table: str) -> None:
    append(client, table, rows(0, 8))
    writer = client.begin(table, "append")
    writer.write(rows(8, 8))
    assert list(Path(writer.location.removeprefix("file:")).rglob("*.parquet"))
    assert ids(spark, table) == list(range(8))
    writer.rollback("the test's writer dies here")
    assert ids(spark, table) == list(range(8))
    assert not Path(writer.location.removeprefix("file:")).exists()


def test_the_loser_of_a_race_is_refused_and_others_go_through(client: Client, spark: SparkProcess, table: str) -> None:
    append(client, table, rows(0, 8))
    loser = client.begin(table, "overwrite_partitions", partitions=[{"m": 1}])
    loser.write(rows(100, 4, month=1))
    bystander = client.begin(table, "overwrite_partitions", partitions=[{"m": 2}])
    bystander.write(rows(200, 1, month=2))
    append(client, table, rows(8, 2, month=1))
    with pytest.raises(CommitConflict, match="m=1") as refused:
        loser.commit()
    assert refused.value.details["policy"] == "partition"
    assert refused.value.details["version"] == "2"
    assert bystander.commit().rebased_over == 1
    assert ids(spark, table) == [0, 1, 3, 4, 5, 7, 8, 9, 200]


def test_the_policy_of_the_table_decides(client: Client, spark: SparkProcess, table: str) -> None:
    spark.sql(f"ALTER VIEW {table} SET TBLPROPERTIES ('lakemark.conflict.policy'='table')")
    with client.begin(table, "append") as first, pytest.raises(CommitConflict, match="one writer at a time"):
        client.begin(table, "append", partitions=[{"m": 1}])
    assert first.committed is False
    with pytest.raises(SparkStatementError, match="is not a policy"):
        spark.sql(f"ALTER VIEW {table} SET TBLPROPERTIES ('lakemark.conflict.policy'='chance')")


def test_ddl_that_a_lake_table_cannot_have_is_refused_with_the_reason(spark: SparkProcess, table: str) -> None:
    refused = f"{table.partition('.')[0]}.refused"
    lake = "TBLPROPERTIES ('lakemark.type'='lake')"
    with pytest.raises(SparkStatementError, match="stored as parquet"):
        spark.sql(f"CREATE TABLE {refused} (a INT) STORED AS ORC {lake}")
    with pytest.raises(SparkStatementError, match="is not known"):
        spark.sql(
            f"CREATE TABLE {refused} (a INT) USING parquet TBLPROPERTIES ('lakemark.type'='lake', 'lakemark.x'='y')"
        )
    with pytest.raises(SparkStatementError, match="AS SELECT is not possible"):
        spark.sql(f"CREATE TABLE {refused} USING parquet {lake} AS SELECT 1 AS a")
    assert spark.sql(f"SHOW TABLES IN {table.partition('.')[0]} LIKE 'refused'") == []
