"""A client of Spark Connect that goes through the functions of ``lakemark_spark``: no JVM is in its process.

Arguments: the address of the Connect server, and of the service, and a directory for a stream. Prints one JSON object
of what it has read.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import lakemark_spark as ls
from lakemark import connect
from lakemark_spark import compactions


def main() -> None:
    """Writes tables of each kind, and reads them."""
    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    with connect(sys.argv[2]) as client:
        answers = {
            "plain": _plain(spark, client),
            "keyed": _keyed(spark, client),
            "streamed": _streamed(spark, client, sys.argv[2], sys.argv[3]),
            "module": type(spark).__module__,
        }
    print(json.dumps(answers))
    spark.stop()


def _plain(spark: SparkSession, client: Any) -> Any:
    table = "connect.plain"
    rows = spark.createDataFrame([(one, f"v{one}") for one in range(10)], "id bigint, v string")
    for _ in range(2):
        ls.append(rows, table, server=client)
    ls.append(spark.range(100, 1_000, 1, 80).selectExpr("id", "'r' v"), table, server=client)
    files = len(client.plan(table).files())
    ls.delete(spark, table, "id >= 110", server=client)
    ls.upsert(spark.range(9, 11).selectExpr("id", "'u' v"), table, keys="id", server=client)
    compacted = ls.compact(spark, table, server=client)
    assert compacted is not None
    ls.cluster(spark, table, columns=["v", "id"], order="z-order", server=client)
    read = ls.read(spark, table, "id >= 8", server=client).orderBy("id", "v")
    return [files, len(client.plan(table).files()), [list(row) for row in read.collect()]]


def _keyed(spark: SparkSession, client: Any) -> Any:
    table = "connect.keyed"

    def rows(*values: tuple[int, int, str]) -> Any:
        return spark.createDataFrame(list(values), "id bigint, t int, p string")

    ls.upsert(rows((1, 1, "a"), (2, 1, "a"), (3, 1, "b")), table, server=client)
    ls.insert(rows((3, 9, "b"), (4, 1, "b")), table, server=client)
    ls.update(spark, table, {"t": "t + 1"}, "id = 2", server=client)
    merge = ls.merge(rows((1, 5, "a"), (5, 5, "a")), table, server=client)
    merge.when_matched_delete().when_not_matched_insert_all().execute()
    with mock.patch.object(compactions, "LARGE_ROWS", 1):  # each file group by a job of its own
        ls.compact(spark, table, server=client)
    ls.delete_keys(rows((4, 7, "b")), table, server=client)
    ls.upsert(rows((1, 0, "a")).withColumn("t", F.col("t") + 0), table, server=client)  # older than its delete
    told = ls.changes(spark, table, 1, server=client).orderBy("id")
    read = ls.read(spark, table, server=client).orderBy("id")
    return [[list(row) for row in frame.collect()] for frame in (read, told)]


def _streamed(spark: SparkSession, client: Any, server: str, directory: str) -> Any:
    """The function runs where Spark runs: it gets the address of the service, and opens a client of its own."""
    table = "connect.keyed"
    write = ls.stream_writer(table, "upsert", query="numbers", server=server)
    for at in range(2):
        rows = spark.createDataFrame([(10 + at, at, "s")], "id bigint, t int, p string")
        rows.write.mode("append").json(f"{directory}/in")
        numbers = spark.readStream.schema("id bigint, t int, p string").json(f"{directory}/in")
        query = numbers.writeStream.foreachBatch(write).option("checkpointLocation", f"{directory}/checkpoint")
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
    read = ls.read(spark, table, "p = 's'", server=client).orderBy("id")
    epochs = [
        version.metadata["lakemark.stream.epoch"]
        for version in client.timeline.versions(table, limit=1_000)
        if version.metadata.get("lakemark.stream.query") == "numbers/upsert"
    ]
    return [[list(row) for row in read.collect()], epochs]


if __name__ == "__main__":
    main()
