"""Changes of tables with buckets, copy-on-write: the file groups of the keys' buckets are written again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakemark import Client, Commit, DataFile, Plan, Writer
from lakemark_core.merge_sql import DELETE, OPERATION, UPSERT, LogSize, check_delta_names, columns_text
from lakemark_core.table_kind import TableKind
from lakemark_core.types import Field
from lakemark_spark.batches import Batch, batch_of, by_bucket, check_rewritten
from lakemark_spark.deltas import as_log, delete_columns, given_fields
from lakemark_spark.groups import files_of_groups, plan_of_groups, write_groups
from lakemark_spark.merges import merge
from lakemark_spark.queries import selected, text_sql
from lakemark_spark.reader import merged_rows
from lakemark_spark.schema import columns_for


def upsert_groups(
    client: Client,
    df: DataFrame,
    writer: Writer,
    kind: TableKind,
    *,
    branch: str,
    metadata: Mapping[str, str] | None,
) -> Commit:
    """Commits the rows of ``df``.

    Columns that ``df`` does not have keep their values, unless the table has an ordering column: then all must be
    there. Raises InvalidSchema, InvalidArgument, CommitConflict.
    """
    schema = writer.schema
    given = given_fields(df, schema, kind, writer.table, partial=not kind.ordering_column)
    rows = selected(df, columns_for(df.schema, schema, writer.table))
    commit = _change(
        client,
        rows,
        writer,
        kind,
        UPSERT,
        given=None if len(given) == len(schema.columns) else given,
        required=kind.required_fields(schema),
        branch=branch,
        metadata=metadata,
    )
    return commit or writer.commit(metadata=metadata)


def delete_groups(
    client: Client,
    rows: DataFrame,
    writer: Writer,
    kind: TableKind,
    *,
    branch: str,
    metadata: Mapping[str, str] | None,
) -> Commit | None:
    """Commits deletes of the keys in ``rows``, which have the key's columns and the ordering column.

    None if there are no rows, or none in file groups that exist. Raises InvalidArgument, CommitConflict.
    """
    schema = writer.schema
    keys = rows.select(*delete_columns(schema, kind))
    ordering = [schema.field(kind.ordering_column)] if kind.ordering_column else []
    commit = _change(client, keys, writer, kind, DELETE, required=ordering, branch=branch, metadata=metadata)
    if commit is None:
        writer.rollback("there is no row to delete")
    return commit


def _change(
    client: Client,
    rows: DataFrame,
    writer: Writer,
    kind: TableKind,
    operation: str,
    *,
    given: Sequence[Field] | None = None,
    required: Sequence[Field],
    branch: str,
    metadata: Mapping[str, str] | None,
) -> Commit | None:
    """``given``: the columns that the rows have; None: all. Nothing is committed if there is nothing to change."""
    schema = writer.schema
    check_delta_names(schema, writer.table)
    # Deletes at once: the files that are written do not tell which keys were deleted.
    with batch_of(rows, schema, kind, writer.table, required, at_once=operation == DELETE) as batch:
        plan = plan_of_groups(client, writer, branch, batch.groups)
        old = files_of_groups(plan, batch.groups)
        if not batch.groups or (operation == DELETE and not old):
            return None
        writer.start(
            [group.partition for group in batch.groups], file_groups=sorted({name for _, name in batch.groups})
        )
        columns = None if given is None else text_sql(columns_text(given))
        log = as_log(batch.rows, text_sql(operation), writer.instant, columns)
        by = kind if given is None else replace(kind, merge_by="column")
        added = rewrite_groups(log, batch, plan, old, writer, by)
        return writer.commit(added, removed=[file.path for file in old], metadata=metadata)


def rewrite_groups(
    log: DataFrame, batch: Batch, plan: Plan, old: Sequence[DataFile], writer: Writer, kind: TableKind
) -> list[DataFile]:
    """Writes the file groups of ``log``, the rows of the batch by ``as_log``, with these changes.

    ``old``: the files that they have now. Raises Unavailable if there are rows of other groups.
    """
    schema = writer.schema
    if old:
        before = merged_rows(log.sparkSession, plan, old, kind, schema)
        after = merge(before, log, schema, kind, LogSize(batch.count, 1))
        files = write_groups(by_bucket(after, schema, kind), writer, kind)
    else:
        files = write_groups(log.where(F.col(OPERATION) == UPSERT), writer, kind)
    check_rewritten(batch, files, old)
    return files
