"""Appending DataFrames to lake tables, and overwriting with them: one commit each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame

from lakemark import Client, Commit, DataFile, Writer
from lakemark.client.model import Operation
from lakemark.client.partitions import Partition, partition_values
from lakemark_core.errors import InvalidArgument
from lakemark_core.table_kind import TableKind
from lakemark_core.types import name_of_partition
from lakemark_spark import layout
from lakemark_spark.batches import batch_of, computed_once
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.footers import check_not_null, describe_files
from lakemark_spark.groups import write_batch
from lakemark_spark.keys import count_keys, key_fields
from lakemark_spark.kinds import key_columns, require_no_key, require_partitions_in_key
from lakemark_spark.layout import FileSize
from lakemark_spark.queries import selected
from lakemark_spark.schema import columns_for
from lakemark_spark.sizes import file_size

Partitions: TypeAlias = Sequence[Partition] | Literal["dynamic"] | None


def append(
    df: DataFrame,
    table: str,
    *,
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    request_id: str | None = None,
    distribute: bool = True,
    branch: str = "",
) -> Commit:
    """Adds the rows of ``df`` to ``database.table``, which has no key, in one commit, also if there are none.

    Columns are matched by name, whatever their case; narrower types are widened. ``server``: ``host:port``, or a client
    that stays open. The same ``request_id`` commits once, however often it is asked for (in ``foreachBatch``: a name
    with the epoch id). ``distribute``: rows of a partition are brought together first, for few files; False writes
    without a shuffle, up to one file for each task and partition. Files are of about the size that the table
    says (``lakemark.write.target-file-size-bytes``) where rows are brought together. ``branch`` "": main.

    Raises InvalidSchema with every column that does not fit, CommitConflict, UnsupportedOperation (the table has a
    key), and Spark's errors; after any of them the
    instant is rolled back and nothing of it is ever seen.
    """
    with use_client(server) as client:
        return _write(client, df, table, "append", None, metadata, request_id, distribute, branch)


def overwrite(
    df: DataFrame,
    table: str,
    *,
    partitions: Partitions = None,
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    request_id: str | None = None,
    distribute: bool = True,
    branch: str = "",
) -> Commit:
    """Replaces what the table holds by the rows of ``df``, in one commit.

    ``partitions``: None: the whole table; a list: these, and ``df`` may have rows for no others (those for which it has
    none become empty); "dynamic": the ones for which ``df`` has rows. If the table has a key, it then has all partition
    columns: another partition could have the keys of ``df``. The rest is as in ``append``.
    """
    operation: Operation = "overwrite_table" if partitions is None else "overwrite_partitions"
    with use_client(server) as client:
        return _write(client, df, table, operation, partitions, metadata, request_id, distribute, branch)


def _write(
    client: Client,
    df: DataFrame,
    table: str,
    operation: Operation,
    partitions: Partitions,
    metadata: Mapping[str, str] | None,
    request_id: str | None,
    distribute: bool,
    branch: str,
) -> Commit:
    # Which partitions a DataFrame has is known when it is written: a dynamic overwrite tells them after that.
    dynamic = partitions == "dynamic"
    named = None if partitions is None or isinstance(partitions, str) else list(partitions)
    if isinstance(partitions, str) and not dynamic:
        raise InvalidArgument(f"partitions={partitions!r} is neither a list of partitions nor 'dynamic'")
    definition = client.tables.get(table)
    properties, kind = definition.properties, definition.table_kind
    if operation == "append":
        require_no_key(kind, table)
    if partitions is not None:
        require_partitions_in_key(kind, definition.schema, table)
    with client.begin(
        table, operation, partitions=named, start=not dynamic, request_id=request_id, branch=branch
    ) as writer:
        if writer.committed:
            return writer.commit()
        columns = columns_for(df.schema, writer.schema, table)
        size = None if kind.buckets else file_size(client, table, properties, branch)
        files = _files(selected(df, columns), writer, kind, distribute=distribute, size=size)
        check_not_null(files, writer.schema, writer.table)
        if named is not None and operation == "overwrite_partitions":
            _check_within(files, named, writer)
        if dynamic:
            writer.start(list(dict.fromkeys(file.partition for file in files)))
        return writer.commit(files, metadata=metadata)


def _files(
    rows: DataFrame, writer: Writer, kind: TableKind, *, distribute: bool, size: FileSize | None
) -> list[DataFile]:
    """The files of ``rows``, which have the table's columns: one for each file group if the table has buckets."""
    schema = writer.schema
    if kind.buckets:
        with batch_of(rows, schema, kind, writer.table, kind.required_fields(schema)) as batch:
            return write_batch(batch, writer, kind)
    with ExitStack() as stack:
        if kind.key:
            names = key_columns(None, kind, writer.table)
            keys = key_fields(names, schema, rows.columns, writer.table)
            rows = stack.enter_context(computed_once(rows))
            count_keys(rows, keys, schema, writer.table)
        attempt = layout.Attempt.new(writer.location)
        layout.write(rows, schema, attempt, distribute=distribute, size=size)
        paths = layout.written_files(attempt)
        return describe_files(rows.sparkSession, paths, writer.location, schema)


def _check_within(files: Sequence[DataFile], named: Sequence[Partition], writer: Writer) -> None:
    allowed = {name_of_partition(partition_values(one, writer.schema), writer.schema) for one in named}
    found = {name_of_partition(file.partition, writer.schema) for file in files}
    if not found <= allowed:
        others = sorted(found - allowed)
        shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        raise InvalidArgument(
            f"the DataFrame has rows for partitions of {writer.table} that are not to be overwritten: {shown}; filter "
            "it, name them too, or use partitions='dynamic'"
        )
