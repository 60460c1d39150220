"""Compactions of large file groups: each is written by a job of its own, beside those that are written together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakemark import Client
from lakemark_core.storage import local_path
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = [pytest.mark.spark, pytest.mark.one_spark]

KEYED = {"lakemark.primary-key": "id,p", "lakemark.bucket.count": "2", "lakemark.write.mode": "merge-on-read"}
COLUMNS = "id bigint, v int, at timestamp, p string, day date, big decimal(9,2)"
PARTITIONED = ["p", "day", "big"]
PLACES = ("x", "y/z=ü %20{a}", "gone")

HELPERS = """
import lakemark_spark.compactions as compactions
from lakemark_spark import layout

def rows(first, end, v, place):
    return spark.range(first, end, 1, 3).selectExpr(
        "id", f"{v} v", "timestamp_micros(id) at", f"'{place}' p", "date'2026-01-31' day", "-1.50BD big"
    )

def upsert(first, end, v, place):
    ls.upsert(rows(first, end, v, place), t, server=client)

def shown():
    every = ls.read(spark, t, server=client).selectExpr("id", "v", "unix_micros(at) at", "p", "string(day) day", "big")
    return sorted([str(list(row)) for row in every.collect()])

def of_jobs(least, work):
    # The partitions and buckets that jobs of their own have written meanwhile.
    write, written = layout.write_file, []
    def spied(rows, partition, number, *more):
        written.append([partition, number, spark.sparkContext.getLocalProperty("spark.jobGroup.id")])
        return write(rows, partition, number, *more)
    with mock.patch.object(layout, "write_file", spied), mock.patch.object(compactions, "LARGE_ROWS", least):
        work()
    return sorted(written)
"""


@pytest.mark.parametrize("index", ["fixed", "extendible"])
def test_they_are_what_they_were(server: Client, spark: SparkProcess, table: str, index: str) -> None:
    table = f"{table}{index[0]}"
    properties = KEYED | {"lakemark.bucket.index": index, "lakemark.primary-key": "id,p,day,big"}
    server.tables.create(table, COLUMNS, partitioned_by=PARTITIONED, properties=properties)
    before, written, after = run(
        spark,
        HELPERS
        + """
for end, place in ((100, "x"), (600, "y/z=ü %20{a}"), (700, "gone")):
    upsert(0, end, 1, place)
    upsert(end, end + 10, 2, place)
    upsert(0, end // 2, 2, place)
ls.delete(spark, t, "p = 'gone' or id = 7", server=client)
before = shown()
spark.sparkContext.setJobGroup("the caller's", "")
written = of_jobs(200, lambda: ls.compact(spark, t, server=client))
spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
result = [before, written, shown()]
""",
        t=table,
    )
    assert before == after
    assert len(before) == 110 + 610 - 2
    buckets = [0, 1] if index == "fixed" else [2, 3]
    large = ("gone", "y%2Fz%3Dü %2520%7Ba}")
    assert sorted(written) == sorted(
        [f"p={p}/day=2026-01-31/big=-1.50", bucket, "the caller's"] for p in large for bucket in buckets
    )
    files = server.plan(table).files()
    assert {file.kind for file in files} == {"base"}
    assert sorted({file.partition[0] for file in files}) == sorted(PLACES[:2])
    assert len(files) == 4
    assert _written(server, table, files[0].path) == {file.path for file in files}, "no file without rows is left"
    for file in files:
        ids = _ids(server, table, file.path)
        assert ids == sorted(ids)
        assert len(ids) == file.row_count


def test_buckets_that_were_split_since_are_written_together(server: Client, spark: SparkProcess, table: str) -> None:
    properties = KEYED | {"lakemark.bucket.index": "extendible"}
    server.tables.create(table, "id bigint, v int, p string", partitioned_by=["p"], properties=properties)
    rows = run(
        spark,
        HELPERS
        + """
def rows(first, end, v, place):
    return spark.range(first, end).selectExpr("id", f"{v} v", f"'{place}' p")
shown = lambda: sorted([list(row) for row in ls.read(spark, t, server=client).collect()])
upsert(0, 100, 1, "x")
upsert(0, 100, 1, "y")
client.buckets.alter(t, split=["bucket-0-of-2"])
upsert(0, 50, 2, "x")
assert of_jobs(1, lambda: ls.compact(spark, t, server=client)) == []
upsert(0, 50, 3, "x")
expected = shown()
assert [number for _, number, _ in of_jobs(1, lambda: ls.compact(spark, t, server=client))] == [3, 4, 6]
assert shown() == expected
result = expected
""",
        t=table,
    )
    assert rows == sorted([n, 3 if n < 50 and p == "x" else 1, p] for n in range(100) for p in ("x", "y"))
    assert {file.kind for file in server.plan(table)} == {"base"}


def test_a_table_without_partitions(server: Client, spark: SparkProcess, table: str) -> None:
    """Clustered: all file groups are written again, also those without deltas, and in another order."""
    properties = {name: value for name, value in KEYED.items() if name != "lakemark.primary-key"}
    server.tables.create(table, "id bigint, v int", properties=properties | {"lakemark.primary-key": "id"})
    written, rows = run(
        spark,
        HELPERS
        + """
ls.upsert(spark.range(100).selectExpr("id", "int(-id) v"), t, server=client)
written = of_jobs(1, lambda: ls.cluster(spark, t, columns=["v", "id"], order="z-order", server=client))
shown = lambda: sorted([list(row) for row in ls.read(spark, t, server=client).collect()])
result = [written, shown()]
""",
        t=table,
    )
    assert [place[:2] for place in written] == [["", 0], ["", 1]]
    assert rows == [[number, -number] for number in range(100)]
    assert len(server.plan(table).files()) == 2


def test_if_one_job_fails_nothing_is_changed(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, v int, p string", partitioned_by=["p"], properties=KEYED)
    compaction = (
        HELPERS
        + """
def rows(first, end, v, place):
    return spark.range(first, end).selectExpr("id", f"{v} v", f"'{place}' p")
for v in (1, 2):
    for place in ("x", "y", "z"):
        upsert(0, 20, v, place)
write = layout.write_file
def failing(rows, partition, number, *more):
    if partition == "p=y":
        rows = rows.withColumn("v", F.raise_error(F.lit("no room for this group")).cast("int"))
    return write(rows, partition, number, *more)
with mock.patch.object(layout, "write_file", failing), mock.patch.object(compactions, "LARGE_ROWS", 1):
    ls.compact(spark, t, server=client)
"""
    )
    with pytest.raises(SparkStatementError, match="no room for this group"):
        run(spark, compaction, t=table)
    assert server.snapshot(table).version == 6
    assert server.read(table, "v = 2").num_rows == 60
    assert [one.state for one in server.timeline.instants(table, newest_first=True, limit=1)] == ["rolled_back"]


def _directory(server: Client, table: str) -> Path:
    return Path(local_path(server.tables.get(table).location))


def _written(server: Client, table: str, path: str) -> set[str]:
    """All parquet files of the instant that wrote this one."""
    root = _directory(server, table)
    return {str(file.relative_to(root)) for file in (root / path.partition("/")[0]).rglob("*.parquet")}


def _ids(server: Client, table: str, path: str) -> list[Any]:
    return list(pq.read_table(_directory(server, table) / path, columns=["id"], partitioning=None)["id"].to_pylist())
