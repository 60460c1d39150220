"""Buckets that split and merge, by real Spark: rows lie where the directory says, and what is rewritten is whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakemark import Client
from lakemark_core.buckets import hash_of_key
from lakemark_core.storage import join, open_location
from lakemark_core.types import BIGINT, Field
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess

pytestmark = [pytest.mark.spark, pytest.mark.one_spark]

GROWING = {
    "lakemark.primary-key": "id,p",
    "lakemark.bucket.index": "extendible",
    "lakemark.bucket.count": "1",
}
MERGED = {**GROWING, "lakemark.write.mode": "merge-on-read"}
COLUMNS = "id bigint, x int, p string"


def bucket_of(server: Client, table: str, key: int) -> int:
    directory = server.tables.get(table).table_kind.directory
    assert directory is not None
    return directory.bucket_of(hash_of_key([key], [Field(1, "id", BIGINT)]))


def groups(server: Client, table: str, kind: str = "base") -> list[str]:
    return sorted(file.file_group for file in server.plan(table) if file.kind == kind)


def rows(server: Client, table: str) -> dict[int, int]:
    return {row["id"]: row["x"] for row in server.read(table).to_pylist()}


def test_rows_lie_in_the_buckets_of_an_uneven_directory(server: Client, spark: SparkProcess, table: str) -> None:
    """What Spark looks up in one literal is what the directory says of the hash that the service computes."""
    server.tables.create(table, COLUMNS, partitioned_by=["p"], properties=GROWING)
    for name in ("bucket-0-of-1", "bucket-1-of-2", "bucket-3-of-4", "bucket-7-of-8", "bucket-0-of-2"):
        server.buckets.alter(table, split=[name])

    run(spark, "ls.upsert(spark.range(-300, 300).selectExpr('id', 'int(id) x', \"'a' p\"), t, server=client)", t=table)

    plan = server.plan(table)
    files = plan.files()
    assert sorted(one.name for one in server.buckets.list(table)) == sorted(file.file_group for file in files)
    for file in files:
        system, path = open_location(join(plan.location, file.path))
        ids = pq.read_table(path, filesystem=system, columns=["id"]).column("id").to_pylist()
        assert {bucket_of(server, table, one) for one in ids} == {file.bucket}
    assert Path(open_location(plan.location)[1]).is_dir()


def test_what_is_rewritten_after_a_split_is_whole(server: Client, spark: SparkProcess, table: str) -> None:
    """A condition names one key; whatever shares keys with its files is compacted with them."""
    server.tables.create(table, COLUMNS, partitioned_by=["p"], properties=MERGED)
    upsert = "ls.upsert(spark.range(n).selectExpr('id', f'{x} x', \"'a' p\"), t, server=client)"
    run(spark, upsert, t=table, n=20, x=1)
    server.buckets.alter(table, split=["bucket-0-of-1"])
    run(spark, upsert, t=table, n=10, x=2)
    server.buckets.alter(table, merge=["bucket-0-of-1"])
    run(spark, upsert, t=table, n=5, x=3)
    expected = {key: 3 if key < 5 else 2 if key < 10 else 1 for key in range(20)}
    assert groups(server, table, "delta") == ["bucket-0-of-1", "bucket-0-of-2", "bucket-1-of-2"]
    assert rows(server, table) == expected
    server.buckets.alter(table, split=["bucket-0-of-1"])

    run(spark, "ls.compact(spark, t, \"id = 12 and p = 'a'\", server=client)", t=table)

    assert [(file.kind, file.file_group) for file in server.plan(table)] == [
        ("base", "bucket-0-of-2"),
        ("base", "bucket-1-of-2"),
    ]
    assert rows(server, table) == expected
    assert run(spark, "result = ls.compact(spark, t, server=client) is None", t=table), "there is nothing left to do"


def test_files_of_before_a_split_are_written_into_the_halves(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, COLUMNS, partitioned_by=["p"], properties=GROWING)
    run(spark, "ls.upsert(spark.range(20).selectExpr('id', '1 x', \"'a' p\"), t, server=client)", t=table)
    server.branches.create(table, "dev")
    server.buckets.alter(table, split=["bucket-0-of-1"])
    assert groups(server, table) == ["bucket-0-of-1"]

    run(spark, "ls.upsert(spark.range(1).selectExpr('id', '2 x', \"'a' p\"), t, server=client)", t=table)
    assert groups(server, table) == ["bucket-0-of-2", "bucket-1-of-2"]
    assert rows(server, table) == {0: 2} | dict.fromkeys(range(1, 20), 1)

    server.buckets.alter(table, merge=["bucket-0-of-1"])
    run(spark, "ls.update(spark, t, {'x': '3'}, 'id = 1', server=client)", t=table)
    assert groups(server, table) == ["bucket-0-of-1"], "the half without such a key is written with the other"
    assert rows(server, table) == {0: 2, 1: 3} | dict.fromkeys(range(2, 20), 1)

    server.buckets.alter(table, split=["bucket-0-of-1"])
    assert run(spark, "result = ls.compact(spark, t, server=client, branch='dev').version", t=table)
    branch = sorted(file.file_group for file in server.plan(table, branch="dev"))
    assert branch == ["bucket-0-of-2", "bucket-1-of-2"], "the directory holds for branches, too"
    assert groups(server, table) == ["bucket-0-of-1"]
