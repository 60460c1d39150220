"""Plain Spark inserts into lake tables by SQL alone."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from lakemark import Client
from lakemark_server.process import Service
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

LAKE = "TBLPROPERTIES ('lakemark.type'='lake')"

_AT_ONCE = """
import threading

failed = []

def one(number):
    try:
        spark.sql(f"INSERT INTO doors.{table}__append SELECT {{number}}, 'at once'")
    except Exception as error:
        failed.append(str(error))

threads = [threading.Thread(target=one, args=(number,)) for number in range(100, 108)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
result = failed
"""


@pytest.fixture
def name(client: Client, spark_version: str) -> str:
    client.databases.create("doors", if_not_exists=True)
    return f"t{spark_version.replace('.', '')}"


def refused(spark: SparkProcess, statement: str) -> str:
    with pytest.raises(SparkStatementError) as error:
        spark.sql(statement)
    return str(error.value)


def test_a_table_without_partitions(client: Client, spark: SparkProcess, name: str) -> None:
    table = f"doors.{name}"
    spark.sql(f"CREATE TABLE {table} (Id INT, name STRING) USING parquet {LAKE}")
    spark.sql(f"INSERT INTO {table}__append VALUES (1, 'a'), (2, NULL)")
    spark.sql(f"INSERT INTO {table}__append (name, id) SELECT name, id + 2 FROM {table}")
    assert spark.sql(f"SELECT id, name FROM {table} ORDER BY id") == [(1, "a"), (2, None), (3, "a"), (4, None)]
    assert spark.sql(f"SELECT count(*) FROM doors.`{name}@v1`") == [(2,)]
    assert [one.metadata["door"] for one in client.timeline.versions(table)] == ["append", "append"]
    assert "use doors." in refused(spark, f"INSERT OVERWRITE {table}__append VALUES (9, 'x')")
    spark.sql(f"INSERT OVERWRITE {table}__overwrite VALUES (8, 'x')")
    spark.sql(f"INSERT INTO {table}__overwrite VALUES (9, 'x')")
    assert spark.sql(f"SELECT id FROM {table}") == [(9,)]
    spark.sql(f"INSERT INTO {table}__append SELECT 1, 'none' WHERE false")
    spark.python(f"spark.range(1).selectExpr('10', 'id').write.insertInto('{table}__append'); result = 1")
    assert spark.sql(f"SELECT id FROM {table} ORDER BY id") == [(9,), (10,)]
    assert spark.sql(f"SELECT * FROM {table}__append") == []
    assert [row[1] for row in spark.sql("SHOW TABLES IN doors")].count(name) == 1

    assert spark.python(_AT_ONCE.format(table=name)) == []
    rows = spark.sql(f"SELECT count(*), count(DISTINCT id) FROM {table} WHERE name = 'at once'")
    assert rows == [(8, 8)]


def test_partitions_and_types(client: Client, spark: SparkProcess, name: str) -> None:
    table = f"doors.p{name}"
    spark.sql(
        f"CREATE TABLE {table} (id INT NOT NULL, at TIMESTAMP, d DECIMAL(8,2), s STRUCT<a: INT, b: ARRAY<STRING>>, "
        f"c VARCHAR(4), Day DATE, H TIMESTAMP) USING parquet PARTITIONED BY (Day, H) {LAKE}"
    )
    at, day = dt.datetime(2026, 1, 1, 10, 0, 0, 500_000), dt.date(2026, 1, 1)
    values = "1, TIMESTAMP'2026-01-01 10:00:00.5', 1.5, named_struct('a', 1, 'b', array('x', NULL)), 'abcd'"
    spark.sql("SET spark.sql.session.timeZone=Asia/Tokyo")
    spark.sql("SET mapreduce.fileoutputcommitter.marksuccessfuljobs=false")
    try:
        hour = "TIMESTAMP'2026-01-01 10:00:00.5Z'"
        spark.sql(f"INSERT INTO {table}__append SELECT {values.replace('.5', '.5Z', 1)}, DATE'2026-01-01', {hour}")
    finally:
        spark.sql("SET spark.sql.session.timeZone=UTC")
        spark.sql("SET mapreduce.fileoutputcommitter.marksuccessfuljobs=true")
    spark.sql(f"INSERT INTO {table}__append PARTITION (day = DATE'2026-01-02', h) SELECT {values}, NULL")
    spark.sql(f"INSERT INTO {table}__append PARTITION (day = '2026-01-03', h = '2026-01-01 10:00:00') SELECT {values}")
    row = (1, at, Decimal("1.50"), [1, ["x", None]], "abcd")
    assert spark.sql(f"SELECT * FROM {table} ORDER BY day") == [
        (*row, day, at),
        (*row, dt.date(2026, 1, 2), None),
        (*row, dt.date(2026, 1, 3), dt.datetime(2026, 1, 1, 10)),
    ]
    versions = len(list(client.timeline.versions(table)))
    for mode in ("static", "dynamic"):
        spark.sql(f"SET spark.sql.sources.partitionOverwriteMode={mode}")
        for verb in ("INTO", "OVERWRITE"):
            spark.sql(f"INSERT {verb} {table}__overwrite SELECT id + 1, at, d, s, c, day, h FROM {table} WHERE d < 2")
        assert "this was an INSERT OVERWRITE" in refused(spark, f"INSERT OVERWRITE {table}__append TABLE {table}")
    spark.sql("SET spark.sql.sources.partitionOverwriteMode=static")
    assert spark.sql(f"SELECT id FROM {table}") == [(5,)] * 3
    assert len(list(client.timeline.versions(table))) == versions + 4

    spark.sql("SET spark.sql.statistics.size.autoUpdate.enabled=true")
    try:
        spark.sql(f"INSERT INTO {table}__append SELECT * FROM {table} LIMIT 1")
    finally:
        spark.sql("SET spark.sql.statistics.size.autoUpdate.enabled=false")
    spark.sql(f"INSERT INTO {table}__append SELECT * FROM {table} WHERE false")
    assert spark.sql(f"SELECT count(*) FROM {table}") == [(4,)]


def test_hives_own_writer_and_other_changes_are_refused(client: Client, spark: SparkProcess, name: str) -> None:
    table = f"doors.h{name}"
    client.tables.create(table, "id int")
    client.tables.create(f"doors.hp{name}", "id int, m int", partitioned_by=["m"])
    spark.sql("SET spark.sql.hive.convertMetastoreParquet=false")
    try:
        assert "convertMetastoreParquet must be true" in refused(spark, f"INSERT INTO {table}__append VALUES (1)")
        refused(spark, f"INSERT INTO doors.hp{name}__append VALUES (1, 2)")
    finally:
        spark.sql("SET spark.sql.hive.convertMetastoreParquet=true")
    for statement in (
        f"ANALYZE TABLE {table}__append COMPUTE STATISTICS",
        f"ALTER TABLE {table}__append ADD COLUMNS (x INT)",
        f"ALTER TABLE {table}__append SET TBLPROPERTIES ('a'='b')",
        f"DROP TABLE {table}__append",
    ):
        assert "is a door into lake table" in refused(spark, statement)
    assert spark.sql(f"SELECT * FROM {table}") == []
    assert spark.sql(f"SELECT * FROM doors.hp{name}") == []
    spark.sql(f"INSERT INTO {table}__append VALUES (2)")
    assert spark.sql(f"SELECT * FROM {table}") == [(2,)]


def test_changes_by_key(client: Client, spark: SparkProcess, service: Service, name: str) -> None:
    """Written through doors, and read by plain Spark, by the reader of PySpark and in memory."""
    table = f"doors.k{name}"
    spark.sql(
        f"CREATE TABLE {table} (Id BIGINT, code CHAR(3), state STRING, at TIMESTAMP, price DECIMAL(8,2), day DATE) "
        "USING parquet PARTITIONED BY (day) TBLPROPERTIES ('lakemark.type'='lake', "
        "'lakemark.primary-key'='id,code,day', 'lakemark.bucket.count'='4', 'lakemark.write.mode'='merge-on-read', "
        "'lakemark.merge.ordering-column'='at')"
    )
    at, day = "TIMESTAMP'2026-01-01 08:00:00'", "DATE'1500-01-01'"
    spark.sql(
        f"INSERT INTO {table}__upsert SELECT id, 'a', 'new', {at}, id / 4, date_add({day}, CAST(id % 2 AS INT)) "
        "FROM range(40)"
    )
    later = f"{at} + make_dt_interval(0, 1)"
    spark.sql(f"INSERT INTO {table}__upsert PARTITION (day = {day}) SELECT 2, 'a', 'paid', {later}, 9.5")
    spark.sql(f"INSERT INTO {table}__upsert VALUES (2, 'a', 'late', {at}, 1, {day}), (7, 'ab', NULL, {at}, 1, {day})")
    spark.sql(f"INSERT INTO {table}__delete SELECT id, code, {later}, day FROM {table} WHERE id BETWEEN 10 AND 19")
    assert "several rows with one key" in refused(
        spark, f"INSERT INTO {table}__upsert SELECT 1, 'a', 'x', {at}, 1, {day} FROM range(2)"
    )
    assert f"use {table}__upsert" in refused(spark, f"INSERT INTO {table}__append TABLE {table}")

    expected = {(number, "a  "): "new" for number in range(40) if number not in range(10, 20)}
    expected |= {(2, "a  "): "paid", (7, "ab "): None}
    query = f"SELECT id, code, state FROM {table}"
    assert dict(map(_pair, spark.sql(query))) == expected
    read = "import lakemark_spark; rows = lakemark_spark.read(spark, {!r}, server={!r}).collect(); "
    result = "result = [(row.Id, row.code, row.state) for row in rows]"
    assert dict(map(_pair, spark.python(read.format(table, service.grpc_address) + result))) == expected
    in_memory = [(row["Id"], row["code"], row["state"]) for row in client.read(table).to_pylist()]
    assert dict(map(_pair, in_memory)) == expected
    assert spark.sql(f"SELECT count(*) FROM doors.`k{name}@v1`") == [(40,)]
    buckets = {(file.partition, file.bucket) for file in client.plan(table, "id = 7 AND code = 'ab '").files()}
    (number,) = spark.sql("SELECT pmod(hash(7L, 'ab '), 4)")[0]
    assert {bucket for _, bucket in buckets} >= {number}
    where = f"id = 7 AND day = {day}"
    spark.sql(f"INSERT INTO {table}__overwrite SELECT * FROM {table} WHERE {where}")
    assert spark.sql(f"SELECT id, code, price FROM {table} WHERE day = {day}") == [(7, "ab ", Decimal("1.00"))]


def _pair(row: tuple[int, str, str | None]) -> tuple[tuple[int, str], str | None]:
    number, code, state = row
    return (number, code), state
