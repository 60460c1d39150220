"""Deleting rows from lake tables, copy-on-write: one commit each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakemark import Client, Commit, DataFile, Plan, Writer
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.reader import numbered_rows
from lakemark_spark.rewrites import FILE, files_of, planned_bases, write_again


def delete(
    spark: SparkSession,
    table: str,
    where: str,
    *,
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    request_id: str | None = None,
    branch: str = "",
) -> Commit | None:
    """Takes the rows for which ``where`` (Spark SQL) is true out of ``database.table``, in one commit.

    Files in which all rows match are taken out without being read; those in which some do are written again without
    them, in the same file group; no other file is touched. None: no row matches, and nothing is committed. Texts that
    ``where`` compares with instants are in UTC unless they name a zone. The rest is as in ``append``.

    Under the table's policy it is a delete in the partitions of all files that could hold such rows, and in the file
    groups that it changes. Raises CommitConflict if another commit or writer was first: nothing is changed then, ask
    again. Raises UnsupportedOperation if those files have deltas; InvalidPredicate, TableNotFound.
    """
    with (
        use_client(server) as client,
        client.begin(table, "delete", start=False, request_id=request_id, branch=branch) as writer,
    ):
        if writer.committed:
            return writer.commit()
        plan = client.plan(table, where, version=writer.read_version, branch=branch)
        files = planned_bases(plan, table)
        # As it was read: a branch may be behind the table's latest schema.
        writer.schema = plan.schema
        gone = [file for file in files if file.matches_entirely]
        read = [file for file in files if not file.matches_entirely]
        changed = _with_matches(spark, plan, read)
        if not gone and not changed:
            writer.rollback("no row matches the condition")
            return None
        partitions = list(dict.fromkeys(file.partition for file in files))
        writer.start(partitions, file_groups=list(dict.fromkeys(file.file_group for file in (*gone, *changed))))
        added = _without_matches(spark, plan, changed, writer)
        return writer.commit(added, removed=[file.path for file in (*gone, *changed)], metadata=metadata)


def _with_matches(spark: SparkSession, plan: Plan, files: Sequence[DataFile]) -> list[DataFile]:
    """Those that hold a row for which the plan's predicate is true."""
    if not files:
        return []
    return files_of(numbered_rows(spark, plan, files, plan.schema, FILE).where(plan.summary.residual), files)


def _without_matches(spark: SparkSession, plan: Plan, files: Sequence[DataFile], writer: Writer) -> list[DataFile]:
    if not files:
        return []
    matches = F.coalesce(F.expr(plan.summary.residual), F.lit(False))
    return write_again(numbered_rows(spark, plan, files, plan.schema, FILE).where(~matches), files, writer)
