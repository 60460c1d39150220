"""Sizes and order of files: what writers make, what compactions merge, and what plans gain by clustering."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from lakemark import Client
from lakemark_core.storage import local_path
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

SIZE = "lakemark.write.target-file-size-bytes"
BY = "lakemark.clustering.columns"
ORDER = "lakemark.clustering.order"


def test_writers_split_what_is_too_large(server: Client, spark: SparkProcess, table: str) -> None:
    rows = "spark.range(300_000).selectExpr('id', 'uuid() v', '\"{day}\" day')"
    server.tables.create(table, "id bigint, v string, day string", partitioned_by=["day"])
    run(spark, f"ls.append({rows.format(day='a')}, t, server=client)", t=table)
    server.tables.set_properties(table, {SIZE: "4000000"})
    run(spark, f"ls.append({rows.format(day='b')}, t, server=client)")

    files = server.plan(table).files()
    assert [file.row_count for file in files if file.partition == ("a",)] == [300_000]
    sizes = [file.size_bytes for file in files if file.partition == ("b",)]
    assert 2 <= len(sizes) <= 8, sizes
    assert max(sizes) < 6_000_000
    assert run(spark, "result = spark.conf.get('spark.sql.adaptive.advisoryPartitionSizeInBytes', None)") != "4000000b"

    # Without partitions rows of many tasks come into one file if the table says how large that is.
    flat = f"{table}_flat"
    server.tables.create(flat, "id bigint", properties={SIZE: "4000000"})
    run(spark, "ls.append(spark.range(0, 1000, 1, 7), t, server=client)", t=flat)
    assert [file.row_count for file in server.plan(flat)] == [1_000]


@pytest.mark.one_spark
def test_a_compaction_merges_small_files_of_a_partition(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, v string, day string, `a{b` int", partitioned_by=["day"])
    days = ("a", "b", "ü/:")
    run(
        spark,
        """
        def append(first, end, day, name="v"):
            more = [] if name == "v" else ["int(null) y"]
            columns = ["id", f"'v' {name}", f"'{day}' day", "int(null) `a{b`", *more]
            return ls.append(spark.range(first, end).selectExpr(*columns), t, server=client)
        for at in range(2):
            for day in days:
                append(at * 10, at * 10 + 10, day)
        append(20, 30, "b")
        """,
        t=table,
        days=days,
    )
    server.tables.alter(table, "RENAME COLUMN v TO w; ADD COLUMN y INT")
    old = server.plan(table).files()

    versions, after, again = run(
        spark,
        """
before = sorted(map(tuple, ls.read(spark, t, server=client).collect()), key=repr)
some = ls.compact(spark, t, "day = 'a'", server=client)
every = ls.compact(spark, t, server=client, request_id=t)
repeated = ls.compact(spark, t, server=client, request_id=t)
assert sorted(map(tuple, ls.read(spark, t, server=client).collect()), key=repr) == before
result = [[some.version, every.version, repeated.version], len(before), ls.compact(spark, t, server=client)]
""",
    )

    assert versions == [9, 10, 10]
    assert (after, again) == (70, None)
    files = server.plan(table).files()
    assert sorted((file.partition[0], file.row_count) for file in files) == [("a", 20), ("b", 30), ("ü/:", 20)]
    assert not {file.file_group for file in files} & {file.file_group for file in old}
    assert server.read(table, version=7).num_rows == server.read(table).num_rows == 70

    # A change of rows that came in between is not lost: the compaction is refused.
    run(spark, "append(90, 95, 'a', 'w')")
    with pytest.raises(SparkStatementError, match="replaced files of file group"):
        run(
            spark,
            """
            import lakemark_spark.fragments as fragments
            real = fragments.numbered_rows
            def then(*args):
                ls.delete(spark, t, "id = 91", server=client)
                return real(*args)
            with mock.patch.object(fragments, "numbered_rows", then):
                ls.compact(spark, t, server=client)
            """,
        )
    assert server.read(table, "day = 'a'").num_rows == 24
    # An append that came in between stays beside.
    run(
        spark,
        """
        def then(*args):
            append(99, 100, "a", "w")
            return real(*args)
        with mock.patch.object(fragments, "numbered_rows", then):
            ls.compact(spark, t, server=client)
        """,
    )
    assert sorted(file.row_count for file in server.plan(table, "day = 'a'")) == [1, 24]


SCATTERED = "spark.range({rows}).selectExpr('id', 'cast(hash(id) as int) x', 'sha1(string(id)) y', 'id % 2 p')"


@pytest.mark.one_spark
@pytest.mark.parametrize("order", ["sort", "z-order"])
def test_plans_leave_out_more_files_of_a_clustered_table(
    server: Client, spark: SparkProcess, table: str, order: str
) -> None:
    table = f"{table}_{order[0]}"
    properties = {SIZE: "20000", BY: "x,Y", ORDER: order}
    server.tables.create(table, "id bigint, x int, y string, p bigint", partitioned_by=["p"], properties=properties)
    rows = SCATTERED.format(rows=20_000)
    told = run(
        spark,
        f"""
