"""Lake tables in a bucket, by real Spark: through PySpark, the Metastore protocol and the Python client alike."""

from __future__ import annotations

import pytest

from tests.e2e.spark_runner import SparkStatementError
from tests.e2e.storage.conftest import SparkWorld
from tests.integration.storage.test_lake_on_s3 import until

pytestmark = pytest.mark.spark

ROWS = "ls.append(spark.range({0}, {1}, 1, 2).selectExpr('id', 'cast(id % 3 as int) p'), t, server=client, branch=b)"


def append(world: SparkWorld, table: str, first: int, end: int, branch: str = "") -> None:
    world.run(ROWS.format(first, end), t=table, b=branch)


def at(table: str, reference: str) -> str:
    database, name = table.split(".")
    return f"{database}.`{name}@{reference}`"


def test_what_pyspark_writes_and_changes_all_read_alike(world: SparkWorld, table: str) -> None:
    world.client.tables.create(table, "id bigint, s string, p int", partitioned_by=["p"])
    states = world.run(
        """
        rows = lambda first, end, s: spark.range(first, end, 1, 2).selectExpr("id", f"'{s}' s", "cast(id % 3 as int) p")
        ls.append(rows(0, 12, "a"), t, server=client)
        ls.upsert(rows(9, 15, "b"), t, keys=["id", "p"], server=client)
        ls.delete(spark, t, "id < 3 or id = 14", server=client)
        ls.overwrite(rows(100, 101, "c"), t, partitions="dynamic", server=client)
        result = [ids(t, version=version) for version in range(1, 5)]
        """,
        t=table,
    )
    expected = [
        list(range(12)),
        list(range(15)),
        list(range(3, 14)),
        [one for one in range(3, 14) if one % 3 != 1] + [100],
    ]
    assert states == expected
    for version, ids in enumerate(expected, 1):
        assert world.sql_ids(at(table, f"v{version}")) == ids
        assert sorted(world.client.read(table, version=version).column("id").to_pylist()) == ids
    assert world.sql_ids(table) == expected[-1]
    strings = world.spark.sql(f"SELECT s, count(*) FROM {table} WHERE p = 0 GROUP BY s ORDER BY s")
    assert strings == [("a", 2), ("b", 2)]
    location = world.client.tables.get(table).location
    assert location.startswith("s3://")
    assert all(path.startswith(f"{location}/") for path in world.client.plan(table).paths)


def test_branches_drops_and_cleans(world: SparkWorld, table: str) -> None:
    world.client.tables.create(table, "id bigint, p int", partitioned_by=["p"])
    append(world, table, 0, 6)
    world.client.branches.create(table, "dev")
    append(world, table, 6, 9, "dev")
    assert (world.ids(table), world.ids(table, branch="dev")) == (list(range(6)), list(range(9)))
    assert world.sql_ids(at(table, "dev")) == list(range(9))
    world.client.branches.merge(table, "dev")
    world.client.branches.drop(table, "dev")
    assert world.sql_ids(table) == list(range(9))
    world.run("ls.overwrite(spark.range(5, 6).selectExpr('id', '1 p'), t, server=client)", t=table)
    world.client.timeline.clean(table, retain_versions=1)
    assert len(world.files(table)) == 1
    assert len({key.split("/")[3] for key in world.keys(table)}) == 1, "markers of other instants are gone, too"
    assert world.ids(table) == world.sql_ids(table) == [5]
    world.spark.sql(f"DROP VIEW {table}")
    world.client.tables.undrop(table)
    assert world.sql_ids(table) == [5]
    location = world.client.tables.get(table).location
    world.client.tables.drop(table, now=True)
    assert world.bucket.keys(location.removeprefix(f"{world.bucket.uri}/")) == []


def test_a_writer_that_fails_or_is_lost_leaves_nothing(world: SparkWorld, table: str) -> None:
    world.client.tables.create(table, "id bigint, p int", partitioned_by=["p"])
    append(world, table, 0, 6)
    before = world.files(table)
    with pytest.raises(SparkStatementError, match="boom"):
        world.run(
            """
            df = spark.range(100).selectExpr("if(id = 99, cast(raise_error('boom') as bigint), id) id", "0 p")
            ls.append(df, t, server=client, distribute=False)
            """,
            t=table,
        )
    until(lambda: world.files(table) == before)
    world.run(
        """
        from lakemark_spark import layout
        lost = client.begin(t, "append")
        layout.write(spark.range(5).selectExpr("id", "0 p"), lost.schema, layout.Attempt.new(lost.location),
                     distribute=True)
        result = lost.instant
        """,
        t=table,
    )
    assert len(world.files(table)) == len(before) + 1
    half = f"{world.files(table)[-1]}.half"
    world.bucket.begin_upload(half)
    world.run("lost.rollback()")
    until(lambda: world.files(table) == before)
    until(lambda: half not in world.bucket.uploads())
    assert world.sql_ids(table) == list(range(6))


def test_partitions_whose_values_uris_escape(world: SparkWorld, table: str) -> None:
    """Also if there are more than PySpark reads one by one: rows are then matched with their files by name."""
    world.client.tables.create(table, "id bigint, place string", partitioned_by=["place"])
    places = ["a b", "c/d", "e%20f", "ü=+", "g#h?i", "{x}[y]*"]
    read = world.run(
        """
        df = spark.createDataFrame(list(enumerate(places)), "id bigint, place string")
        ls.append(df, t, server=client)
        shown = lambda: [row.place for row in ls.read(spark, t, server=client).orderBy("id").collect()]
        result = [shown()]
        with mock.patch.object(ls.reader, "UNION_MAX", 3):
            result += [shown()]
        """,
        t=table,
        places=places,
    )
    assert read == [places, places]
    assert world.run("result = ids(t, where=w)", t=table, w="place in ('e%20f', 'c/d')") == [1, 2]
    assert world.spark.sql(f"SELECT id, place FROM {table} ORDER BY id") == list(enumerate(places))
