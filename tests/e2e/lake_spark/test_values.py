"""Values of all types, of partitions and in predicates: as they are written they are read."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from lakemark import Client
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess

pytestmark = pytest.mark.spark

SPECIAL = ["a/b", "x=y", "100%", "a%2Fb", "q?u#e&r", "[s]{t}*", "é ü", 'it\'s "q"', "back\\slash", "tab\tend", None]


ALL_TYPES = """
    id bigint, b boolean, i8 tinyint, i16 smallint, i32 int, f float, d double, dec decimal(12,3), s string,
    v varchar(10), bin binary, day date, ts timestamp, ntz timestamp_ntz, st struct<a:int,b:string>,
    arr array<int>, m map<string,int>, part int
"""


def test_all_types_come_back_and_have_statistics(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, ALL_TYPES, partitioned_by=["part"])

    written, back = run(
        spark,
        """
        df = spark.range(0, 40, 1, 4).selectExpr(
            "id", "id % 2 = 0 as b", "cast(id as tinyint) as i8", "cast(id as smallint) as i16",
            "cast(id as int) as i32", "cast(id / 4 as float) as f", "if(id = 7, double('NaN'), id / 8) as d",
            "cast(id as decimal(10,2)) as dec", "if(id % 5 = 0, null, concat('s', id)) as s", "cast(id as string) as v",
            "cast(cast(id as string) as binary) bin", "date_add(date'2020-01-01', cast(id as int)) as day",
            "timestamp'2020-01-01 00:00:00Z' + make_interval(0,0,0,0,cast(id as int)) as ts",
            "cast('2020-01-01 00:00:00' as timestamp_ntz) as ntz", "named_struct('a', cast(id as int), 'b', 'x') as st",
            "array(cast(id as int), null) as arr", "map('k', cast(id as int)) as m", "cast(id % 3 as int) as part")
        commit = ls.append(df, t, server=client)
        want = df.withColumn("dec", F.col("dec").cast("decimal(12,3)"))
        got = ls.read(spark, t, server=client)
        show = lambda rows: sorted(map(repr, rows.collect()))
        result = [show(want.select(got.columns)), show(got)]
        """,
        t=table,
    )

    assert written == back
    plan = server.plan(table, statistics=["id", "ts", "ntz", "d", "f", "day", "dec", "s"])
    names = {field.id: field.name for field in plan.schema.columns}
    (first,) = [file for file in plan if file.partition == (0,)]
    known = {names[one.column_id]: one for one in first.statistics}
    assert (known["id"].min, known["id"].max, known["id"].null_count) == (0, 39, 0)
    assert known["dec"].max == Decimal("39.000")
    assert known["day"].min == dt.date(2020, 1, 1)
    assert known["ts"].max == dt.datetime(2020, 1, 2, 15, tzinfo=dt.UTC)
    assert known["ntz"].min == dt.datetime(2020, 1, 1)
    assert known["s"].null_count == 3
    assert known["f"].nan_count == 0
    (second,) = [file for file in plan if file.partition == (1,)]
    assert {names[one.column_id]: one for one in second.statistics}["d"].nan_count is None, "it has a NaN"


@pytest.mark.one_spark
@pytest.mark.parametrize("union_max", [50, 5], ids=["union of partitions", "look-up by path"])
def test_special_and_null_partition_values(server: Client, spark: SparkProcess, table: str, union_max: int) -> None:
    server.tables.create(
        table,
        "id bigint, p string, day date, at timestamp, amount decimal(6,2), flag boolean",
        partitioned_by=["p", "day", "at", "amount", "flag"],
    )

    want, got, filtered = run(
        spark,
        """
        rows = [(i, text, dt.date(2020, 2, 1 + i % 3) if i % 4 else None,
                 dt.datetime(2020, 7, 1, 12, 30, i, tzinfo=dt.timezone.utc) if i % 5 else None,
                 Decimal(i) / 4 if i % 3 else None, bool(i % 2))
                for i, text in enumerate(special)]
        types = "id bigint, p string, day date, at timestamp, amount decimal(6,2), flag boolean"
        df = spark.createDataFrame(rows, types)
        ls.append(df, t, server=client)
        show = lambda rows: sorted(map(repr, rows.collect()))
        where = "at = timestamp'2020-07-01 12:30:02Z' or p is null"
        with mock.patch.object(lakemark_spark.reader, "UNION_MAX", union_max):
            got, filtered = ls.read(spark, t, server=client), ls.read(spark, t, where, server=client)
        result = [show(df), show(got), [show(df.where(where)), show(filtered)]]
        """,
        t=table,
        special=SPECIAL,
        union_max=union_max,
    )

    assert want == got
    assert filtered[0] == filtered[1] != []


@pytest.mark.one_spark
def test_the_text_of_null_partitions_is_null(server: Client, spark: SparkProcess, table: str) -> None:
    """Else its rows would go into another file, of the same path."""
    server.tables.create(table, "id bigint, p string", partitioned_by=["p"])

    rows = run(
        spark,
        """
        texts = [None, "__HIVE_DEFAULT_PARTITION__", "", "a", "__HIVE_DEFAULT_PARTITION__"]
        ls.append(spark.createDataFrame(list(enumerate(texts)), "id bigint, p string").coalesce(1), t, server=client)
        result = sorted(map(list, ls.read(spark, t, server=client).collect()))
        """,
        t=table,
    )

    assert rows == [[0, None], [1, None], [2, None], [3, "a"], [4, None]]


def test_partitions_are_read_off_paths_in_one_scan(server: Client, spark: SparkProcess, table: str) -> None:
    """Where a text says the same to Spark whatever its session: one scan, and no constants put in."""
    server.tables.create(table, "id bigint, p string, day date, n int, m bigint", partitioned_by=["p", "day", "n", "m"])

    want, got, filtered, scans = run(
        spark,
        """
        day = lambda i: dt.date(1 + 2000 * (i % 2), 1, 1 + i) if i % 4 else None
        rows = [(i, text, day(i), i - 2 if i % 3 else None, -(2**62) + i)
                for i, text in enumerate([*special, "007", "1e3", "2026-01-01"])]
        df = spark.createDataFrame(rows, "id bigint, p string, day date, n int, m bigint")
        ls.append(df, t, server=client)
        show = lambda rows: sorted(map(repr, rows.collect()))
        got, where = ls.read(spark, t, server=client), "p = '007' or day = date'2001-01-02' or n is null"
        plan = got._jdf.queryExecution().optimizedPlan().collectLeaves().size()
        result = [show(df), show(got), [show(df.where(where)), show(ls.read(spark, t, where, server=client))], plan]
        """,
        t=table,
        special=SPECIAL,
    )

    assert want == got
    assert filtered[0] == filtered[1] != []
    assert scans == 1


@pytest.mark.one_spark
def test_each_file_is_listed_once(server: Client, spark: SparkProcess, table: str) -> None:
    """Although its path has characters that mean something in patterns. Spark lists more than 32 paths by a job."""
    server.tables.create(table, "id bigint")
    for at in range(8):
        with server.begin(table, "append") as writer:
            writer.write(pa.table({"id": [at]}))
            writer.commit()

    jobs, rows = run(
        spark,
        """
        spark.sparkContext.setJobGroup(t, "what is listed")
        read = ls.read(spark, t, server=client)
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(t)
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        result = [list(jobs), sorted(row.id for row in read.collect())]
        """,
        t=table,
    )

    assert jobs == []
    assert rows == list(range(8))


@pytest.mark.one_spark
def test_predicates_prune_and_filter_exactly(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, x double, at timestamp, p int", partitioned_by=["p"])
    run(
        spark,
        """
        df = spark.range(0, 1000, 1, 4).selectExpr("id", "if(id = 500, double('NaN'), id / 10) as x",
            "timestamp'2020-01-01 00:00:00Z' + make_interval(0,0,0,0,cast(id as int)) as at",
            "cast(id div 100 as int) as p")
        ls.append(df, t, server=client)
        """,
        t=table,
    )

    cases = [
        "id >= 250 and id < 260",
        "x > 99",
        "not (x <= 99)",
        "p = 3 and id % 7 = 0",
        "id in (1, 999) or p is null",
        "abs(x) < 1",
        "at <= timestamp'2020-01-01 03:00:00Z'",
    ]
    for where in cases:
        want, got = run(
            spark,
            """
            ids = lambda rows: sorted(row.id for row in rows.select("id").collect())
            result = [ids(df.where(where)), ids(ls.read(spark, t, where, columns=["id"], server=client))]
            """,
            where=where,
        )
        assert want == got != [], where
    assert server.plan(table, "id >= 250 and id < 260").summary.files_planned == 1
    assert run(spark, "result = ls.read(spark, t, 'id > 5000', server=client).collect()") == []
    # Texts are in UTC for the plan and for what is left to filter, whatever the zone of the session.
    assert run(spark, "result = ls.read(spark, t, \"at < '2020-01-01 02:00:00'\", server=client).count()") == 2
