"""Tables with a key and buckets, by real Spark: hashes, what is refused, deltas and who may write beside whom."""

from __future__ import annotations

from typing import Any

import pytest

from lakemark import Client
from lakemark_core.buckets import buckets_of
from lakemark_core.expressions import bind, normalize, parse_predicate
from lakemark_core.table_kind import BUCKETS_MAX, ORDERING_PROPERTY, TableKind
from lakemark_core.types import Field, Schema, parse_type
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

KEYED = {"lakemark.primary-key": "id,p", "lakemark.bucket.count": "4"}
MERGED = {**KEYED, "lakemark.write.mode": "merge-on-read"}

# Values of each type that a key may have, in Spark's SQL.
KEYS = {
    "boolean": ["true", "false"],
    "tinyint": ["0Y", "-128Y", "127Y"],
    "smallint": ["-32768S", "32767S"],
    "int": ["0", "-1", "2147483647"],
    "bigint": ["0L", "-1L", "9223372036854775807L"],
    "decimal(9,2)": ["0BD", "-1.50BD", "9999999.99BD"],
    "decimal(18,0)": ["999999999999999999BD", "-1BD"],
    "decimal(38,6)": ["0BD", "-0.000001BD", "12345678901234567890123456789012.123456BD"],
    "string": ["''", "'a'", "'ab'", "'abc'", "'abcd'", "'Straße 12 😀'"],
    "varchar(10)": ["'x'", "'äöü'"],
    "binary": ["X''", "X'00ff80'", "X'0102030405'"],
    "date": ["date'1969-12-31'", "date'2026-11-22'", "date'0001-01-01'"],
    "timestamp": ["timestamp'1969-12-31 23:59:59.999999Z'", "timestamp'2026-11-22 10:00:00Z'"],
    "timestamp_ntz": ["timestamp_ntz'1969-12-31 23:59:59.999999'", "timestamp_ntz'2026-11-22 10:00:00'"],
}


def test_the_service_knows_the_bucket_of_keys_of_every_type(spark: SparkProcess) -> None:
    keys = [(column_type, value) for column_type, values in KEYS.items() for value in values]
    hashes = ", ".join(f"pmod(hash(CAST({value} AS {column_type}), 'x'), {BUCKETS_MAX})" for column_type, value in keys)

    (buckets,) = spark.sql(f"SELECT {hashes}")

    for (column_type, value), bucket in zip(keys, buckets, strict=True):
        schema = Schema.build([Field(1, "k", parse_type(column_type)), Field(2, "s", parse_type("string"))])
        predicate = normalize(bind(parse_predicate(f"k = {value} AND s = 'x'"), schema))
        kind = TableKind(("k", "s"), buckets=BUCKETS_MAX)
        assert buckets_of(predicate, kind, schema) == {bucket}, (column_type, value)


@pytest.mark.one_spark
def test_what_does_not_fit_is_refused_before_anything_is_written(
    server: Client, spark: SparkProcess, table: str
) -> None:
    columns = "id bigint, x int, n int NOT NULL, p string"
    server.tables.create(
        table, columns, partitioned_by=["p"], properties={**MERGED, "lakemark.merge.ordering-column": "x"}
    )

    whole = "select 1L id, 1 x, 1 n, 'a' p"
    cases = [
        (f'upsert(spark.sql("{whole} union all {whole}"), t', r'several rows with one key, as \{"id":1,"p":"a"\}'),
        ("upsert(spark.sql(\"select cast(null as bigint) id, 1 x, 1 n, 'a' p\"), t", "whose key is null"),
        ("upsert(spark.sql(\"select 1L id, 1 x, 1 n, '' p\"), t", "whose key is null"),
        (
            "upsert(spark.sql(\"select 1L id, cast(null as int) x, 1 n, 'a' p\"), t",
            "'x' of .* needs a value",
        ),
        ("upsert(spark.sql(\"select 1L id, 1 x, cast(null as int) n, 'a' p\"), t", "'n' of .* needs a value"),
        ("upsert(spark.sql(\"select 1L id, 1 n, 'a' p\"), t", "column 'x' missing"),
        (f"upsert(spark.sql(\"{whole}\").withColumn('y', F.lit(1)), t", "'y' of the DataFrame is not in the table"),
        ("upsert(spark.sql(\"select 1L id, 'z' x, 1 n, 'a' p\"), t", "'x' is string; the table has int"),
        (f"upsert(spark.sql(\"{whole}\"), t, keys=['id']", "are not the key of"),
        (f'append(spark.sql("{whole}"), t', "has a key .* use upsert"),
        (f'overwrite(spark.sql("{whole} union all {whole}"), t', "several rows with one key"),
        (
            "delete_keys(spark.sql(\"select 1L id, 'a' p\"), t",
            "'x' missing; a delete needs the key",
        ),
        ('delete_keys(spark.sql("select 1L id, 1 x"), t', "column 'p' missing"),
    ]
    for call, told in cases:
        with pytest.raises(SparkStatementError, match=told):
            run(spark, f"ls.{call}, server=client)", t=table)

    assert server.snapshot(table).version == 0
    assert {one.state for one in server.timeline.instants(table)} <= {"rolled_back"}
    unkeyed = f"{table}_unkeyed"
    server.tables.create(unkeyed, "id bigint")
    with pytest.raises(SparkStatementError, match="has no key: name the columns"):
        run(spark, "ls.upsert(spark.sql('select 1L id'), t, server=client)", t=unkeyed)
    with pytest.raises(SparkStatementError, match=r"has no buckets .* use delete with a condition"):
        run(spark, "ls.delete_keys(spark.sql('select 1L id'), t, server=client)", t=unkeyed)


