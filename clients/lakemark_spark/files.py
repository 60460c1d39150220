"""Exactly these files as a DataFrame, by Spark's native scan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

from lakemark_spark.locations import for_spark, reached_by

_PATTERN_CHARACTER: Final = re.compile(r"[{}\[\]*?\\]")


def scan(spark: SparkSession, paths: Sequence[str], schema: T.StructType, root: str | None = None) -> DataFrame:
    """The rows of all files at or below ``paths``, with only the columns that the files themselves hold.

    ``root``: and the columns that directories between it and the files are named for, which ``schema`` has, too.
    Paths are taken as they are, also with characters that would otherwise be patterns. Recursive lookup is what keeps
    Spark from taking directories for partitions. Raises StorageRefused if Spark cannot reach them.
    """
    tree = {"recursiveFileLookup": "true"} if root is None else {"basePath": for_spark(root)}
    reader = spark.read.schema(schema).options(**tree)
    with reached_by(spark, paths[0]):
        return reader.parquet(*(_literal(for_spark(path)) for path in paths))


def _literal(path: str) -> str:
    """The pattern that matches this path alone.

    Spark can be told to take paths for no patterns (``__globPaths__``), but then it lists all paths once for each of
    those that have such characters.
    """
    return _PATTERN_CHARACTER.sub(r"\\\g<0>", path)
