"""Statistics of the files that Spark wrote, from their footers: in the driver for few files, else in the executors.

Over Spark Connect always here: executors far away need not have Lakemark's client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyspark.sql import SparkSession

from lakemark.files import DataFile
from lakemark.parquet import describe
from lakemark_core.errors import InvalidSchema
from lakemark_core.storage import join, open_location
from lakemark_core.types import Schema, values_of_partition
from lakemark_spark.sessions import is_connect

IN_DRIVER_MAX: Final = 64
FILES_PER_TASK: Final = 64
THREADS: Final = 8


def describe_files(spark: SparkSession, paths: Sequence[str], location: str, schema: Schema) -> list[DataFile]:
    """Entries of files, in the order of ``paths``.

    ``paths`` are relative to ``location`` (of the instant); those of the entries to the table. Executors need
    Lakemark's client and access to the location by pyarrow, as the driver does.
    """
    # Unique in the table, because the instant is.
    instant = location.rstrip("/").rpartition("/")[2]
    named = [(f"{instant}-{number:06d}", path) for number, path in enumerate(paths)]
    if len(named) <= IN_DRIVER_MAX or is_connect(spark):
        return list(_describe(named, location, schema))
    tasks = -(-len(named) // FILES_PER_TASK)
    rdd = spark.sparkContext.parallelize(named, tasks)
    return rdd.mapPartitions(lambda part: _describe(part, location, schema)).collect()


def check_not_null(files: Sequence[DataFile], schema: Schema, table: str) -> None:
    """Spark writes nulls into any column; the footers tell. Raises InvalidSchema."""
    required = {field.id: field.name for field in schema.data_columns if not field.nullable}
    partitions = [(at, field.name) for at, field in enumerate(schema.partition_fields) if not field.nullable]
    for file in files:
        for at, name in partitions:
            if file.partition[at] is None:
                raise _is_not_null(name, table)
        for statistics in file.statistics:
            if statistics.column_id in required and statistics.null_count:
                raise _is_not_null(required[statistics.column_id], table)


def _is_not_null(name: str, table: str) -> InvalidSchema:
    return InvalidSchema(f"column '{name}' of {table} is NOT NULL, and the DataFrame has nulls in it", table=table)


def _describe(named: Iterable[tuple[str, str]], location: str, schema: Schema) -> Iterator[DataFile]:
    filesystem, place = open_location(location)
    root, _, _ = place.rstrip("/").rpartition("/")

    def one(group_and_path: tuple[str, str]) -> DataFile:
        group, path = group_and_path
        partition = "/".join(path.split("/")[:-2])
        return describe(
            join(place, path),
            schema,
            root=root,
            partition=values_of_partition(partition, schema),
            filesystem=filesystem,
            file_group=group,
        )

    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(one, named)
