"""``insert``, ``update`` and ``merge`` by real Spark, in tables of all kinds and beside other writers."""

from __future__ import annotations

import pytest

from lakemark import Client
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

BUCKETS = {"lakemark.primary-key": "id,p", "lakemark.bucket.count": "2"}
MERGED = {**BUCKETS, "lakemark.write.mode": "merge-on-read"}
KINDS = {
    "without_key": {},
    "key_alone": {"lakemark.primary-key": "id"},
    "rewritten": BUCKETS,
    "merged": MERGED,
    "merged_by_row": {**MERGED, "lakemark.conflict.policy": "row"},
    "merged_by_column": {**MERGED, "lakemark.merge.by": "column", "lakemark.conflict.policy": "column"},
}
SHOW = """
show = lambda t, **at: sorted([list(row) for row in ls.read(spark, t, server=client, **at).collect()], key=repr)
rows = lambda text, names: spark.sql(f"select * from values {text} as v({names})")
told = lambda one: [one.inserted, one.updated, one.deleted, one.ignored, one.commit is not None]
keys = lambda t: [] if "lakemark.primary-key" in client.tables.get(t).properties else ["id"]
by = lambda t: {"on": ["id"]} if keys(t) else {}
"""


@pytest.mark.one_spark
@pytest.mark.parametrize(
    "kind",
    # With one writer, the policy makes no difference.
    [pytest.param(kind, marks=pytest.mark.slow if kind == "merged_by_row" else ()) for kind in KINDS],
)
def test_rows_are_inserted_updated_and_merged(server: Client, spark: SparkProcess, table: str, kind: str) -> None:
    server.tables.create(table, "id bigint, x double, s string, p int", partitioned_by=["p"], properties=KINDS[kind])

    inserts = run(
        spark,
        SHOW
        + """
first = ls.insert(rows("(1, 1.5, 'a', 0), (2, 2, 'b', 0), (3, 3, 'c', 1)", "id, x, s, p"), t,
                  keys=keys(t) or None, server=client, request_id=t + "i")
repeated = ls.insert(rows("(9, 1.5, 'a', 0)", "id, x, s, p"), t, keys=keys(t) or None, server=client,
                     request_id=t + "i")
second = ls.insert(rows("(1, 9.5, 'z', 0), (4, 4.5, null, 1)", "id, x, s, p"), t, keys=keys(t) or None, server=client)
none = ls.insert(rows("(1, 9.5, 'z', 0)", "id, x, s, p"), t, keys=keys(t) or None, server=client)
result = [told(one) for one in (first, repeated, second, none)] + [first.commit == repeated.commit]
""",
        t=table,
    )
    states = [run(spark, "result = show(t)")]
    updated = run(
        spark,
        """
        # A decimal literal goes into a double column.
        more = {"X": "x * 2.5", "s": F.concat("s", F.lit("!"))}
        result = [told(ls.update(spark, t, more, "x >= 3 and p = 1", server=client)),
                  told(ls.update(spark, t, {"s": "'none'"}, "id = 77", server=client))]
        """,
    )
    states.append(run(spark, "result = show(t)"))
    merged, again = run(
        spark,
        """
        source = rows("(1, 0, 10, 'd'), (2, 0, 20, 'u'), (7, 1, 70, 'i'), (8, 1, 80, 'skip')", "id, p, y, op")
        merge = (ls.merge(source, t, server=client, **by(t), request_id=t + "m")
            .when_matched_delete("s.op = 'd'")
            .when_matched_update({"x": "t.x + s.y"}, "t.p = s.p")
            .when_not_matched_insert({"id": "s.id", "x": "s.y", "p": "s.p"}, "s.op <> 'skip'"))
        result = [told(merge.execute()), told(merge.execute())]
        """,
    )
    states.append(run(spark, "result = show(t)"))

    assert inserts == [
        [3, 0, 0, 0, True],
        [3, 0, 0, 0, True],
        [1, 0, 0, 1, True],
        [0, 0, 0, 1, False],
        True,
    ]
    assert updated == [[0, 2, 0, 0, True], [0, 0, 0, 0, False]]
    assert merged == again == [1, 1, 1, 0, True]
    assert states == [
        [[1, 1.5, "a", 0], [2, 2.0, "b", 0], [3, 3.0, "c", 1], [4, 4.5, None, 1]],
        [[1, 1.5, "a", 0], [2, 2.0, "b", 0], [3, 7.5, "c!", 1], [4, 11.25, None, 1]],
        [[2, 22.0, "b", 0], [3, 7.5, "c!", 1], [4, 11.25, None, 1], [7, 70.0, None, 1]],
    ]
    assert server.snapshot(table).version == 4


