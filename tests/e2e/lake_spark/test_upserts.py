"""Upserts by real Spark: rows are replaced by key, and only the files that hold such keys are written again."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.parquet import write_table
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

KEYS = {
    "id": "bigint",
    "b": "boolean",
    "i8": "tinyint",
    "d": "double",
    "dec": "decimal(12,3)",
    "s": "string",
    "v": "varchar(10)",
    "c": "char(4)",
    "bin": "binary",
    "day": "date",
    "ts": "timestamp",
    "ntz": "timestamp_ntz",
}


@pytest.fixture(autouse=True)
def show(spark: SparkProcess) -> None:
    """Among the names of snippets: the rows of table ``t``."""
    spark.python(
        "show = lambda **at: [list(row) for row in ls.read(spark, t, server=client, **at).orderBy('id', 'p').collect()]"
    )


@pytest.mark.one_spark
def test_rows_are_replaced_inserted_and_moved_and_other_files_stay(
    server: Client, spark: SparkProcess, table: str
) -> None:
    server.tables.create(table, "id bigint, s string, p string", partitioned_by=["p"])

    first, rows = run(
        spark,
        """
        ten = lambda at: spark.range(10 * at, 10 * at + 10, 1, 1).selectExpr("id", "'old' s", f"'a/b={at // 2}' p")
        for at in range(4):
            ls.append(ten(at), t, server=client)
        new = "values (11L, 'new', 'a/b=0'), (12L, 'new', 'a/b=9'), (99L, 'new', null) as t(id, s, p)"
        commit = ls.upsert(spark.sql("select p, s as S, id from " + new), t, keys=["ID"], server=client)
        result = [commit.version, show()]
        """,
        t=table,
    )

    assert first == 5
    old: list[list[Any]] = [[one, "old", f"a/b={one // 20}"] for one in range(40) if one not in (11, 12)]
    assert rows == sorted([*old, [11, "new", "a/b=0"], [12, "new", "a/b=9"], [99, "new", None]])
    changes = server.changes(table, 4, 5)
    (gone,) = changes.removed
    (again,) = [file for file in changes.added if file.file_group == gone.file_group]
    assert (gone.row_count, again.row_count, again.partition) == (10, 9, gone.partition)
    others = {file.partition: file.row_count for file in changes.added if file is not again}
    assert others == {("a/b=9",): 1, (None,): 1}, "the one that moved, the one that is new"
    assert server.read(table, version=4).num_rows == 40, "the past is as it was"


@pytest.mark.one_spark
def test_with_its_partition_among_the_keys_a_row_is_another_one_elsewhere(
    server: Client, spark: SparkProcess, table: str
) -> None:
    server.tables.create(table, "id bigint, x int, p int", partitioned_by=["p"])

    rows = run(
        spark,
        """
        ls.upsert(spark.range(4).selectExpr("id", "1 x", "cast(id % 2 as int) p"), t, keys=["id", "p"], server=client)
        ls.upsert(spark.sql("select 1L id, 2 x, 1 p union all select 1L, 3, 0"), t, keys=["id", "p"], server=client)
        ls.upsert(spark.sql("select 1L id, 2 x, 1 p where false"), t, keys=["id", "p"], server=client)
        result = show()
        """,
        t=table,
    )

    assert rows == [[0, 1, 0], [1, 3, 0], [1, 2, 1], [2, 1, 0], [3, 1, 1]]
    assert server.snapshot(table).version == 3, "an empty DataFrame is a commit, too"


def test_keys_of_every_type_find_their_rows(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, ", ".join(f"{name} {kind}" for name, kind in KEYS.items()) + ", x int")

    found = run(
        spark,
        """
        df = spark.range(4).selectExpr(
            "id", "id % 2 = 0 as b", "cast(id as tinyint) as i8",
            "case id when 3 then double('NaN') when 0 then -0.0D else id / 8 end as d",
            "cast(id as decimal(12,3)) as dec", "concat(repeat('é', 120), id) as s", "cast(id as string) as v",
            "cast(id as string) as c", "cast(cast(id as string) as binary) bin",
            "date_add(date'9999-12-30', cast(id as int)) as day",
            "timestamp'2020-11-01 05:00:00Z' + make_interval(0,0,0,0,cast(id as int)) as ts",
            "cast('2020-11-01 00:30:00' as timestamp_ntz) + make_interval(0,0,0,0,cast(id as int)) as ntz", "-1 as x")
        df = df.repartitionByRange(4, "id").localCheckpoint()
        ls.append(df, t, server=client)
        again = df.where("id in (0, 3)").withColumn("d", F.expr("d + 0.0D"))
        result = []
        for x in range(0, len(df.columns) - 1, 4):
            keys = df.columns[x:x + 4]
            ls.upsert(again.select(*keys, F.lit(x).alias("x")), t, keys=keys, server=client)
            result.append(client.read(t).column("x").to_pylist().count(x))
        """,
        t=table,
    )

    assert found == [2] * (len(KEYS) // 4), "four of them at once"
    assert server.read(table).num_rows == 4
    assert len(server.changes(table, 1, 2).removed) == 2, "each file held one row"


@pytest.mark.one_spark
def test_columns_that_are_not_given_keep_their_values(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(
        table, "id bigint, a int, st struct<x:int,y:string>, n int NOT NULL, p int", partitioned_by=["p"]
    )

    rows = run(
        spark,
        """
        old = spark.range(3).selectExpr("id", "1 a", "struct(1 as x, 'y' as y) st", "5 n", "0 p")
        ls.append(old, t, server=client)
        new = spark.sql("select * from values (1L, 2, 0, 6), (2L, 2, 7, 6), (3L, 2, 7, 6) as t(id, a, p, n)")
        ls.upsert(new, t, keys="id", server=client)
        result = show()
        """,
        t=table,
    )

    kept = [1, "y"]
    assert rows == [[0, 1, kept, 5, 0], [1, 2, kept, 6, 0], [2, 2, kept, 6, 7], [3, 2, None, 6, 7]]
    for columns, told in (("id, a, n", "column 'p' is missing"), ("id, p", "column 'n' is missing")):
        with pytest.raises(SparkStatementError, match=told):
            run(spark, f"ls.upsert(new.selectExpr(*'{columns}'.split(', ')), t, keys='id', server=client)")
    with pytest.raises(SparkStatementError, match="NOT NULL"):
        run(spark, "ls.upsert(new.withColumn('n', F.expr('nullif(n, 6)')), t, keys='id', server=client)")
    assert server.snapshot(table).version == 2


@pytest.mark.one_spark
def test_what_cannot_be_a_key_is_told_and_nothing_is_committed(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, name string, arr array<int>, n int")

    cases = [
        ("select 1L id, null name union all select 1L, 'a'", "['id', 'name']", r'null, as \{"id":1,"name":null\}'),
        ("select id % 3 id, '' name from range(4)", "'id'", r'several rows with one key, as \{"id":0\}'),
        ("select 1L id, 'a' name", "['id', 'Id']", "names a column twice"),
        ("select 1L id, 'a' name", "[]", "names no column"),
        ("select 1L id, 'a' name", "'naem'", "did you mean 'name'"),
        ("select 1L id", "['id', 'name']", "'name' is a key .* does not have it"),
        ("select array(1) arr", "'arr'", "cannot be a key"),
        ("select 1L id, '2' n", "'id'", "'n' is string; the table has int"),
        ("select 1L id, if(id < 0, 'a', raise_error('boom')) name from range(9)", "'id'", "boom"),
    ]
    for query, keys, told in cases:
        with pytest.raises(SparkStatementError, match=told):
            run(spark, f"ls.upsert(spark.sql(q), t, keys={keys}, server=client)", t=table, q=query)

    assert {one.state for one in server.timeline.instants(table)} == {"rolled_back"}
    assert server.snapshot(table).version == 0


@pytest.mark.one_spark
def test_an_upsert_in_files_of_older_schemas_and_on_a_branch(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id int, s string, p int", partitioned_by=["p"])

    steps = """
        ls.append(spark.sql("select id, concat('s', id) s, 0 p from values 1, 2, 3 as t(id)"), t, server=client)
        client.branches.create(t, "dev")
        client.tables.alter(t, "ALTER COLUMN id TYPE BIGINT; RENAME COLUMN s TO name; ADD COLUMN n INT FIRST")
        new = spark.sql("select 10 n, id, 'x' name, 0 p from values 2L, 5000000000L as t(id)")
        ls.upsert(new, t, keys="id", server=client)
        ls.upsert(spark.sql("select 11 n, 's1' name, 9L id, 0 p"), t, keys="name", branch="dev", server=client)
        result = [show(), show(branch="dev")]
    """
    *_, rows = [run(spark, step, t=table) for step in dedent(steps).strip().splitlines()]

    assert rows == [
        [[None, 1, "s1", 0], [10, 2, "x", 0], [None, 3, "s3", 0], [10, 5_000_000_000, "x", 0]],
        [[None, 2, "s2", 0], [None, 3, "s3", 0], [11, 9, "s1", 0]],
    ]


@pytest.mark.one_spark
def test_a_request_id_upserts_once_and_rows_are_computed_once(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, r double")

    versions, computed, rows, freed = run(
        spark,
        """
        once = spark.sparkContext.accumulator(0)
        def count(rows):
            for row in rows:
                once.add(1)
                yield row
        cached = lambda: spark.sparkContext._jsc.sc().getPersistentRDDs().size()
        before = cached()
        df = spark.createDataFrame(spark.range(50).rdd.mapPartitions(count), "id bigint").selectExpr("id", "rand() r")
        versions = [ls.upsert(df, t, keys="id", request_id=t + "-1", server=client).version for _ in range(2)]
        result = [versions, once.value, ls.read(spark, t, server=client).count(), cached() <= before]
        """,
        t=table,
    )

    assert (versions, computed, rows) == ([1, 1], 50, 50)
    assert freed, "the rows are kept for as long as they are needed"


@pytest.mark.one_spark
def test_upserts_and_other_writers(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, x int, p int", partitioned_by=["p"])

    rows = run(
        spark,
        """
        import lakemark_spark.upserts as upserting
        one = lambda id, x, p: spark.sql(f"select {id}L id, {x} x, {p} p")
        upsert = lambda rows, *keys: ls.upsert(rows, t, keys=keys, server=client)
        def meanwhile(work):
            # After the upsert has read, before it tells what it is going to change.
            real = upserting.files_of
            def then(*args):
                with mock.patch.object(upserting, "files_of", real):
                    work()
                return real(*args)
            return mock.patch.object(upserting, "files_of", then)
        ls.append(spark.range(6).selectExpr("id", "0 x", "cast(id % 2 as int) p"), t, server=client)
        with meanwhile(lambda: upsert(one(1, 2, 1), "id", "p")):
            upsert(one(0, 1, 0), "id", "p")
        result = show()
        """,
        t=table,
    )

    assert rows == [[0, 1, 0], [1, 2, 1], [2, 0, 0], [3, 0, 1], [4, 0, 0], [5, 0, 1]]
    refused = [
        # The same file group; and, where keys are unique over all partitions, an insert into another one.
        ("upsert(one(2, 8, 0), 'id', 'p')", "upsert(one(0, 9, 0), 'id', 'p')", "p=0"),
        ("ls.append(one(77, 8, 5), t, server=client)", "upsert(one(77, 9, 6), 'id')", "p=5"),
    ]
    for first, second, told in refused:
        before = server.snapshot(table).version
        with pytest.raises(SparkStatementError, match=rf"{told}.*policy 'partition'") as refusal:
            run(
                spark,
                f"""
                with meanwhile(lambda: {first}):
                    {second}
                """,
            )
        assert refusal.value.kind == "CommitConflict"
        assert server.snapshot(table).version == before + 1
    assert server.read(table, "x = 9").num_rows == 0

    (base,) = server.plan(table, "p = 0")
    with server.begin(table, "upsert", file_groups=[base.file_group]) as writer:
        row = {"id": [1], "x": pa.array([1], pa.int32()), "p": pa.array([0], pa.int32())}
        given = write_table(pa.table(row), writer).files[0]
        writer.commit([replace(given, kind="delta", file_group=base.file_group, base_instant=1)])
    with pytest.raises(SparkStatementError, match=r"has 1 delta files .* compact their file groups first"):
        run(spark, "upsert(one(1, 0, 0), 'id')")
    run(spark, "upsert(one(1, 3, 1), 'id', 'p')")
    assert server.read(table, "p = 1 and x = 3").num_rows == 1, "deltas of other partitions are in nobody's way"


@pytest.mark.one_spark
def test_upserts_of_two_threads_under_the_policy_file_group(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, x int", properties={"lakemark.conflict.policy": "file_group"})

    outcomes = run(
        spark,
        """
        from concurrent.futures import ThreadPoolExecutor
        for at in range(4):
            ls.append(spark.range(10 * at, 10 * at + 10, 1, 1).selectExpr("id", "0 x"), t, server=client)
        def write(x):
            done = []
            for step in range(3):
                at = 10 * (3 if step % 2 else x) + step
                try:
                    ls.upsert(spark.range(at, at + 1).selectExpr("id", f"{x} x"), t, keys="id", server=client)
                    done.append([at, x])
                except lakemark.CommitConflict as error:
                    assert error.details["file_groups"], error
            return done
        with ThreadPoolExecutor(2) as pool:
            result = list(pool.map(write, [1, 2]))
        """,
        t=table,
    )

    committed = {(at, x) for done in outcomes for at, x in done}
    assert committed >= {(10, 1), (12, 1), (20, 2), (22, 2)}, "different file groups never exclude each other"
    rows = {row["id"]: row["x"] for row in server.read(table).to_pylist()}
    assert len(rows) == 40, "no key came twice, none was lost"
    changed = {(at, x) for at, x in rows.items() if x}
    assert changed <= committed
    assert {at for at, _ in changed} == {at for at, _ in committed}