SHOW = "show = lambda **at: sorted([list(row) for row in ls.read(spark, t, server=client, **at).collect()], key=repr)"


@pytest.mark.one_spark
def test_an_upsert_reads_no_file_and_writes_one_delta_for_each_group(
    server: Client, spark: SparkProcess, table: str
) -> None:
    server.tables.create(table, "id bigint, x int, p string", partitioned_by=["p"], properties=MERGED)

    rows, on_branch, past = run(
        spark,
        SHOW
        + """
ls.upsert(spark.range(20).selectExpr("id", "0 x", "'a' p"), t, server=client)
client.branches.create(t, "dev")
with mock.patch("lakemark_spark.files.scan", side_effect=AssertionError), \\
        mock.patch("lakemark_spark.reader.scan", side_effect=AssertionError):
    ls.upsert(spark.range(3, 5).selectExpr("id", "1 x", "'a' p"), t, server=client, branch="dev")
    commit = ls.upsert(spark.range(4).selectExpr("id", "1 x", "'b' p"), t, server=client, request_id=t)
    again = ls.upsert(spark.range(4).selectExpr("id", "1 x", "'b' p"), t, server=client, request_id=t)
assert commit.version == again.version == 2
result = [show(where="x = 1"), show(where="x = 1", branch="dev"), show(version=1, where="id >= 18")]
""",
        t=table,
    )

    assert rows == [[one, 1, "b"] for one in range(4)]
    assert on_branch == [[3, 1, "a"], [4, 1, "a"]]
    assert past == [[18, 0, "a"], [19, 0, "a"]]
    added = server.plan(table, branch="dev").files()
    bases = {file.file_group: int(file.path.split("/")[0]) for file in added if file.kind == "base"}
    deltas = [file for file in added if file.kind == "delta"]
    assert {file.base_instant for file in deltas} == set(bases.values())
    assert all(file.file_group == f"bucket-{file.bucket}" for file in added)
    assert sum(file.row_count for file in deltas) == 2


@pytest.mark.one_spark
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_that_are_not_those_that_were_checked_are_not_committed(
    server: Client, spark: SparkProcess, table: str, mode: str
) -> None:
    """As if they had been lost with an executor while they were counted, and computed again as others."""
    table = f"{table}_{mode[0]}"
    server.tables.create(
        table, "id bigint, x int, p string", partitioned_by=["p"], properties={**KEYED, "lakemark.write.mode": mode}
    )
    run(
        spark,
        """
from lakemark_spark.batches import _counts as counts_of_batch
rows = spark.range(20).selectExpr("id", "0 x", "'a' p")
ls.upsert(rows, t, server=client)
fewer = lambda *given: dict(list(counts_of_batch(*given).items())[:1])
merge = lambda: ls.merge(rows, t, server=client).when_matched_update_all().when_not_matched_insert_all()
""",
        t=table,
    )
    calls = ["ls.upsert(rows, t, server=client)", "ls.overwrite(rows, t, server=client)", "merge().execute()"]
    if mode == "merge-on-read":
        calls.append("ls.delete_keys(rows.select('id', 'p'), t, server=client)")
    for call in calls:
        with pytest.raises(SparkStatementError, match="not those that were checked"):
            run(spark, f"with mock.patch('lakemark_spark.batches._counts', fewer):\n    {call}")

    assert server.snapshot(table).version == 1

    at_once = run(
        spark,
        """
checkpoints = []
def spied(df, eager=True, **more):
    checkpoints.append(eager)
    return checkpoint(df, eager=eager, **more)
checkpoint = type(rows).localCheckpoint
with mock.patch.object(type(rows), "localCheckpoint", spied):
    ls.delete_keys(rows.where("id < 3").select("id", "p"), t, server=client)
    merge().execute()
result = checkpoints
""",
    )
    assert at_once == [mode == "copy-on-write", True, False], "what no written file tells is computed at once"


