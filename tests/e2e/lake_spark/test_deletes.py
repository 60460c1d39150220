"""Deletes by real Spark: what goes by metadata, what is written again, and who else writes meanwhile."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.parquet import write_table
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = [pytest.mark.spark, pytest.mark.one_spark]


def test_a_delete_takes_out_what_matches_and_rewrites_only_what_it_must(
    server: Client, spark: SparkProcess, table: str
) -> None:
    server.tables.create(table, "id bigint, x double, s string, at timestamp, p string", partitioned_by=["p"])

    run(
        spark,
        """
        df = spark.range(0, 120, 1, 1).selectExpr("id",
            "if(id % 10 = 3, double('NaN'), if(id % 10 = 4, null, id / 2)) x",
            "if(id % 6 = 0, null, concat('s', id)) s",
            "timestamp'2020-01-01 00:00:00Z' + make_interval(0,0,0,0,cast(id as int)) at",
            "concat('a/b=', id div 30) p").union(spark.sql("select 500, 1.5, 's', null, null")).localCheckpoint()
        ls.append(df, t, server=client)
        """,
        t=table,
    )
    for where in ("p = 'a/b=1'", "id in (7, 8, 500)", "x > 58", "abs(id) > 115 or s is null", "id between 60 and 89"):
        want, got = run(
            spark,
            """
            df = df.where(f"not coalesce({where}, false)")
            ls.delete(spark, t, where, server=client)
            result = [sorted(map(repr, rows.collect())) for rows in (df, ls.read(spark, t, server=client))]
            """,
            where=where,
        )
        assert got == want, where
    assert run(spark, "result = ls.delete(spark, t, 'id % 7 = 8', server=client)") is None

    assert server.snapshot(table).version == 6, "a delete of nothing is no version"
    first, second = server.changes(table, 1, 2), server.changes(table, 2, 3)
    assert (len(first.added), len(first.removed)) == (0, 1), "a whole partition: by metadata alone"
    assert len(second.removed) == 2, "of file 0..29 two rows are gone, of that of 500 all"
    (rewritten,) = second.added
    (before,) = [file for file in second.removed if file.row_count == 30]
    assert (rewritten.row_count, rewritten.file_group, rewritten.partition) == (28, before.file_group, before.partition)
    assert server.read(table, version=1).num_rows == 121, "the past is as it was"
    assert server.timeline.instants(table, newest_first=True)[0].rolled_back_reason == "no row matches the condition"


def test_a_delete_in_files_of_older_schemas_and_on_a_branch(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id int, s string")

    steps = """
        ls.append(spark.sql("select id, concat('s', id) s from values 1, 2, 3 as t(id)"), t, server=client)
        client.branches.create(t, "dev")
        client.tables.alter(t, "ALTER COLUMN id TYPE BIGINT; RENAME COLUMN s TO name; ADD COLUMN n INT FIRST")
        ls.append(spark.sql("select 10 n, 4L id, 'x' name"), t, server=client)
        ls.delete(spark, t, "name = 's2' or n = 10", server=client)
        ls.delete(spark, t, "s = 's1'", branch="dev", server=client)
        show = lambda **at: [list(row) for row in ls.read(spark, t, server=client, **at).orderBy("id").collect()]
        result = [show(), show(branch="dev")]
    """
    *_, rows = [run(spark, step, t=table) for step in dedent(steps).strip().splitlines()]

    assert rows == [[[None, 1, "s1"], [None, 3, "s3"]], [[None, 2, "s2"], [None, 3, "s3"]]]


def test_deletes_and_other_writers(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, p int", partitioned_by=["p"])

    survivors = run(
        spark,
        """
        import lakemark_spark.deletes as deleting
        one = lambda p: spark.sql(f"select 1L id, {p} p")
        def meanwhile(work):
            # After the delete has read, before it commits.
            real = deleting._without_matches
            def then(*args):
                work()
                return real(*args)
            return mock.patch.object(deleting, "_without_matches", then)
        ls.append(spark.range(6).selectExpr("id", "cast(id % 2 as int) p"), t, server=client)
        with meanwhile(lambda: ls.append(one(1), t, server=client)):
            ls.delete(spark, t, "p = 0 and id > 1", server=client)
        result = [list(row) for row in ls.read(spark, t, server=client).orderBy("p", "id").collect()]
        """,
        t=table,
    )

    assert survivors == [[0, 0], [1, 1], [1, 1], [3, 1], [5, 1]]
    with pytest.raises(SparkStatementError, match=r"p=0.*policy 'partition'|policy 'partition'.*p=0") as refusal:
        run(
            spark,
            """
            with meanwhile(lambda: ls.append(one(0), t, server=client)):
                ls.delete(spark, t, "id = 0", server=client)
            """,
        )
    assert refusal.value.kind == "CommitConflict"
    assert server.read(table, "p = 0").num_rows == 2
    server.tables.set_properties(table, {"lakemark.conflict.policy": "file_group"})
    run(
        spark,
        """
        with meanwhile(lambda: ls.append(one(0), t, server=client)):
            ls.delete(spark, t, "p = 0", server=client)
        """,
    )
    assert server.read(table, "p = 0").num_rows == 1

    (base,) = server.plan(table, "p = 0")
    with server.begin(table, "upsert", file_groups=[base.file_group]) as writer:
        given = write_table(pa.table({"id": [1], "p": pa.array([0], pa.int32())}), writer).files[0]
        writer.commit([replace(given, kind="delta", file_group=base.file_group, base_instant=1)])
    with pytest.raises(SparkStatementError, match=r"has 1 delta files .* compact their file groups first") as refusal:
        run(spark, "ls.delete(spark, t, 'id = 1', server=client)")
    assert refusal.value.kind == "UnsupportedOperation"
