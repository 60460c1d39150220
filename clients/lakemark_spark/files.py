"""Exactly these files as a DataFrame, by Spark's native scan."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

from lakemark_spark.locations import for_spark, reached_by


def scan(spark: SparkSession, paths: Sequence[str], schema: T.StructType) -> DataFrame:
    """The rows of all files at or below ``paths``, with only the columns that the files themselves hold.

    Paths are taken as they are, also with characters that would otherwise be patterns. Recursive lookup is what keeps
    Spark from taking directories for partitions (and, without patterns, from reading such files several times).
    Raises StorageRefused if Spark cannot reach them.
    """
    reader = spark.read.schema(schema).option("recursiveFileLookup", True).option("__globPaths__", "false")
    with reached_by(spark, paths[0]):
        return reader.parquet(*map(for_spark, paths))
