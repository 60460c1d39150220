"""Hadoop's own committer and those of S3A: each leaves the files of the commit, at the price of docs/storage.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.storage.conftest import SparkWorld
from tests.s3a import COMMITTERS, committer_settings

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "storage.md"
KINDS = {
    "asks": ("HeadObject", "ListObjects", "ListMultipartUploads"),
    "writes": ("PutObject", "CopyObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"),
    "reads": ("GetObject",),
    "deletions": ("DeleteObject", "DeleteObjects", "AbortMultipartUpload"),
}


# With the jars that Spark has here it takes the magic one by itself, so all other tests write with that.
@pytest.fixture(params=[pytest.param(name, marks=() if name == "plain" else pytest.mark.slow) for name in COMMITTERS])
def committer(world: SparkWorld, request: pytest.FixtureRequest) -> Iterator[str]:
    settings = committer_settings(request.param)
    world.run("before = {name: spark.conf.get(name, None) for name in settings}", settings=settings)
    world.run("for name, value in settings.items(): spark.conf.set(name, value)")
    yield request.param
    world.run(
        "for name, value in before.items(): spark.conf.unset(name) if value is None else spark.conf.set(name, value)"
    )


def documented(committer: str) -> dict[int, dict[str, int]]:
    """By number of files, what the table of the page says for an append by this committer."""
    rows = re.findall(
        rf"^\| {committer}[^|]*\| (\d) \|" + r" (\d+) \|" * len(KINDS) + "$", PAGE.read_text(), re.MULTILINE
    )
    return {int(files): dict(zip(KINDS, map(int, counts), strict=True)) for files, *counts in rows}


def test_it_leaves_the_files_of_the_commit_and_costs_what_is_documented(
    world: SparkWorld, table: str, committer: str, spark_version: str
) -> None:
    world.client.tables.create(table, "id bigint, p int", partitioned_by=["p"])
    counts = {}
    for files in (1, 1, 4):  # the first one finds no directory of the table, which takes some requests more
        world.proxy.clear()
        world.run(
            "ls.append(spark.range(8).selectExpr('id', f'cast(id % {files} as int) p'), t, server=client)",
            t=table,
            files=files,
        )
        assert set(world.proxy.counts) <= {name for kind in KINDS.values() for name in kind}
        counts[files] = {kind: sum(world.proxy.counts.get(one, 0) for one in KINDS[kind]) for kind in KINDS}
    assert world.ids(table) == sorted([*range(8)] * 3)
    planned = {path.removeprefix(f"{world.bucket.uri}/") for path in world.client.plan(table).paths}
    keys = set(world.keys(table))
    assert planned <= keys
    assert {re.sub(r"/\d+/$", "/instant/", key) for key in keys - planned} <= {
        f"{next(iter(planned)).rsplit('/', 4)[0]}/instant/"
    }, "but for the marker of an instant's directory"
    assert world.bucket.uploads() == []
    if spark_version == "4.3":
        assert counts == documented(committer)


def test_statements_through_doors(world: SparkWorld, table: str, committer: str) -> None:
    """Whichever it is, it leaves a _SUCCESS beside the files, and what it needs for itself is no row of the table."""
    world.client.tables.create(table, "id bigint, p int", partitioned_by=["p"])
    world.spark.sql(f"INSERT INTO {table}__append SELECT id, CAST(id % 2 AS INT) FROM range(0, 8, 1, 2)")
    world.spark.sql(f"INSERT INTO {table}__append PARTITION (p = 1) SELECT id + 10 FROM {table} WHERE p = 1")
    assert world.sql_ids(table) == [*range(8), 11, 13, 15, 17]
    world.spark.sql(f"INSERT INTO {table}__overwrite SELECT id, p FROM {table} WHERE p = 1 AND id > 10")
    assert world.ids(table) == [0, 2, 4, 6, 11, 13, 15, 17]
    keyed = {"lakemark.primary-key": "id", "lakemark.bucket.count": "2", "lakemark.write.mode": "merge-on-read"}
    world.client.tables.create(f"{table}k", "id bigint, v int", properties=keyed)
    world.spark.sql(f"INSERT INTO {table}k__upsert SELECT id, 1 FROM range(6)")
    world.spark.sql(f"INSERT INTO {table}k__upsert SELECT id, 2 FROM range(3)")
    world.spark.sql(f"INSERT INTO {table}k__delete SELECT id FROM range(4, 6)")
    assert world.spark.sql(f"SELECT id, v FROM {table}k ORDER BY id") == [(0, 2), (1, 2), (2, 2), (3, 1)]
    assert world.bucket.uploads() == []


def test_file_groups_that_are_compacted_at_the_same_time(
    world: SparkWorld, table: str, committer: str, spark_version: str
) -> None:
    keyed = {"lakemark.primary-key": "id,p", "lakemark.bucket.count": "2", "lakemark.write.mode": "merge-on-read"}
    world.client.tables.create(table, "id bigint, v int, p int", partitioned_by=["p"], properties=keyed)
    world.run(
        """
        from unittest import mock
        import lakemark_spark.compactions as compactions
        rows = lambda end, v: spark.range(end).selectExpr("id", f"{v} v", "int(id % 3) p")
        ls.upsert(rows(30, 1), t, server=client)
        ls.upsert(rows(20, 2), t, server=client)
        ls.delete(spark, t, "p = 2", server=client)
        with mock.patch.object(compactions, "LARGE_ROWS", 1):
            ls.compact(spark, t, server=client)
        """,
        t=table,
    )
    assert sorted((row["id"], row["v"]) for row in world.client.read(table).to_pylist()) == [
        (number, 2 if number < 20 else 1) for number in range(30) if number % 3 != 2
    ]
    files = world.client.plan(table).files()
    assert len(files) == 4
    assert {file.kind for file in files} == {"base"}
    planned = {path.removeprefix(f"{world.bucket.uri}/") for path in world.client.plan(table).paths}
    (instant,) = {"/".join(path.split("/")[:-3]) for path in planned}
    written = {key for key in world.keys(table) if key.startswith(f"{instant}/") and not key.endswith("/")}
    assert planned <= written
    # Nothing is left of committers. The files of groups that have no rows any more can be deleted where boto3 is.
    left = [key.removeprefix(f"{instant}/").partition("/")[0] for key in written - planned]
    assert left == ([] if spark_version == "4.3" else ["p=2", "p=2"])
    assert world.bucket.uploads() == []
