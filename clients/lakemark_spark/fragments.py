"""Small files of tables without buckets are written together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from lakemark import Client, Commit, DataFile, Plan, Writer
from lakemark.files.runs import RunLimits, bins_of, without_deltas
from lakemark_core.errors import FailedPrecondition
from lakemark_spark import layout
from lakemark_spark.footers import describe_files
from lakemark_spark.reader import numbered_rows
from lakemark_spark.rewrites import FILE


def merge_fragments(
    client: Client,
    spark: SparkSession,
    writer: Writer,
    where: str | None,
    target_bytes: int,
    *,
    branch: str,
    metadata: Mapping[str, str] | None,
    limits: RunLimits | None = None,
) -> Commit | None:
    """Commits files of about ``target_bytes`` in the places of those that are smaller than half of it.

    ``limits``: only those files that it chooses. None: no partition has two such files among those that may hold rows
    which ``where`` selects. Raises CommitConflict.
    """
    plan = client.plan(writer.table, where, version=writer.read_version, branch=branch)
    small = without_deltas(plan.files())
    bins = bins_of(small if limits is None else limits.fragments(small), target_bytes)
    if not bins:
        writer.rollback("there are no small files to merge")
        return None
    files = [file for one in bins for file in one]
    start_rewrite(writer, files)
    numbers = [number for number, one in enumerate(bins) for _ in one]
    rows = numbered_rows(spark, plan, files, writer.schema, FILE, numbers)
    attempt = layout.Attempt.new(writer.location)
    layout.write_numbered(layout.gathered(rows, FILE, writer.schema), FILE, writer.schema, attempt)
    return commit_rewrite(spark, [attempt], plan, files, writer, metadata)


def start_rewrite(writer: Writer, files: Sequence[DataFile]) -> None:
    """Tells the service which files the writer is going to replace. Raises CommitConflict."""
    writer.start(
        list(dict.fromkeys(file.partition for file in files)),
        file_groups=list(dict.fromkeys(file.file_group for file in files)),
    )


def commit_rewrite(
    spark: SparkSession,
    attempts: Sequence[layout.Attempt],
    plan: Plan,
    files: Sequence[DataFile],
    writer: Writer,
    metadata: Mapping[str, str] | None,
) -> Commit:
    """Commits what the attempts have written in the places of ``files``: the same rows in other files.

    Raises FailedPrecondition, before anything is changed, if the number of rows is not the same; CommitConflict.
    """
    paths = [path for attempt in attempts for path in layout.written_files(attempt)]
    added = describe_files(spark, paths, writer.location, writer.schema)
    before, after = (sum(file.row_count for file in some) for some in (files, added))
    if before != after:
        raise FailedPrecondition(
            f"{writer.table}: {len(files)} files of version {plan.version} have {before} rows by their entries, and "
            f"{after} were read and written; nothing is changed. lakemark verify compares entries with files"
        )
    return writer.commit(added, removed=[file.path for file in files], metadata=metadata)
