"""Deleting rows from lake tables, copy-on-write: one commit each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakemark import Client, Commit, DataFile, Plan, Writer
from lakemark.errors import UnsupportedOperation
from lakemark_spark import layout
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.footers import describe_files
from lakemark_spark.reader import numbered_rows

_FILE: Final = " file"  # no column is named so: names do not begin with a space


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
        files = plan.files()
        _refuse_deltas(files, plan, table)
        # As it was read: a branch may be behind the table's latest schema.
        writer.schema = plan.schema
        gone = [file for file in files if file.matches_entirely]
        read = [file for file in files if not file.matches_entirely]
        changed = _with_matches(spark, plan, read)
        if not gone and not changed:
            writer.rollback("no row matches the condition")
            return None
        partitions = dict.fromkeys(file.partition for file in files)
        writer.start(partitions, file_groups=dict.fromkeys(file.file_group for file in (*gone, *changed)))
        added = _without_matches(spark, plan, changed, writer)
        return writer.commit(added, removed=[file.path for file in (*gone, *changed)], metadata=metadata)


def _refuse_deltas(files: Sequence[DataFile], plan: Plan, table: str) -> None:
    deltas = sum(file.kind != "base" for file in files)
    if deltas:
        raise UnsupportedOperation(
            f"{table} has {deltas} delta files at version {plan.version} among those that may hold such rows, and rows "
            "are deleted by writing base files again: compact their file groups first"
        )


def _with_matches(spark: SparkSession, plan: Plan, files: Sequence[DataFile]) -> list[DataFile]:
    """Those that hold a row for which the plan's predicate is true."""
    if not files:
        return []
    matching = numbered_rows(spark, plan, files, _FILE).where(plan.summary.residual)
    found = {row[0] for row in matching.select(F.col(f"`{_FILE}`")).distinct().collect()}
    return [file for at, file in enumerate(files) if at in found]


def _without_matches(spark: SparkSession, plan: Plan, files: Sequence[DataFile], writer: Writer) -> list[DataFile]:
    """The files that take the places of ``files``; none for one of which all rows match."""
    if not files:
        return []
    matches = F.coalesce(F.expr(plan.summary.residual), F.lit(False))
    attempt = layout.Attempt.new(writer.location)
    layout.write_numbered(numbered_rows(spark, plan, files, _FILE).where(~matches), _FILE, writer.schema, attempt)
    written = describe_files(spark, layout.written_files(spark, attempt), writer.location, writer.schema)
    replaced = [files[layout.number_of(file.path)] for file in written]
    return [
        replace(new, file_group=old.file_group, bucket=old.bucket) for new, old in zip(written, replaced, strict=True)
    ]
