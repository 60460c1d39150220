"""The driver of a streaming job, to be killed: reads a directory of JSON files, about one a batch, into two tables.

After every third batch it compacts the table with a key, unless somebody else does.

Arguments: one JSON object with Spark's ``settings``, ``server``, ``source`` (a directory), ``checkpoint``, ``log`` (the
table that gets all rows) and ``newest`` (the one with a key). It ends when all files are read.
"""

import json
import sys
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import lakemark_spark
from lakemark import CommitConflict


def main() -> None:
    """Runs the query until its source has no more files."""
    job = json.loads(sys.argv[1])
    builder = SparkSession.builder
    for name, value in job["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    append = lakemark_spark.stream_writer(job["log"], server=job["server"])
    upsert = lakemark_spark.stream_writer(job["newest"], "upsert", server=job["server"])

    def write(batch: Any, epoch: int) -> None:
        print(f"begun {epoch}", flush=True)
        append(batch, epoch)
        print(f"appended {epoch}", flush=True)
        # Spark may put the files of two batches into one after a kill, and then a key may be there twice.
        newest = batch.groupBy("id").agg(F.max_by("job", "value").alias("job"), F.max("value").alias("value"))
        upsert(newest, epoch)
        print(f"upserted {epoch}", flush=True)
        if epoch % 3 == 1:
            with suppress(CommitConflict):
                lakemark_spark.compact(spark, job["newest"], server=job["server"])

    rows = (
        spark.readStream.schema("id bigint, job string, value bigint")
        .option("maxFilesPerTrigger", 1)
        .json(job["source"])
    )
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", job["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
