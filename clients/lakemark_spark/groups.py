"""The files of a table with buckets, by file group: which there are, and how new ones are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from lakemark import Client, DataFile, Plan, Writer
from lakemark.files import groups_of
from lakemark.reading.partitions import partitions_predicate
from lakemark_core import bucket_tree
from lakemark_core.errors import LakemarkError
from lakemark_core.storage import delete_with_directories
from lakemark_core.table_kind import TableKind
from lakemark_core.types import ColumnValue, name_of_partition
from lakemark_spark import layout
from lakemark_spark.batches import BUCKET, Batch, Bucket, BucketGroup, check_written
from lakemark_spark.footers import describe_files
from lakemark_spark.jobs import at_once


def plan_of_groups(client: Client, writer: Writer, branch: str, groups: Iterable[BucketGroup]) -> Plan:
    """The files of the groups' partitions, and perhaps of others, in the version that the writer reads."""
    where = partitions_predicate(list(dict.fromkeys(group.partition for group in groups)), writer.schema)
    return client.plan(writer.table, where, version=writer.read_version, branch=branch)


def files_of_groups(files: Iterable[DataFile], groups: Iterable[tuple[tuple[ColumnValue, ...], str]]) -> list[DataFile]:
    """Those that have to be replaced together in order to replace the groups, given by partition and name.

    These are the files of the groups; in an extendible index also those that share keys with them, and so on. Of the
    partitions of the groups ``files`` has all.
    """
    files = list(files)
    whole = groups_of(files).whole(groups)
    return [file for file in files if whole.touch(file.partition, file.file_group)]


def instant_of(file: DataFile) -> int:
    """The instant that wrote the file."""
    return int(file.path.partition("/")[0])


def instants_under(files: Iterable[DataFile], groups: Iterable[BucketGroup]) -> dict[BucketGroup, int]:
    """For each of the groups the instant of the latest base file that shares keys with it; none: it is left out."""
    bases = ((file.partition, file.file_group, instant_of(file)) for file in files if file.kind == "base")
    return {BucketGroup(*group): instant for group, instant in bucket_tree.instants_under(bases, groups).items()}


def write_batch(batch: Batch, writer: Writer, kind: TableKind) -> list[DataFile]:
    """Writes the rows of a batch as base files. Raises Unavailable if they are not those that were checked."""
    files = write_groups(batch.rows, writer, kind)
    check_written(batch, files)
    return files


def write_groups(
    rows: DataFrame, writer: Writer, kind: TableKind, more: Sequence[str] = (), by: Sequence[str] = ()
) -> list[DataFile]:
    """Writes rows, which are as ``by_bucket`` makes them, as one file for each file group. They become base files.

    ``more``: columns that the files have beside the table's. ``by``: the columns of ``rows`` by which a file is sorted;
    (): those of the key, so that who looks for a key reads a page of a file. With ``more`` rows stay as they are.
    """
    if not by and not more:
        by = _by_key(writer, kind)
    attempt = layout.Attempt.new(writer.location)
    layout.write_numbered(rows, BUCKET, writer.schema, attempt, more, by)
    return _bases(rows.sparkSession, attempt, writer, kind)


def write_each_group(
    spark: SparkSession,
    buckets: Iterable[Bucket],
    rows_of: Callable[[Bucket], tuple[DataFrame, Sequence[str]]],
    writer: Writer,
    kind: TableKind,
) -> list[DataFile]:
    """Writes the file group of each bucket by a job of its own, as one base file, or none if it has no rows.

    ``rows_of`` makes the rows of a group, and says by which of their columns they are sorted, as in ``write_groups``.
    """
    attempt, schema = layout.Attempt.new(writer.location), writer.schema

    def write(bucket: Bucket) -> None:
        rows, by = rows_of(bucket)
        partition, number = name_of_partition(bucket[0], schema), bucket[1]
        layout.write_file(rows, partition, number, schema, attempt, by or _by_key(writer, kind))

    at_once(spark, [partial(write, bucket) for bucket in buckets])
    files = _bases(spark, attempt, writer, kind)
    empty = [file.path.partition("/")[2] for file in files if not file.row_count]
    # What cannot be deleted, as on S3 where boto3 is missing, is an orphan.
    with suppress(LakemarkError):
        delete_with_directories(writer.location, empty)
    return [file for file in files if file.row_count]


def _by_key(writer: Writer, kind: TableKind) -> list[str]:
    return [field.name for field in kind.bucket_fields(writer.schema)]


def _bases(spark: SparkSession, attempt: layout.Attempt, writer: Writer, kind: TableKind) -> list[DataFile]:
    written = describe_files(spark, layout.written_files(attempt), writer.location, writer.schema)
    buckets = [layout.number_of(file.path) for file in written]
    return [
        replace(file, file_group=kind.group_name(bucket), bucket=bucket)
        for file, bucket in zip(written, buckets, strict=True)
    ]