ls.append({rows}, t, server=client)
ls.append(spark.sql("select 1L id, int(null) x, string(null) y, 7L p"), t, server=client)
digest = "count(*)", "sum(hash(id, x, y, p))"
before = ls.read(spark, t, server=client).selectExpr(*digest).collect()[0]
planned = lambda: [client.plan(t, where).summary.files_planned for where in
    ("x between 1000000 and 30000000", "y like 'abc%'", "id between 1000 and 1100", "true")]
ls.cluster(spark, t, columns="id", order="sort", server=client)
at_first = planned()
commit = ls.cluster(spark, t, server=client)
assert ls.read(spark, t, server=client).selectExpr(*digest).collect()[0] == before
result = [at_first, planned(), commit.version, before[0]]
""",
        t=table,
    )

    before, after, version, count = told
    assert (version, count) == (4, 20_001)
    assert 30 < before[-1] < 130
    assert abs(after[-1] - before[-1]) < 16
    assert before[2] <= 4, "by the order that they had"
    assert min(before[:2]) >= before[-1] - 3, "hardly a file is left out"
    if order == "sort":
        assert after[0] <= 8
    else:
        assert max(after[:2]) <= after[-1] / 2
    assert max(file.size_bytes for file in server.plan(table)) < 60_000


@pytest.mark.one_spark
@pytest.mark.parametrize("index", ["fixed", "extendible"])
def test_a_table_with_buckets_has_its_rows_in_order_within_each_file(
    server: Client, spark: SparkProcess, table: str, index: str
) -> None:
    """By a compaction if the table says so, and by a clustering of all files, also of those without deltas."""
    table = f"{table}_{index[0]}"
    keyed = {"lakemark.primary-key": "id", "lakemark.bucket.count": "2", "lakemark.bucket.index": index}
    properties = keyed | {"lakemark.write.mode": "merge-on-read", BY: "x"}
    server.tables.create(table, "id bigint, x int, y string", properties=properties)
    rows = "spark.range({}).selectExpr('id', 'cast(hash(id) as int) x', 'sha1(string(id)) y')"
    digest = "\ndigest = lambda: ls.read(spark, t, server=client).selectExpr('count(*)', 'sum(hash(*))').collect()[0]"
    half = "spark.range(0, 400, 2).sample(0.9, 7).selectExpr('398 - id id', 'int(id) x', 'string(id) y')"
    run(spark, f"ls.upsert({half}, t, server=client)", t=table)
    assert _is_sorted(server, table, "id"), "by the key, where the table says nothing else"
    upserts = [f"ls.upsert({rows.format(which)}, t, server=client)\n" for which in ("500", "490, 510")]
    run(
        spark,
        f"{''.join(upserts)}{digest}\nbefore = digest()\n"
        "ls.compact(spark, t, server=client)\nassert digest() == before",
        t=table,
    )
    assert _is_sorted(server, table, "x")
    run(
        spark,
        "ls.cluster(spark, t, columns=['y'], server=client)\nassert digest() == before\n"
        "ls.cluster(spark, t, columns=['x', 'y'], order='z-order', server=client)\nassert digest() == before\n"
        "ls.cluster(spark, t, 'id = 7', columns=['y'], server=client)\nassert digest() == before",
    )
    files = server.plan(table).files()
    assert {file.kind for file in files} == {"base"}
    assert len(files) == 2
    assert sum(_sorted_by(server, table, file.path, "y") for file in files) == 1, "the condition names one key"


@pytest.mark.one_spark
def test_a_compaction_in_z_order_merges_once(server: Client, spark: SparkProcess, table: str) -> None:
    keyed = {"lakemark.primary-key": "id", "lakemark.bucket.count": "2", "lakemark.write.mode": "merge-on-read"}
    properties = keyed | {BY: "x,y", "lakemark.clustering.order": "z-order"}
    server.tables.create(table, "id bigint, x int, y string", properties=properties)
    written, merged = run(
        spark,
        """
