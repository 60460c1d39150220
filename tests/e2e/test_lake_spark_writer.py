"""DataFrames into lake tables and back, by real Spark against a real service."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pytest

from lakemark import Client, DataFile
from lakemark.parquet import write_table
from tests.e2e.spark_runner import SparkProcess, SparkStatementError, interpreter
from tests.integration.grpc_server import connected, running_service

pytestmark = pytest.mark.spark

SPECIAL = ["a/b", "x=y", "100%", "a%2Fb", "q?u#e&r", "[s]{t}*", "é ü", 'it\'s "q"', "back\\slash", "tab\tend", None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    # A location with characters that mean something in patterns and URIs.
    with running_service(tmp_path_factory.mktemp("lake [1]{a}%20é")) as service, connected(service) as client:
        client.databases.create("db")
        yield client


@pytest.fixture(scope="module")
def spark(spark_version: str, server: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    settings = {
        "spark.sql.catalogImplementation": "in-memory",
        # What must not matter: plans, limits and zones that differ from those of the table's layout.
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.files.maxRecordsPerFile": "1",
    }
    work = tmp_path_factory.mktemp(f"spark{spark_version}")
    with SparkProcess(interpreter(spark_version), "", work, settings=settings) as process:
        process.python(
            dedent(f"""
            import datetime as dt
            from decimal import Decimal
            from pyspark.sql import functions as F
            import lakemark, lakemark_spark, lakemark_spark.footers, lakemark_spark.reader
            import lakemark_spark as ls
            client = lakemark.connect({server.address!r})
            """)
        )
        yield process


@pytest.fixture
def table(server: Client, spark_version: str, request: pytest.FixtureRequest) -> str:
    number = abs(hash(request.node.name))
    return f"db.t{spark_version.replace('.', '')}_{number}"


def run(spark: SparkProcess, code: str, **names: Any) -> Any:
    for name, value in names.items():
        spark.python(f"{name} = {value!r}")
    return spark.python(dedent(code))


def directories(files: list[DataFile]) -> list[str]:
    return [file.path.rpartition("/")[0] for file in files]


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
        lakemark_spark.reader.UNION_MAX = union_max
        types = "id bigint, p string, day date, at timestamp, amount decimal(6,2), flag boolean"
        df = spark.createDataFrame(rows, types)
        ls.append(df, t, server=client)
        got = ls.read(spark, t, server=client)
        show = lambda rows: sorted(map(repr, rows.collect()))
        where = "at = timestamp'2020-07-01 12:30:02Z' or p is null"
        result = [show(df), show(got), [show(df.where(where)), show(ls.read(spark, t, where, server=client))]]
        """,
        t=table,
        special=SPECIAL,
        union_max=union_max,
    )

    assert want == got
    assert filtered[0] == filtered[1] != []


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


def test_every_misfit_is_told_and_nothing_is_committed(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id int, name string, at date NOT NULL, p int", partitioned_by=["p"])

    with pytest.raises(SparkStatementError) as refusal:
        run(spark, "ls.append(spark.range(3).selectExpr('id', '1 as name', '2 as extra'), t, server=client)", t=table)

    assert refusal.value.kind == "InvalidSchema"
    for part in ("'id' is bigint; the table has int", "'name' is int", "'extra'", "'at' is missing", "'p' is missing"):
        assert part in refusal.value.message
    with pytest.raises(SparkStatementError, match="NOT NULL"):
        run(spark, "ls.append(spark.sql(\"select 1 id, 'a' name, cast(null as date) at, 1 p\"), t, server=client)")
    assert {one.state for one in server.timeline.instants(table)} == {"rolled_back"}
    assert server.snapshot(table).version == 0


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


def test_many_files_are_described_by_the_executors(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, x double, p int", partitioned_by=["p"])

    run(
        spark,
        """
        lakemark_spark.footers.IN_DRIVER_MAX, lakemark_spark.footers.FILES_PER_TASK = 5, 4
        df = spark.range(0, 48, 1, 2).selectExpr("id", "id / 2 as x", "cast(id % 12 as int) as p")
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
        import lakemark_spark.deleting as deleting
        from unittest import mock
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