@pytest.mark.one_spark
def test_rows_without_a_key_are_updated_by_join_and_move(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, x int, city string, p int", partitioned_by=["p"])

    counts, states, kept = run(
        spark,
        SHOW
        + """
ls.append(spark.range(12).selectExpr("id", "0 x", "concat('c', id % 3) city", "int(id % 2) p"), t, server=client)
prices = rows("('c0', 5), ('c1', 7), ('nowhere', 9)", "name, price").withColumnRenamed("name", "City")
counts, states = [], []
for join in ("broadcast", "shuffle", "auto"):
    done = ls.update(spark, t, {"x": "t.x + s.price"}, "t.id < 6", source=prices, on="city", join=join, server=client)
    counts.append(told(done))
states.append(show(t))
before = {file.path for file in client.plan(t)}
counts.append(told(ls.update(spark, t, {"p": "p + 10"}, "id in (0, 1, 2)", server=client)))
states.append(show(t, where="id < 4"))
counts.append(told(ls.merge(rows("(3), (4)", "id"), t, "id", server=client)
                   .when_matched_update({"p": "7"}, "t.id = 3").when_matched_delete().execute()))
states.append(show(t, where="id in (3, 4, 5)"))
result = [counts, states, client.snapshot(t).rows]
""",
        t=table,
    )

    assert counts[:3] == [[0, 4, 0, 0, True]] * 3
    by_city = {"c0": 15, "c1": 21, "c2": 0}
    cities = [f"c{one % 3}" for one in range(12)]
    assert states[0] == sorted(
        ([one, by_city[cities[one]] if one < 6 else 0, cities[one], one % 2] for one in range(12)), key=repr
    )
    assert counts[3:] == [[0, 3, 0, 0, True], [0, 1, 1, 0, True]]
    assert [[row[0], row[3]] for row in states[1]] == [[0, 10], [1, 11], [2, 10], [3, 1]]
    assert [[row[0], row[3]] for row in states[2]] == [[3, 7], [5, 1]]
    assert kept == 11


@pytest.mark.one_spark
def test_what_contradicts_the_table_is_told_and_nothing_is_committed(
    server: Client, spark: SparkProcess, table: str
) -> None:
    server.tables.create(table, "id bigint, x tinyint, n int NOT NULL, p int", partitioned_by=["p"], properties=MERGED)
    run(spark, SHOW + "\nls.insert(rows('(1, 1, 1, 0)', 'id, x, n, p'), t, server=client)\n", t=table)
    good = "rows('(1, 1, 1, 0)', 'id, x, n, p')"

    cases = [
        ("update(spark, t, {'id': 'id + 1'}, 'true'", "'id': an update does not change the key"),
        ("update(spark, t, {'y': '1'}", "has no column 'y'|'y'"),
        ("update(spark, t, {}", "sets no column"),
        ("update(spark, t, {'x': \"'7'\"}", "'x' is string; the table has tinyint"),
        ("update(spark, t, {'x': 'x + 300'}", "'x' does not fit into tinyint: 301"),
        ("update(spark, t, {'n': 'nullif(n, 1)'}", "'n' of .* needs a value in every row"),
        ("update(spark, t, {'x': '1'}, on='id'", "names columns of a source"),
        (f"update(spark, t, {{'x': '1'}}, source={good}, join='hash'", "join='hash' is not known"),
        (f"insert({good}, t, keys=['id']", "by its key .* leave out 'on'"),
        (f"insert({good}.withColumn('y', F.lit(1)), t", "'y' of the source is not in the table"),
        (f"insert({good}.drop('n'), t", "'n' has no value in rows that are inserted"),
        (f"insert({good}.unionAll({good}), t", "several rows with one key"),
        (f"insert({good}.withColumn('id', F.lit(None).cast('bigint')), t", "whose key is null"),
        (f"insert({good}.withColumn('id', F.lit('1')), t", "'id' is string; the table has bigint"),
        (f"merge({good}, t", "has no clause that says what to do"),
    ]
    for call, told in cases:
        end = ", server=client).execute()" if call.startswith("merge") else ", server=client)"
        with pytest.raises(SparkStatementError, match=told):
            run(spark, f"ls.{call}{end}", t=table)
    with pytest.raises(SparkStatementError, match="comes after one without a condition"):
        run(
            spark,
            f"ls.merge({good}, t, server=client).when_matched_delete().when_matched_update({{'x': '1'}}).execute()",
        )

    assert server.snapshot(table).version == 1
    assert server.read(table).to_pylist() == [{"id": 1, "x": 1, "n": 1, "p": 0}]


@pytest.mark.one_spark
@pytest.mark.parametrize(
    ("kind", "policy"),
    [("merged", "partition"), ("merged", "row"), ("rewritten", "file_group"), ("without_key", "file_group")],
)
def test_two_inserts_of_a_new_key_exclude_each_other(
    server: Client, spark: SparkProcess, table: str, kind: str, policy: str
) -> None:
    server.tables.create(
        table,
        "id bigint, x int, p int",
        partitioned_by=["p"],
        properties={**KINDS[kind], "lakemark.conflict.policy": policy},
    )

    rows = run(
        spark,
        SHOW
        + """
import lakemark_spark.row_changes as changing
keyed = {"keys": ["id", "p"]} if keys(t) else {}
put = lambda id, x, p: ls.insert(rows(f"({id}, {x}, {p})", "id, x, p"), t, server=client, **keyed)
put(1, 1, 0)
def meanwhile(work):
    # After the writer has looked for the keys, before it tells what it is going to change.
    real = changing._inserted
    def then(*args):
        with mock.patch.object(changing, "_inserted", real):
            work()
        return real(*args)
    return mock.patch.object(changing, "_inserted", then)
with meanwhile(lambda: put(2, 2, 0)):
    try:
        put(2, 3, 0)
    except lakemark.CommitConflict as error:
        refused = str(error)
# What lies elsewhere is in nobody's way.
with meanwhile(lambda: put(3, 3, 8)):
    put(3, 3, 9)
result = [show(t), refused]
""",
        t=table,
    )

    assert rows[0] == [[1, 1, 0], [2, 2, 0], [3, 3, 8], [3, 3, 9]]
    assert f"policy '{policy}'" in rows[1]


@pytest.mark.one_spark
@pytest.mark.parametrize("kind", ["without_key", pytest.param("key_alone", marks=pytest.mark.slow), "merged"])
def test_changes_between_versions_are_told(server: Client, spark: SparkProcess, table: str, kind: str) -> None:
    server.tables.create(table, "id bigint, m map<string,int>, p int", partitioned_by=["p"], properties=KINDS[kind])
    if kind == "without_key":
        server.tables.alter(table, "DROP COLUMN m")  # Spark compares no maps

    told = run(
        spark,
        SHOW
        + """
named = {"keys": ["id"]} if keys(t) else {}
columns = [one.name for one in client.plan(t).schema.columns]
base = spark.range(6).selectExpr("id", "map('a', int(id)) m", "int(id % 2) p").select(*columns)
first = ls.insert(base, t, server=client, **named).commit.version
ls.delete(spark, t, "id = 4", server=client)
client.tables.alter(t, "ADD COLUMN x INT FIRST")
updated = ls.update(spark, t, {"x": "7"}, "id = 1", server=client).commit.version
ls.insert(base.where("id = 0").withColumn("id", F.lit(9)), t, server=client, **named)
if client.tables.get(t).properties.get("lakemark.write.mode"):
    ls.compact(spark, t, server=client)
def told(*versions, **how):
    found = ls.changes(spark, t, *versions, server=client, **how)
    found = found.selectExpr("lakemark_change", "id", "x" if "x" in found.columns else "null")
    return sorted([list(row) for row in found.collect()])
both = told(first, updated, before=True)
result = [told(first, updated), both, told(0, first), told(updated), told(updated, updated)]
""",
        t=table,
    )

    if kind == "without_key":
        assert told[0] == told[1] == [["delete", 1, None], ["delete", 4, None], ["insert", 1, 7]]
    else:
        assert told[0] == [["delete", 4, None], ["update_after", 1, 7]]
        assert told[1] == [["delete", 4, None], ["update_after", 1, 7], ["update_before", 1, None]]
    assert told[2] == [["insert", one, None] for one in range(6)]
    assert told[3:] == [[["insert", 9, None]], []]
    with pytest.raises(SparkStatementError, match="from_version=99 is not a version up to"):
        run(spark, "ls.changes(spark, t, 99, server=client)")
