"""Statements of Spark that drop a lake table, meant or not: what each does to it, and that it comes back whole.

Spark takes a lake table for a view, so `saveAsTable` in mode overwrite and `CREATE OR REPLACE VIEW` drop it before they
make something else of its name.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from lakemark import Client, DroppedTable
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

ROWS = [(1, 1), (2, 1), (3, 2)]
PROTECTED = "lakemark.drop.protected"


@pytest.fixture
def table(spark: SparkProcess, spark_version: str, request: pytest.FixtureRequest, client: Client) -> str:
    """A new lake table with three rows in two versions, and a tag on the first one."""
    database = f"slips{spark_version.replace('.', '')}"
    name = f"{database}.{re.sub('[^a-z0-9]+', '_', request.node.name.lower())[:100]}"
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    spark.sql(f"CREATE TABLE {name} (id BIGINT, m INT) USING parquet PARTITIONED BY (m) "
              "TBLPROPERTIES ('lakemark.type'='lake')")  # fmt: skip
    for some in (ROWS[:2], ROWS[2:]):
        ids, months = zip(*some, strict=True)
        with client.begin(name) as writer:
            writer.write(pa.table({"id": pa.array(ids, pa.int64()), "m": pa.array(months, pa.int32())}))
            writer.commit()
    client.tags.create(name, "first", version=1)
    return name


def rows(spark: SparkProcess, table: str) -> list[tuple[int, ...]]:
    return [tuple(row) for row in spark.sql(f"SELECT id, m FROM {table} ORDER BY id")]


def dropped(client: Client, table: str) -> list[DroppedTable]:
    return [one for one in client.tables.dropped(table.partition(".")[0]) if one.name == table]


def comes_back(spark: SparkProcess, client: Client, table: str) -> None:
    """Beside what has taken its name."""
    (one,) = dropped(client, table)
    assert (one.version, one.files) == (2, 2)
    assert one.size_bytes
    assert one.dropped_by
    old = f"{table}_old"
    assert client.tables.undrop(table, old).version == 2
    assert rows(spark, old) == ROWS
    database, name = old.split(".")
    assert rows(spark, f"{database}.`{name}@first`") == ROWS[:2]


def slip(spark: SparkProcess, table: str, statement: str) -> None:
    """A statement that drops the table, given by what it looks like in short."""
    write = ".write.mode('overwrite').saveAsTable"
    if statement == "saveAsTable":
        spark.python(f"spark.range(7, 9).selectExpr('id', '1 AS m'){write}('{table}')")
    elif statement == "saveAsTable of itself":
        spark.python(f"spark.table('{table}').selectExpr('id', '9 AS m'){write}('{table}')")
    elif statement == "CREATE OR REPLACE VIEW":
        spark.sql(f"CREATE OR REPLACE VIEW {table} AS SELECT 7L AS id, 8 AS m")
    else:
        spark.sql(f"{statement} {table}")


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("saveAsTable", [(7, 1), (8, 1)]),
        ("CREATE OR REPLACE VIEW", [(7, 8)]),
    ],
)
def test_what_replaces_a_lake_table_does_not_lose_it(
    spark: SparkProcess, client: Client, table: str, statement: str, after: list[tuple[int, int]]
) -> None:
    slip(spark, table, statement)
    assert rows(spark, table) == after
    comes_back(spark, client, table)
    spark.sql(f"DROP {'VIEW' if 'VIEW' in statement else 'TABLE'} {table}")


def test_a_table_that_is_overwritten_with_what_was_read_of_it(spark: SparkProcess, client: Client, table: str) -> None:
    """Spark looks the table up once more after it has dropped it: the statement fails, and the table is not lost."""
    with pytest.raises(SparkStatementError, match="TABLE_OR_VIEW_NOT_FOUND"):
        slip(spark, table, "saveAsTable of itself")
    (one,) = dropped(client, table)
    assert client.tables.undrop(table).table_id == one.table_id
    assert rows(spark, table) == ROWS


def test_dropped_and_made_again(spark: SparkProcess, client: Client, table: str) -> None:
    """By one statement and another: the new table has nothing of the old one, and the old one is not harmed."""
    spark.sql(f"DROP VIEW {table}")
    spark.sql(f"CREATE TABLE {table} USING parquet AS SELECT 7L AS id, 8 AS m")
    assert rows(spark, table) == [(7, 8)]
    spark.sql(f"DROP TABLE {table}")
    assert client.tables.undrop(table).version == 2
    assert rows(spark, table) == ROWS


def test_drop_database_cascade(spark: SparkProcess, client: Client, table: str) -> None:
    database, _, name = table.partition(".")
    other = f"{database}_cascade"
    spark.sql(f"CREATE DATABASE {other}")
    client.tables.rename(table, f"{other}.{name}")
    spark.sql(f"DROP DATABASE {other} CASCADE")
    assert client.tables.undrop(f"{other}.{name}", table).version == 2
    assert rows(spark, table) == ROWS


@pytest.mark.parametrize("statement", ["saveAsTable", "CREATE OR REPLACE VIEW", "DROP VIEW"])
def test_a_protected_table_is_not_replaced(spark: SparkProcess, client: Client, table: str, statement: str) -> None:
    spark.sql(f"ALTER VIEW {table} SET TBLPROPERTIES ('{PROTECTED}'='true')")
    with pytest.raises(SparkStatementError, match="is protected and cannot be dropped"):
        slip(spark, table, statement)
    assert rows(spark, table) == ROWS
    assert dropped(client, table) == []
    spark.sql(f"ALTER VIEW {table} UNSET TBLPROPERTIES ('{PROTECTED}')")
    spark.sql(f"DROP VIEW {table}")
    assert len(dropped(client, table)) == 1
