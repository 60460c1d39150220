"""Upserting DataFrames into lake tables: one commit each, copy-on-write or, if the table says so, as deltas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from lakemark import Client, Commit, DataFile, Plan, Writer
from lakemark_core.expressions import to_sql
from lakemark_spark import layout
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.deltas import upsert_deltas
from lakemark_spark.footers import check_not_null, describe_files
from lakemark_spark.group_rewrites import upsert_groups
from lakemark_spark.keys import count_keys, key_fields, ranges_of
from lakemark_spark.kinds import key_columns
from lakemark_spark.matches import NewRows, new_rows
from lakemark_spark.reader import numbered_rows
from lakemark_spark.rewrites import FILE, files_of, planned_bases, write_again
from lakemark_spark.sizes import file_size


def upsert(
    df: DataFrame,
    table: str,
    *,
    keys: str | Sequence[str] | None = None,
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    request_id: str | None = None,
    branch: str = "",
) -> Commit:
    """Rows of ``df`` take the places of those of ``database.table`` with the same ``keys``; the others are inserted.

    ``keys`` None: the table's own key (``lakemark.primary-key``). In a table with buckets no file is looked into to
    find the rows: docs/keyed-tables.md has what such tables do. In all others:

    One commit, also if there are none. Only files whose bounds say that they may hold such keys are looked into, and
    only those that do are written again, in the same file groups. Keys are unique over the whole table, as in a MERGE:
    a row whose partition has changed moves. If ``keys`` has all partition columns it is looked for in its own partition
    alone. Columns that ``df`` does not have keep their values, in inserted rows they are null; key, partition and NOT
    NULL columns must be there. A key that the table has several times is changed everywhere. ``df`` is computed once.
    The rest is as in ``append``.

    Under the table's policy it is an upsert in the partitions where it looked for keys: of the whole table, unless
    ``keys`` has all partition columns. Raises CommitConflict if another commit or writer was first: nothing is changed
    then, ask again. Raises InvalidArgument, with an example, if ``df`` has a key twice or with a null; InvalidSchema
    with every column that does not fit; UnsupportedOperation if there are deltas where such keys may be.
    """
    with use_client(server) as client:
        definition = client.tables.get(table)
        kind = definition.table_kind
        keys = key_columns(keys, kind, table)
        with client.begin(table, "upsert", start=False, request_id=request_id, branch=branch) as writer:
            if writer.committed:
                return writer.commit()
            if kind.merges_on_read:
                policy = definition.conflict_policy
                return upsert_deltas(client, df, writer, kind, policy=policy, branch=branch, metadata=metadata)
            if kind.buckets:
                return upsert_groups(client, df, writer, kind, branch=branch, metadata=metadata)
            size = file_size(client, table, definition.properties, branch)
            return _upsert(client, df, writer, keys, size, metadata, branch)


def _upsert(
    client: Client,
    df: DataFrame,
    writer: Writer,
    keys: str | Sequence[str],
    size: layout.FileSize | None,
    metadata: Mapping[str, str] | None,
    branch: str,
) -> Commit:
    table = writer.table
    fields = key_fields(keys, writer.schema, df.columns, table)
    with new_rows(df, writer.schema, fields, table) as new:
        plan = _plan(client, new, writer, branch)
        files = planned_bases(plan, table)
        changed = files_of(new.found_in(numbered_rows(df.sparkSession, plan, files, writer.schema, FILE)), files)
        writer.start(
            () if new.may_move else list(dict.fromkeys(file.partition for file in files)),
            whole_table=new.may_move,
            file_groups=list(dict.fromkeys(file.file_group for file in changed)),
        )
        added = _write(new, plan, changed, writer, size)
    check_not_null(added, writer.schema, table)
    return writer.commit(added, removed=[file.path for file in changed], metadata=metadata)


def _plan(client: Client, new: NewRows, writer: Writer, branch: str) -> Plan:
    """The files that may hold one of the keys. Raises InvalidArgument if these are no keys."""
    count = count_keys(new.key_values(), new.keys, new.schema, writer.table)
    ranges = to_sql(ranges_of(new.key_values(), new.keys, new.schema, count))
    at = writer.read_version
    # The files of a branch that is behind the table may have the keys under other names.
    behind = client.plan(writer.table, version=at, branch=branch, limit=1).schema.schema_id != new.schema.schema_id
    return client.plan(writer.table, None if behind else ranges, version=at, branch=branch)


def _write(
    new: NewRows, plan: Plan, changed: Sequence[DataFile], writer: Writer, size: layout.FileSize | None
) -> list[DataFile]:
    """The files that take the places of ``changed``, and those of rows that have no place there."""
    spark = new.rows.sparkSession
    old = numbered_rows(spark, plan, changed, new.schema, FILE)
    attempt = layout.Attempt.new(writer.location)
    layout.write(new.outside(old), new.schema, attempt, distribute=True, size=size)
    inserted = describe_files(spark, layout.written_files(attempt), writer.location, new.schema)
    return [*inserted, *(write_again(new.put_into(old), changed, writer) if changed else ())]