import lakemark_spark.compactions as compactions
plans = {}
def spied(name, function):
    def call(*given, **more):
        result = function(*given, **more)
        rows = given[0] if name == "write_groups" else result
        plans[name] = rows._jdf.queryExecution().optimizedPlan().toString()
        return result
    return mock.patch.object(compactions, name, call)
upsert = lambda *which: ls.upsert(
    spark.range(*which).selectExpr("id", "cast(hash(id) as int) x", "sha1(string(id)) y"), t, server=client
)
upsert(400)
upsert(390, 410)
with spied("write_groups", compactions.write_groups), spied("merged_rows", compactions.merged_rows):
    ls.compact(spark, t, server=client)
assert ls.read(spark, t, server=client).count() == 410
of_deltas = lambda plan: sum("Relation" in line and "lakemark_operation" in line for line in plan.splitlines())
assert " z" in plans["write_groups"]
result = [of_deltas(plans["write_groups"]), of_deltas(plans["merged_rows"])]
""",
        t=table,
    )
    assert merged > 0
    assert written == merged, "the sample of the z-order is not one of merged rows"


def _is_sorted(server: Client, table: str, column: str) -> bool:
    return all(_sorted_by(server, table, file.path, column) for file in server.plan(table))


def _sorted_by(server: Client, table: str, path: str, column: str) -> bool:
    location = local_path(server.tables.get(table).location)
    values = pq.read_table(f"{location}/{path}", columns=[column], partitioning=None)[column].to_pylist()
    return values == sorted(values)


@pytest.mark.one_spark
def test_what_cannot_be_clustered(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, x int")
    cases = [
        ("t, columns=['x']", None),
        ("t", "does not say by which columns"),
        ("t, columns=['z']", "there is no column 'z'"),
        ("t, columns='x', order='hilbert'", "use sort or z-order"),
    ]
    run(spark, "", t=table)
    for arguments, told in cases:
        call = f"result = ls.cluster(spark, {arguments}, server=client)"
        if told is None:
            assert run(spark, call) is None, "there are no files"
            continue
        with pytest.raises(SparkStatementError, match=told):
            run(spark, call)
    assert server.snapshot(table).version == 0


@pytest.mark.one_spark
def test_rewrites_lose_nothing_beside_writers(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, v int", properties={"lakemark.conflict.policy": "file", BY: "v,id"})

    refused, rows = run(
        spark,
        """
        from concurrent.futures import ThreadPoolExecutor
        frame = lambda first, end: spark.range(first, end, 1, 2).selectExpr("id", "cast(hash(id) as int) v")
        ls.append(frame(1000, 1100), t, server=client)
        refused = []
        def until_done(work):
            while True:
                try:
                    return work()
                except lakemark.CommitConflict as error:
                    refused.append(str(error))
        def appends():
            for at in range(5):
                ls.append(frame(at * 10, at * 10 + 10), t, server=client)
        def deletes():
            for at in range(3):
                until_done(lambda: ls.delete(spark, t, f"id between {1000 + at} and {1009 + at * 10}", server=client))
        def updates():
            for at in range(3):
                until_done(lambda: ls.update(spark, t, {"v": "-1"}, f"id = {1090 + at}", server=client))
        def rewrites():
            for at in range(6):
                work = ls.compact if at % 2 else ls.cluster
                try:
                    work(spark, t, server=client)
                except lakemark.CommitConflict as error:
                    refused.append(str(error))
        with ThreadPoolExecutor(4) as pool:
            for job in [pool.submit(work) for work in (appends, deletes, updates, rewrites)]:
                job.result()
        until_done(lambda: ls.compact(spark, t, server=client))
        found = ls.read(spark, t, server=client).orderBy("id").collect()
        result = [len(refused), [list(row) for row in found]]
        """,
        t=table,
    )

    ids = [*range(50), *range(1030, 1100)]
    assert [one for one, _ in rows] == ids
    assert [one for one, v in rows if v == -1] == [1090, 1091, 1092], refused
    assert len(server.plan(table).files()) == 1
