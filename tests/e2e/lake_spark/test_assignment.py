"""Rows are cast as Spark's own INSERT casts them: it is the oracle."""

from __future__ import annotations

import pytest

from lakemark import Client
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

FITS = [
    ("1.5", "double"),
    ("1.5", "float"),
    ("2.7D", "int"),
    ("-2.7", "bigint"),
    ("300", "smallint"),
    ("127L", "tinyint"),
    ("1.005", "decimal(8,2)"),
    ("1.005", "decimal(38,18)"),
    ("7", "decimal(3,1)"),
    ("1e2D", "decimal(8,2)"),
    ("9007199254740993L", "double"),
    ("1e300D", "float"),
    ("double('NaN')", "float"),
    ("NULL", "int"),
    ("CAST(NULL AS bigint)", "tinyint"),
    ("CAST(NULL AS bigint)", "varchar(2)"),
    ("12", "string"),
    ("true", "string"),
    ("1.50", "varchar(4)"),
    ("'ab   '", "varchar(3)"),
    ("'ab   '", "char(3)"),
    ("5", "char(3)"),
    ("date'2026-11-22'", "string"),
    ("X'6162'", "string"),
    ("timestamp'2026-11-22 23:30:00'", "date"),
    ("date'2026-11-22'", "timestamp"),
    ("timestamp_ntz'2026-11-22 01:02:03'", "timestamp"),
    ("array(1L, NULL)", "array<int>"),
    ("array(1.25)", "array<varchar(4)>"),
    ("map(1L, 2.7D)", "map<int,int>"),
    ("CAST(NULL AS map<bigint,bigint>)", "map<int,int>"),
    ("named_struct('a', 1L, 'b', array(named_struct('c', 1.5)))", "struct<a:int,b:array<struct<c:double>>>"),
    ("CAST(NULL AS struct<a:bigint>)", "struct<a:int>"),
]

# What INSERT fails on when it meets the value, and what it refuses for its type.
DOES_NOT_FIT = [
    ("300", "tinyint", "'c' does not fit into tinyint: 300"),
    ("3000000000L", "int", "does not fit into int: 3000000000"),
    ("double('NaN')", "int", "does not fit into int: NaN"),
    ("1e10D", "int", "does not fit into int"),
    ("123.45", "decimal(4,2)", r"does not fit into decimal\(4,2\): 123.45"),
    ("'abcd'", "varchar(3)", r"longer than varchar\(3\): abcd"),
    ("1234", "char(3)", r"longer than char\(3\): 1234"),
    ("array(3000000000L)", "array<int>", "'c.element' does not fit into int"),
    ("map(1, 300)", "map<int,tinyint>", "'c.value' does not fit into tinyint"),
]
REFUSED = [
    ("'7'", "int"),
    ("'2026-11-22'", "date"),
    ("'true'", "boolean"),
    ("1", "boolean"),
    ("true", "int"),
    ("1", "timestamp"),
    ("timestamp'2026-11-22 00:00:00'", "bigint"),
    ("array('7')", "array<int>"),
    ("X'61'", "int"),
]


def test_values_become_what_an_insert_makes_of_them(server: Client, spark: SparkProcess, table: str) -> None:
    columns = ", ".join(f"c{at} {column_type}" for at, (_, column_type) in enumerate(FITS))
    server.tables.create(table, columns)
    values = ", ".join(f"{value} AS c{at}" for at, (value, _) in enumerate(FITS))

    ours, theirs = run(
        spark,
        """
        oracle = t.replace(".", "_")
        spark.sql(f"create table {oracle} ({columns}) using parquet")
        spark.sql(f"insert into {oracle} select {values}")
        ls.append(spark.sql(f"select {values}"), t, server=client)
        as_text = lambda rows: [str(row) for row in rows.collect()]
        result = [as_text(ls.read(spark, t, server=client)), as_text(spark.table(oracle))]
        spark.sql(f"drop table {oracle}")
        """,
        t=table,
        columns=columns,
        values=values,
    )

    assert ours == theirs


def test_what_an_insert_does_not_take_is_told(server: Client, spark: SparkProcess, table: str) -> None:
    # One column for each type, all nullable.
    types = list(dict.fromkeys([one[1] for one in DOES_NOT_FIT] + [one[1] for one in REFUSED]))
    for at, column_type in enumerate(types):
        server.tables.create(f"{table}_{at}", f"c {column_type}")
    cases = [*DOES_NOT_FIT, *((value, wanted, "cast it yourself|'c.element' is string") for value, wanted in REFUSED)]

    for value, column_type, told in cases:
        at = types.index(column_type)
        write = f"ls.append(spark.sql(q), '{table}_{at}', server=client)"
        with pytest.raises(SparkStatementError, match=told):
            run(spark, write, q=f"select {value} as c")
        oracle = f"{table.replace('.', '_')}_{at}"
        spark.sql(f"create table if not exists {oracle} (c {column_type}) using parquet")
        with pytest.raises(SparkStatementError):
            spark.sql(f"insert into {oracle} select {value}")

    assert all(server.snapshot(f"{table}_{at}").version == 0 for at in range(len(types)))
