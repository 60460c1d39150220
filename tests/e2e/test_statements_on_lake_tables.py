"""What each statement of Spark SQL does to a lake table, as docs/lake-tables.md says: most are refused, none wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from lakemark import Client
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

PAGE: Final = Path(__file__).parents[2] / "docs" / "lake-tables.md"
LAKE: Final = "TBLPROPERTIES ('lakemark.type'='lake')"

REFUSED: Final = {
    "INSERT INTO t": "INSERT INTO {t} VALUES (9, 1)",
    "INSERT OVERWRITE t": "INSERT OVERWRITE {t} VALUES (9, 1)",
    "DELETE FROM t": "DELETE FROM {t} WHERE id = 1",
    "UPDATE t": "UPDATE {t} SET id = 9",
    "MERGE INTO t": "MERGE INTO {t} USING {t} AS s ON {t}.id = s.id WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE t": "TRUNCATE TABLE {t}",
    "LOAD DATA … INTO TABLE t": "LOAD DATA INPATH '/nowhere' INTO TABLE {t}",
    "ALTER TABLE t ADD COLUMNS": "ALTER TABLE {t} ADD COLUMNS (x INT)",
    "CHANGE COLUMN": "ALTER TABLE {t} CHANGE COLUMN id id BIGINT",
    "ALTER TABLE t SET TBLPROPERTIES": "ALTER TABLE {t} SET TBLPROPERTIES ('a'='b')",
    "RENAME TO": "ALTER TABLE {t} RENAME TO {t}2",
    "ALTER TABLE t ADD PARTITION": "ALTER TABLE {t} ADD PARTITION (m = 7)",
    "RECOVER PARTITIONS": "ALTER TABLE {t} RECOVER PARTITIONS",
    "SET LOCATION": "ALTER TABLE {t} SET LOCATION '/nowhere'",
    "MSCK REPAIR TABLE t": "MSCK REPAIR TABLE {t}",
    "COMMENT ON TABLE t": "COMMENT ON TABLE {t} IS 'x'",
    "ANALYZE TABLE t COMPUTE STATISTICS": "ANALYZE TABLE {t} COMPUTE STATISTICS",
    "SHOW PARTITIONS t": "SHOW PARTITIONS {t}",
    "REPLACE TABLE t": "REPLACE TABLE {t} (id INT) USING parquet",
    "CREATE OR REPLACE TABLE t": "CREATE OR REPLACE TABLE {t} (id INT) USING parquet",
    "CREATE TABLE t … AS SELECT": "CREATE TABLE {t}new USING parquet " + LAKE + " AS SELECT * FROM {t}",
}
REFUSED_IN_PYTHON: Final = {
    "insertInto": "spark.table({t!r}).write.insertInto({t!r})",
    "saveAsTable": "spark.table({t!r}).write.mode('append').saveAsTable({t!r})",
    'writeTo("t").append()': "spark.table({t!r}).writeTo({t!r}).append()",
}
WORKS: Final = {
    "REFRESH TABLE t": "REFRESH TABLE {t}",
    "CACHE TABLE t": "CACHE TABLE {t}",
    "UNCACHE TABLE t": "UNCACHE TABLE {t}",
    "SHOW CREATE TABLE t": "SHOW CREATE TABLE {t}",
    "DESCRIBE t": "DESCRIBE EXTENDED {t}",
    "SHOW TBLPROPERTIES t": "SHOW TBLPROPERTIES {t}",
    "SHOW COLUMNS IN t": "SHOW COLUMNS IN {t}",
    "EXPLAIN": "EXPLAIN SELECT * FROM {t}",
    "TABLE t": "TABLE {t}",
}
ELSEWHERE: Final = {"append", "CREATE TABLE u LIKE t", "lakemark.type", "DROP VIEW t", "DROP TABLE t"}
"""What the other tests have, and words that are no statements."""


def test_the_page_has_all_of_them() -> None:
    _, _, section = PAGE.read_text().partition("### What every other statement does")
    rows = re.findall(r"^\| (.*?) \|", section.partition("\n### ")[0], re.MULTILINE)[1:]
    named = {text for row in rows for text in re.findall(r"`([^`]+)`", row)}
    assert named == {*REFUSED, *REFUSED_IN_PYTHON, *WORKS, *ELSEWHERE}


@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_what_is_refused_changes_nothing(
    client: Client, spark: SparkProcess, spark_version: str, partitioned: bool
) -> None:
    client.databases.create("statements", if_not_exists=True)
    table = f"statements.t{spark_version.replace('.', '')}{'p' if partitioned else ''}"
    client.tables.create(table, "id int, m int", partitioned_by=["m"] if partitioned else [])
    spark.sql(f"INSERT INTO {table}__append VALUES (1, 1), (2, 2)")
    for statement in REFUSED.values():
        with pytest.raises(SparkStatementError):
            spark.sql(statement.format(t=table))
    for code in REFUSED_IN_PYTHON.values():
        with pytest.raises(SparkStatementError):
            spark.python(f"{code.format(t=table)}; result = None")
    for statement in WORKS.values():
        spark.sql(statement.format(t=table))
    assert sorted(spark.sql(f"SELECT id, m FROM {table}")) == [(1, 1), (2, 2)]
    assert len(client.timeline.versions(table)) == 1
    names = [row[1] for row in spark.sql("SHOW TABLES IN statements")]
    assert not {name for name in names if name.endswith(("new", "2"))}


def test_what_the_page_names_instead(client: Client, spark: SparkProcess, spark_version: str) -> None:
    client.databases.create("statements", if_not_exists=True)
    table = f"statements.w{spark_version.replace('.', '')}"
    spark.sql(f"CREATE TABLE {table} (id INT) USING parquet {LAKE}")
    spark.sql(f"INSERT INTO {table}__append VALUES (1), (2)")
    spark.sql(f"ALTER VIEW {table} SET TBLPROPERTIES ('a'='b')")
    spark.sql(f"ALTER VIEW {table} RENAME TO {table}x")
    assert spark.sql(f"SELECT count(*) FROM {table}x") == [(2,)]
    spark.sql(f"ALTER VIEW {table}x RENAME TO {table}")
    assert ("a", "b") in spark.sql(f"SHOW TBLPROPERTIES {table}")
    spark.sql(f"CREATE TABLE {table}like LIKE {table}")
    assert spark.sql(f"SELECT * FROM {table}like") == []
    database, name = table.split(".")
    assert len(spark.sql(f"SHOW PARTITIONS {database}.`{name}@v1@files`")) == len(client.plan(table).paths)
    spark.sql(f"INSERT INTO {table}__overwrite SELECT * FROM {table} WHERE false")
    assert spark.sql(f"SELECT * FROM {table}") == []
    assert spark.sql(f"SELECT count(*) FROM {database}.`{name}@v1`") == [(2,)]
    spark.sql(f"DROP VIEW {table}")
    client.tables.undrop(table)
    assert spark.sql(f"SELECT * FROM {table}") == []
    spark.sql(f"DROP TABLE {table}like")
