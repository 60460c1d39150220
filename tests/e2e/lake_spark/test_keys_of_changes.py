"""No change gives a table one key twice, or a null in it: with which keys rows are written, by real Spark."""

from __future__ import annotations

import pytest

from lakemark import Client
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

ALONE = {"lakemark.primary-key": "id"}
KEYED = {"lakemark.primary-key": "id,p"}
REWRITTEN = {**KEYED, "lakemark.bucket.count": "4"}
MERGED = {**REWRITTEN, "lakemark.write.mode": "merge-on-read"}
KINDS = {
    "key_alone": ALONE,
    "without_buckets": KEYED,
    "rewritten": REWRITTEN,
    "merged": MERGED,
    "growing": {**MERGED, "lakemark.bucket.index": "extendible"},
}
ROWS = [[1, 0, "a"], [2, 0, "b"], [3, 0, "a"], [4, 0, "a"]]
NAMES = """
rows = lambda text: spark.sql(f"select cast(id as bigint) id, x, p from values {text} as v(id, x, p)")
show = lambda: sorted([list(row) for row in ls.read(spark, t, server=client).collect()], key=repr)
def insert(text, **values):
    merge = ls.merge(rows(text), t, server=client).when_matched_update({"x": "s.x"})
    return merge.when_not_matched_insert({"x": "s.x", **values}).execute()
"""


@pytest.mark.one_spark
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_inserted_with_the_keys_of_the_source(
    server: Client, spark: SparkProcess, table: str, kind: str
) -> None:
    server.tables.create(table, "id bigint, x int, p string", partitioned_by=["p"], properties=KINDS[kind])
    run(
        spark,
        NAMES + "\nls.upsert(rows(\"(1, 0, 'a'), (2, 0, 'b'), (3, 0, 'a'), (4, 0, 'a')\"), t, server=client)",
        t=table,
    )

    def told_of(key: str, source: str) -> str:
        return rf"with another key than .*\{{.*{key}.*\}} instead of \{{.*{source}.*\}}: the table"

    cases = [
        # A key that the table has, in another bucket and in the same; in another row of the source; twice; and null.
        ("(101, 9, 'a'), (4, 9, 'a')", {"id": "s.id - 100", "p": "s.p"}, told_of('"id":1', '"id":101')),
        ("(101, 9, 'a'), (4, 9, 'a')", {"id": "s.id - 97", "p": "s.p"}, told_of('"id":4', '"id":101')),
        ("(101, 9, 'a'), (102, 9, 'a')", {"id": "500", "p": "s.p"}, told_of('"id":500', '"id":10[12]')),
        ("(101, 9, 'a')", {"id": "nullif(s.id, 101)", "p": "s.p"}, told_of('"id":null', '"id":101')),
        ("(101, 9, 'a')", {"p": "s.p"}, "column 'id' of the key has no value in rows that are inserted"),
    ]
    if kind != "key_alone":
        cases.append(("(3, 9, 'b')", {"id": "s.id", "p": "'a'"}, told_of('"p":"a"', '"p":"b"')))
    for source, values, told in cases:
        with pytest.raises(SparkStatementError, match=told):
            run(spark, "insert(source, **values)", source=source, values=values)

    assert server.snapshot(table).version == 1
    assert {one.state for one in server.timeline.instants(table)} == {"completed", "rolled_back"}
    counts, shown = run(
        spark,
        """
        done = insert("(4, 9, 'a'), (101, 9, 'b')", id="s.id * 1.0", p="lower(upper(s.p))")
        result = [[done.updated, done.inserted], show()]
        """,
    )
    assert counts == [1, 1]
    assert shown == sorted([*ROWS[:3], [4, 9, "a"], [101, 9, "b"]], key=repr)


@pytest.mark.one_spark
@pytest.mark.parametrize("kind", ["without_buckets", "rewritten"])
def test_a_key_that_no_path_can_tell_from_null_is_refused(
    server: Client, spark: SparkProcess, table: str, kind: str
) -> None:
    server.tables.create(table, "id bigint, x int, p string", partitioned_by=["p"], properties=KINDS[kind])

    run(spark, NAMES, t=table)
    for text in ("", "__HIVE_DEFAULT_PARTITION__"):
        for call in ("upsert(new, t", "insert(new, t", "overwrite(new, t", "update(spark, t, {'x': 's.x'}, source=new"):
            with pytest.raises(SparkStatementError, match=f'rows whose key is null, as .*"p":"{text}"'):
                run(spark, f"new = rows(\"(7, 1, '{text}')\"); ls.{call}, server=client)")

    assert server.snapshot(table).version == 0


@pytest.mark.one_spark
def test_an_overwrite_of_partitions_leaves_no_key_elsewhere(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, x int, p string", partitioned_by=["p"], properties=ALONE)
    run(spark, NAMES + "\nls.upsert(rows(\"(1, 0, 'a'), (2, 0, 'b')\"), t, server=client)", t=table)

    for partitions in ("[{'p': 'a'}]", "'dynamic'"):
        with pytest.raises(
            SparkStatementError, match=r"\(id\) lacks the partition column p, .* use upsert, or overwrit"
        ):
            run(spark, f"ls.overwrite(rows(\"(2, 9, 'a')\"), t, partitions={partitions}, server=client)")

    assert run(spark, "ls.overwrite(rows(\"(2, 9, 'a')\"), t, server=client); result = show()") == [[2, 9, "a"]]


@pytest.mark.one_spark
def test_rows_that_move_are_neither_lost_nor_doubled(server: Client, spark: SparkProcess, table: str) -> None:
    """What an update of a table without buckets computes twice has to be the same both times."""
    server.tables.create(table, "id bigint, x int, p string NOT NULL", partitioned_by=["p"])
    run(
        spark,
        NAMES
        + """
ls.append(rows("(1, 0, 'a'), (2, 0, 'b')"), t, server=client)
from lakemark_spark import row_changes as changing
def lost(*args):
    return real(*args)[1:]
real = changing._Files._again
""",
        t=table,
    )

    cases = [
        ("ls.update(spark, t, {'p': \"if(rand() < 0.5, 'a', 'b')\"}, server=client)", "cannot come from rand"),
        ("ls.update(spark, t, {'p': \"''\"}, server=client)", "'p' of .* is NOT NULL"),
        (
            "with mock.patch.object(changing._Files, '_again', lost): ls.update(spark, t, {'x': '1'}, server=client)",
            "2 rows were to be written, and 1 were: .* nothing is changed",
        ),
    ]
    for call, told in cases:
        with pytest.raises(SparkStatementError, match=told):
            run(spark, call)

    assert run(spark, "result = show()") == [[1, 0, "a"], [2, 0, "b"]]
