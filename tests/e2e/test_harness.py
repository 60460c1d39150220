"""The harness itself: both Spark versions, driven from here, work on a metastore that is known to be right."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest

from tests.e2e.conftest import StartSpark
from tests.e2e.spark_runner import SparkFailedError, SparkProcess, SparkStatementError, interpreter

pytestmark = pytest.mark.spark


@pytest.fixture(
    # All other files drive both, so here one is enough to tell a fault of the harness from one of ours.
    params=["4.3", pytest.param("3.5", marks=pytest.mark.slow)],
    ids=lambda version: f"spark-{version}",
    scope="session",
)
def spark_version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture
def spark(start_spark: StartSpark, spark_version: str, hive23_uri: str) -> SparkProcess:
    return start_spark(spark_version, hive23_uri)


@pytest.fixture
def database(spark: SparkProcess, spark_version: str) -> str:
    name = f"harness{spark_version.replace('.', '')}"
    spark.sql(f"DROP DATABASE IF EXISTS {name} CASCADE")
    spark.sql(f"CREATE DATABASE {name} LOCATION '{(spark.warehouse / name).as_uri()}'")
    return name


def test_the_version_is_the_one_asked_for(spark: SparkProcess, spark_version: str) -> None:
    assert spark.version.startswith(f"{spark_version}.")


def test_a_partitioned_table_is_written_and_read_with_a_filter(spark: SparkProcess, database: str) -> None:
    spark.sql(f"CREATE TABLE {database}.t (id BIGINT, name STRING) PARTITIONED BY (day DATE) STORED AS PARQUET")
    spark.sql(f"INSERT INTO {database}.t VALUES (1, 'a', DATE'2024-01-01'), (2, NULL, DATE'2024-01-02')")

    assert spark.sql(f"SELECT * FROM {database}.t WHERE day > DATE'2024-01-01'") == [(2, None, dt.date(2024, 1, 2))]
    assert spark.sql(f"SHOW PARTITIONS {database}.t") == [("day=2024-01-01",), ("day=2024-01-02",)]


def test_values_keep_their_types(spark: SparkProcess) -> None:
    (row,) = spark.sql(
        "SELECT CAST(1.50 AS DECIMAL(5,2)), TIMESTAMP'2024-03-01 12:00:00.5', X'00ff', DOUBLE('NaN') IS NULL,"
        " DOUBLE('Infinity'), map('k', array(1, 2)), named_struct('a', 1, 'b', 'x'), TRUE, INTERVAL '90' SECOND"
    )

    assert row == (
        Decimal("1.50"),
        dt.datetime(2024, 3, 1, 12, 0, 0, 500_000),
        b"\x00\xff",
        False,
        float("inf"),
        {"k": [1, 2]},
        [1, "x"],
        True,
        dt.timedelta(seconds=90),
    )


def test_a_refused_statement_tells_kind_and_condition(spark: SparkProcess) -> None:
    with pytest.raises(SparkStatementError, match="no_such_table") as refusal:
        spark.sql("SELECT * FROM no_such_table")

    assert (refusal.value.kind, refusal.value.condition) == ("AnalysisException", "TABLE_OR_VIEW_NOT_FOUND")


def test_python_snippets_keep_names_and_print_freely(spark: SparkProcess) -> None:
    spark.python("print('noise'); rows = spark.range(3)")

    assert spark.python("result = rows.rdd.map(lambda row: row.id + 1).collect()") == [1, 2, 3]
    assert spark.python("pass") is None


def test_one_that_dies_says_so_with_the_end_of_its_log(tmp_path: Path, hive23_uri: str) -> None:
    with SparkProcess(interpreter("4.3"), hive23_uri, tmp_path) as doomed:
        with pytest.raises(SparkFailedError, match="last words"):
            doomed.python("import os, sys; print('last words', file=sys.stderr, flush=True); os._exit(3)")

        with pytest.raises(SparkFailedError, match="not running"):
            doomed.sql("SELECT 1")