@pytest.mark.one_spark
def test_a_table_in_files_of_older_schemas_is_merged(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, x int, s string, p string", partitioned_by=["p"], properties=MERGED)

    one = "ls.upsert(spark.sql(\"select {id}L id, {x} x, '{s}' s, 'a' p\"), t, server=client)"
    run(spark, SHOW + "\n" + one.format(id=1, x=1, s="one") + "\n" + one.format(id=2, x=1, s="two"), t=table)
    server.tables.alter(table, "RENAME COLUMN s TO name; ALTER COLUMN x TYPE BIGINT; ADD COLUMN y INT")
    rows, compacted = run(
        spark,
        """
        new = "select * from values (2L, 5000000000L, 'zwei', 7, 'a'), (3L, 1L, 'drei', 7, 'a') as t(id, x, name, y, p)"
        ls.upsert(spark.sql(new), t, server=client)
        before = show()
        ls.compact(spark, t, server=client)
        result = [before, show()]
        """,
        t=table,
    )

    assert rows == compacted == [[1, 1, "one", None, "a"], [2, 5_000_000_000, "zwei", 7, "a"], [3, 1, "drei", 7, "a"]]


@pytest.mark.one_spark
@pytest.mark.parametrize("ordering", ["", "x"])
def test_many_changes_of_a_row_are_merged_as_few_are(
    server: Client, spark: SparkProcess, table: str, ordering: str
) -> None:
    """More deltas in a file group than are compared with each other."""
    properties = {**MERGED, "lakemark.bucket.count": "1"} | ({ORDERING_PROPERTY: ordering} if ordering else {})
    server.tables.create(table, "id bigint, x double, s string, p string", partitioned_by=["p"], properties=properties)

    few, many, compacted, plans = run(
        spark,
        """
        values = [2.0, float("nan"), 1.0, 9.0, 9.0, 0.5, 8.0, 9.0, 3.0, 1.5, 7.0]
        for step, x in enumerate(values):
            # The first row of 5 is newer than all of its changes, and the last one of 0 than all before it.
            of = {0: float(step), 5: 100.0 - step}
            rows = [(i, of.get(i, x), f"{i}-{step}", "a") for i in range(step % 3, 6)]
            ls.upsert(spark.createDataFrame(rows, "id bigint, x double, s string, p string"), t, server=client)
            if step % 4 == 1:
                ls.delete(spark, t, f"id = {step // 4 + 1}", server=client)
        def shown():
            rows = ls.read(spark, t, server=client)
            plan = rows._jdf.queryExecution().optimizedPlan().toString()
            return sorted(map(repr, rows.collect())), "Aggregate" in plan
        many, aggregated = shown()
        with mock.patch.object(lakemark_core.merge_sql, "LAYERS_MAX", 100):
            few, aggregated_few = shown()
        ls.compact(spark, t, server=client)
        result = [few, many, shown()[0], [aggregated, aggregated_few]]
        """,
        t=table,
    )

    assert few == many == compacted != []
    assert sorted(many) == sorted(_as_spark_shows(server, table))
    assert plans == [True, False]


def _as_spark_shows(server: Client, table: str) -> list[str]:
    """The rows as the Python client merges them."""
    rows = server.read(table).select(["id", "x", "s", "p"]).to_pylist()
    return [f"Row(id={row['id']}, x={row['x']!r}, s={row['s']!r}, p={row['p']!r})" for row in rows]


@pytest.mark.one_spark
def test_writers_of_the_same_rows_go_on_beside_each_other(server: Client, spark: SparkProcess, table: str) -> None:
    properties = {**MERGED, "lakemark.merge.by": "column", "lakemark.conflict.policy": "column"}
    server.tables.create(table, "id bigint, a int, b int, p string", partitioned_by=["p"], properties=properties)

    outcomes, rows = run(
        spark,
        SHOW
        + """
from concurrent.futures import ThreadPoolExecutor
def write(column):
    versions = []
    for step in range(2):
        df = spark.range(6).selectExpr("id", f"{step} {column}", "'x' p")
        versions.append(ls.upsert(df, t, server=client).version)
    return versions
with ThreadPoolExecutor(3) as pool:
    jobs = [pool.submit(write, column) for column in ("a", "b")]
    def compact():
        try:
            commit = ls.compact(spark, t, server=client)
            return [commit.version] if commit else []
        except lakemark.CommitConflict:
            return []
    jobs.append(pool.submit(compact))
    result = [[job.result() for job in jobs], show()]
""",
        t=table,
    )

    versions: list[Any] = sorted(version for done in outcomes for version in done)
    assert versions == list(range(1, len(versions) + 1)), "no upsert was refused"
    assert rows == [[one, 1, 1, "x"] for one in range(6)]


@pytest.mark.one_spark
def test_a_compaction_leaves_what_an_open_writer_may_still_be_older_than(
    server: Client, spark: SparkProcess, table: str
) -> None:
    properties = {**MERGED, "lakemark.conflict.policy": "row"}
    server.tables.create(table, "id bigint, x int, p string", partitioned_by=["p"], properties=properties)

    run(spark, SHOW + "\nls.upsert(spark.sql(\"select 1L id, 1 x, 'a' p\"), t, server=client)", t=table)
    with server.begin(table, "upsert") as late:
        kinds = run(
            spark,
            """
            ls.upsert(spark.sql("select 1L id, 2 x, 'a' p"), t, server=client)
            commit = ls.compact(spark, t, server=client)
            files = client.plan(t).files()
            result = [sorted(file.kind for file in files), show(), ls.compact(spark, t, server=client)]
            """,
        )
        assert kinds == [["base", "delta"], [[1, 2, "a"]], None]
        late.rollback("it was only open")
    assert run(spark, "ls.compact(spark, t, server=client)\nresult = [one.kind for one in client.plan(t)]") == ["base"]


@pytest.mark.one_spark
def test_deletes_outlive_compactions_for_as_long_as_the_table_says(
    server: Client, spark: SparkProcess, table: str
) -> None:
    properties = {**MERGED, "lakemark.merge.ordering-column": "x"}
    server.tables.create(table, "id bigint, x int, `a{b` string, p string", partitioned_by=["p"], properties=properties)

    upsert = "ls.upsert(spark.sql(\"select {id}L id, {x} x, 'v' `a{{b`, 'a' p\"), t, server=client)\n"
    compact = "ls.compact(spark, t, server=client)\n"
    code = SHOW + "\n" + upsert.format(id=1, x=5) + upsert.format(id=2, x=5)
    code += "ls.delete_keys(spark.sql(\"select id, 7 x, 'a' p from values 1L, 2L as t(id)\"), t, server=client)\n"
    code += upsert.format(id=2, x=8) + compact
    rows, again, kinds, plain = run(
        spark,
        code
        + """
again = ls.compact(spark, t, server=client)
ls.delete(spark, t, "id = 99", server=client)
files = client.plan(t).files()
result = [show(), again, sorted((one.kind, one.row_count) for one in files), client.read(t).num_rows]
""",
        t=table,
    )
    assert rows == [[2, 8, "v", "a"]]
    assert again is None, "kept deletes are nothing to merge"
    assert kinds == [["base", 1], ["delta", 1]]
    assert plain == 1

    # Older changes lose, also after further compactions; newer ones do not, and the delete is not needed any more.
    assert run(spark, upsert.format(id=1, x=6) + compact + compact + "result = show()") == rows
    assert run(spark, upsert.format(id=1, x=7) + compact + "result = show()") == [[1, 7, "v", "a"], *rows]
    assert [one.kind for one in server.plan(table)] == ["base", "base"]
    assert server.read(table).num_rows == 2

    run(spark, "ls.delete_keys(spark.sql(\"select 1L id, 9 x, 'a' p\"), t, server=client)\n" + compact)
    before = {one.path for one in server.plan(table) if one.kind == "base"}
    assert [one.keeps_deletes for one in server.plan(table) if one.kind == "delta"] == [True]
    server.tables.set_properties(table, {"lakemark.merge.deletes.retain-ms": "0"})
    version = run(spark, "commit = " + compact + "result = commit.version")
    assert {one.path for one in server.plan(table)} == before, "no base file was written again"
    assert server.snapshot(table).version == version
    assert run(spark, upsert.format(id=1, x=6) + "result = show()") == [[1, 6, "v", "a"], *rows]
