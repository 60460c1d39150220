"""Deleting rows from lake tables, by predicate or by key: one commit each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from lakemark import Client, Commit, DataFile, Plan, Writer
from lakemark_core.errors import InvalidSchema, UnsupportedOperation
from lakemark_core.table_kind import BUCKETS_PROPERTY, TableKind
from lakemark_core.types import Schema
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.deltas import delete_deltas
from lakemark_spark.group_rewrites import delete_groups
from lakemark_spark.kinds import kind_of_table
from lakemark_spark.queries import selected
from lakemark_spark.reader import merged_rows, numbered_rows
from lakemark_spark.rewrites import FILE, files_of, planned_bases, write_again
from lakemark_spark.schema import columns_for


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

    In a table that is merged on read their keys are read, and written as deltas. In all others it is copy-on-write:
    files in which all rows match are taken out without being read; those in which some do are written again without
    them, in the same file group; no other file is touched. None: no row matches, and nothing is committed. Texts that
    ``where`` compares with instants are in UTC unless they name a zone. The rest is as in ``append``.

    Under the table's policy it is a delete in the partitions of all files that could hold such rows, and in the file
    groups that it changes. Raises CommitConflict if another commit or writer was first: nothing is changed then, ask
    again. Raises UnsupportedOperation if those files have deltas; InvalidPredicate, TableNotFound.
    """
    with use_client(server) as client:
        kind = kind_of_table(client, table)
        with client.begin(table, "delete", start=False, request_id=request_id, branch=branch) as writer:
            if writer.committed:
                return writer.commit()
            plan = client.plan(table, where, version=writer.read_version, branch=branch)
            if kind.merges_on_read:
                return _delete_on_read(spark, client, plan, writer, kind, branch, metadata)
            return _delete(spark, plan, writer, metadata)


def delete_keys(
    df: DataFrame,
    table: str,
    *,
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    request_id: str | None = None,
    branch: str = "",
) -> Commit | None:
    """Deletes the rows of ``database.table`` whose keys ``df`` has, in one commit; keys that are not there do nothing.

    For tables with buckets. ``df`` has the columns of the key and the ordering column if there is one: a row that is
    newer than its delete stays. Other columns of ``df`` are passed over. None: ``df`` has no rows. The rest is as in
    ``upsert``.
    """
    with use_client(server) as client:
        kind = kind_of_table(client, table)
        if not kind.buckets:
            raise UnsupportedOperation(
                f"{table} has no buckets ({BUCKETS_PROPERTY}), by which the rows of a key are found: use delete with a "
                "condition",
                table=table,
            )
        with client.begin(table, "delete", start=False, request_id=request_id, branch=branch) as writer:
            if writer.committed:
                return writer.commit()
            rows = _keys_of(df, writer, kind)
            delete_rows = delete_deltas if kind.merges_on_read else delete_groups
            return delete_rows(client, rows, writer, kind, branch=branch, metadata=metadata)


def _keys_of(df: DataFrame, writer: Writer, kind: TableKind) -> DataFrame:
    """The columns of ``df`` that say which rows are to be deleted. Raises InvalidSchema with every misfit."""
    fields = kind.identifying_fields(writer.schema)
    names = {field.name.lower() for field in fields}
    wanted = T.StructType([one for one in df.schema.fields if one.name.lower() in names])
    missing = [field.name for field in fields if field.name.lower() not in {one.name.lower() for one in wanted}]
    if missing:
        raise InvalidSchema(
            f"the DataFrame does not fit {writer.table}: column{'s' if len(missing) > 1 else ''} "
            f"{', '.join(map(repr, missing))} missing; a delete needs the key and the ordering column",
            table=writer.table,
        )
    partitions = [field.name for field in fields if writer.schema.is_partition(field.name)]
    return selected(df, columns_for(wanted, Schema.build(fields, partitions), writer.table))


def _delete_on_read(
    spark: SparkSession,
    client: Client,
    plan: Plan,
    writer: Writer,
    kind: TableKind,
    branch: str,
    metadata: Mapping[str, str] | None,
) -> Commit | None:
    files = plan.files()
    rows = merged_rows(spark, plan, files, kind)
    if plan.summary.residual and files:
        rows = rows.where(plan.summary.residual)
    keys = rows.select(*(F.col(f"`{field.name}`") for field in kind.identifying_fields(plan.schema)))
    partitions = list(dict.fromkeys(file.partition for file in files))
    return delete_deltas(client, keys, writer, kind, branch=branch, partitions=partitions, metadata=metadata)


def _delete(spark: SparkSession, plan: Plan, writer: Writer, metadata: Mapping[str, str] | None) -> Commit | None:
    files = planned_bases(plan, writer.table)
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
