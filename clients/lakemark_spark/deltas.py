"""Changes of rows by key, written as deltas: no row of the table is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakemark import Client, Commit, DataFile, Writer
from lakemark_core.bucket_tree import FileGroups
from lakemark_core.errors import InvalidSchema
from lakemark_core.evolution.sql import type_sql
from lakemark_core.merge_sql import (
    COLUMNS,
    DELETE,
    DELTA_FIELDS,
    INSTANT,
    OPERATION,
    UPSERT,
    check_delta_names,
    columns_text,
)
from lakemark_core.table_kind import NEVER_WAITS, TableKind
from lakemark_core.types import ColumnValue, Field, Schema
from lakemark_spark.batches import Batch, BucketGroup, batch_of, check_written
from lakemark_spark.groups import instants_under, plan_of_groups, write_batch, write_groups
from lakemark_spark.queries import Value, named, selected, text_sql
from lakemark_spark.schema import columns_for, to_spark


def upsert_deltas(
    client: Client,
    df: DataFrame,
    writer: Writer,
    kind: TableKind,
    *,
    policy: str,
    branch: str,
    metadata: Mapping[str, str] | None,
) -> Commit:
    """Commits the rows of ``df`` as deltas.

    A batch of which no file group exists yet is written as base files instead, unless the table's ``policy`` lets two
    writers begin one. Raises InvalidSchema, InvalidArgument, CommitConflict.
    """
    schema = writer.schema
    check_delta_names(schema, writer.table)
    given = given_fields(df, schema, kind, writer.table, partial=kind.merge_by == "column")
    rows = selected(df, columns_for(df.schema, schema, writer.table))
    with batch_of(rows, schema, kind, writer.table, kind.required_fields(schema)) as batch:
        plan = plan_of_groups(client, writer, branch, batch.groups)
        names = {group.name for group in batch.groups}
        groups = FileGroups(batch.groups)
        begins = not any(groups.touch(file.partition, file.file_group) for file in plan)
        whole = len(given) == len(schema.columns)
        writer.start(
            [group.partition for group in batch.groups],
            file_groups=sorted(names),
            columns=[] if whole else [field.name for field in given if field not in kind.key_fields(schema)],
        )
        if begins and whole and kind.merge_by == "row" and policy not in NEVER_WAITS:
            return writer.commit(write_batch(batch, writer, kind), metadata=metadata)
        columns = text_sql(columns_text(given)) if kind.merge_by == "column" else None
        log = as_log(batch.rows, text_sql(UPSERT), writer.instant, columns)
        files = write_deltas(log, batch, writer, kind, plan.files())
        return writer.commit(files, metadata=metadata)


def delete_deltas(
    client: Client,
    rows: DataFrame,
    writer: Writer,
    kind: TableKind,
    *,
    branch: str,
    partitions: Sequence[tuple[ColumnValue, ...]] = (),
    metadata: Mapping[str, str] | None,
) -> Commit | None:
    """Commits deletes of the keys in ``rows``, which have the key's columns and the ordering column; None without rows.

    ``partitions``: those that were looked into to find the keys. Raises InvalidArgument, CommitConflict.
    """
    schema = writer.schema
    check_delta_names(schema, writer.table)
    required = [schema.field(kind.ordering_column)] if kind.ordering_column else []
    with batch_of(rows.select(*delete_columns(schema, kind)), schema, kind, writer.table, required) as batch:
        if not batch.groups:
            writer.rollback("there is no row to delete")
            return None
        plan = plan_of_groups(client, writer, branch, batch.groups)
        places = dict.fromkeys((*partitions, *(group.partition for group in batch.groups)))
        writer.start(list(places), file_groups=sorted({group.name for group in batch.groups}))
        log = as_log(batch.rows, text_sql(DELETE), writer.instant, None)
        files = write_deltas(log, batch, writer, kind, plan.files())
        return writer.commit(files, metadata=metadata)


def delete_columns(schema: Schema, kind: TableKind, deleted: Column | None = None) -> list[Column]:
    """All columns of the table for rows of deletes; those that do not identify the row are null.

    ``deleted``: which rows are deletes, if not all; the others are as they were.
    """
    identifying = kind.identifying_fields(schema)
    return [F.col(f"`{one.name}`") if one in identifying else _nothing(one, deleted) for one in schema.columns]


def given_fields(df: DataFrame, schema: Schema, kind: TableKind, table: str, *, partial: bool) -> list[Field]:
    """The table's columns that ``df`` has. Raises InvalidSchema if one is missing that has to be there.

    ``partial``: other columns than those of the key and the ordering column may be missing.
    """
    has = {name.lower() for name in df.columns}
    given = [field for field in schema.columns if field.name.lower() in has]
    identifying = kind.identifying_fields(schema)
    missing = [field.name for field in schema.columns if field not in given and (not partial or field in identifying)]
    if missing:
        why = (
            f"; {table} is merged by row, so a change has all columns: a row without some would set them to null"
            if not partial
            else ""
        )
        raise InvalidSchema(
            f"the DataFrame does not fit {table}: column{'s' if len(missing) > 1 else ''} "
            f"{', '.join(repr(name) for name in missing)} missing{why}",
            table=table,
        )
    return given


def as_log(rows: DataFrame, operation: Value, instant: int, columns: Value | None) -> DataFrame:
    """``rows`` with the columns that deltas have beside the table's; these may differ from row to row."""
    values: dict[str, Value] = {
        OPERATION: operation,
        INSTANT: str(instant),
        COLUMNS: "NULL" if columns is None else columns,
    }
    more = [named(_cast(values[field.name], field), field.name) for field in DELTA_FIELDS]
    return selected(rows, ["*", *more])


def write_deltas(
    log: DataFrame, batch: Batch, writer: Writer, kind: TableKind, existing: Sequence[DataFile]
) -> list[DataFile]:
    """Writes ``log``, the rows of the batch by ``as_log``, as deltas.

    They lie on top of the base files with such keys, which ``existing`` has. Raises Unavailable if the rows are not
    those that were checked.
    """
    files = write_groups(log, writer, kind, [field.name for field in DELTA_FIELDS])
    check_written(batch, files)
    groups = [BucketGroup(file.partition, file.file_group) for file in files]
    under = instants_under(existing, groups)
    return [
        replace(file, kind="delta", base_instant=under.get(group, 0)) for file, group in zip(files, groups, strict=True)
    ]


def _cast(value: Value, field: Field) -> Value:
    return f"CAST({value} AS {type_sql(field.type)})" if isinstance(value, str) else value.cast(to_spark(field.type))


def _nothing(field: Field, where: Column | None) -> Column:
    null = F.lit(None).cast(to_spark(field.type))
    return (null if where is None else F.when(~where, F.col(f"`{field.name}`")).otherwise(null)).alias(field.name)
