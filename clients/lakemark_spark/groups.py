"""The files of a table with buckets, by file group: which there are, and how new ones are written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from lakemark import Client, DataFile, Plan, Writer
from lakemark.reading.partitions import partitions_predicate
from lakemark_core.types import ColumnValue
from lakemark_spark import layout
from lakemark_spark.batches import BUCKET, BucketGroup, group_name
from lakemark_spark.footers import describe_files


def plan_of_groups(client: Client, writer: Writer, branch: str, groups: Iterable[BucketGroup]) -> Plan:
    """The files of the groups' partitions, and perhaps of others, in the version that the writer reads."""
    where = partitions_predicate(list(dict.fromkeys(group.partition for group in groups)), writer.schema)
    return client.plan(writer.table, where, version=writer.read_version, branch=branch)


def files_of_groups(
    files: Iterable[DataFile], groups: Collection[tuple[tuple[ColumnValue, ...], str]]
) -> list[DataFile]:
    """Those that belong to the groups, each of them given by its partition and its name."""
    return [file for file in files if (file.partition, file.file_group) in groups]


def instant_of(file: DataFile) -> int:
    """The instant that wrote the file."""
    return int(file.path.partition("/")[0])


def write_groups(rows: DataFrame, writer: Writer, more: Sequence[str] = ()) -> list[DataFile]:
    """Writes rows, which are as ``by_bucket`` makes them, as one file for each file group. They become base files.

    ``more``: columns that the files have beside the table's.
    """
    attempt = layout.Attempt.new(writer.location)
    layout.write_numbered(rows, BUCKET, writer.schema, attempt, more)
    spark = rows.sparkSession
    written = describe_files(spark, layout.written_files(attempt), writer.location, writer.schema)
    buckets = [layout.number_of(file.path) for file in written]
    return [
        replace(file, file_group=group_name(bucket), bucket=bucket)
        for file, bucket in zip(written, buckets, strict=True)
    ]
