"""Clustering: rows are put in order, so that the bounds of files are close and plans leave out more of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from lakemark import Client, Commit, DataFile, Plan, Writer
from lakemark.files.runs import without_deltas
from lakemark_core.errors import InvalidArgument
from lakemark_core.file_layout import (
    CLUSTERING_COLUMNS_PROPERTY,
    FileLayout,
    clustering_columns,
    clustering_order,
    layout_of,
)
from lakemark_core.types import ColumnValue, Field
from lakemark_spark import layout
from lakemark_spark.compactions import compact_groups
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.fragments import commit_rewrite, start_rewrite
from lakemark_spark.reader import rows_of
from lakemark_spark.z_order import in_order


def cluster(
    spark: SparkSession,
    table: str,
    where: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    order: str | None = None,
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    request_id: str | None = None,
    instant: int = 0,
    branch: str = "",
) -> Commit | None:
    """Writes the files of ``database.table`` again with their rows in order, in one commit; no row changes.

    ``columns`` and ``order`` ("sort" or "z-order") None: as ``lakemark.clustering.columns`` and
    ``lakemark.clustering.order`` say. ``where`` (Spark SQL): only files that may hold such rows; name partitions by it.
    Files are of about ``lakemark.write.target-file-size-bytes``. None: there are no such files, and nothing is
    committed. ``instant``: of a task (``Client.begin``). The rest is as in ``append``.

    Appends go on meanwhile. Raises CommitConflict if a change of rows in the same file groups, or another clustering of
    them, was first: nothing is changed then (``lakemark.clustering.preference`` says who gives way). Raises
    InvalidArgument, InvalidPredicate, TableNotFound.

    In a table with buckets the key says in which file a row lies. There it is a compaction of all such file groups,
    with deltas or without, which puts the rows of each file in order.
    """
    with use_client(server) as client:
        definition = client.tables.get(table)
        wanted = _wanted(layout_of(definition.properties), columns, order, table)
        if definition.table_kind.buckets:
            return compact_groups(
                client,
                spark,
                definition,
                where,
                metadata=metadata,
                request_id=request_id,
                instant=instant,
                branch=branch,
                order=wanted,
                every=True,
            )
        with client.begin(
            table, "cluster", start=False, request_id=request_id, instant=instant, branch=branch
        ) as writer:
            if writer.committed:
                return writer.commit()
            fields = wanted.fields(writer.schema)
            plan = client.plan(table, where, version=writer.read_version, branch=branch)
            files = without_deltas(plan.files())
            if not files:
                writer.rollback("there are no files to cluster")
                return None
            start_rewrite(writer, files)
            attempts = _write(spark, plan, files, writer, fields, wanted)
            return commit_rewrite(spark, attempts, plan, files, writer, metadata)


def _wanted(given: FileLayout, columns: Sequence[str] | None, order: str | None, table: str) -> FileLayout:
    if columns is not None:
        given = replace(given, columns=clustering_columns([columns] if isinstance(columns, str) else columns))
    if order is not None:
        given = replace(given, order=clustering_order(order))
    if not given.columns:
        raise InvalidArgument(
            f"{table} does not say by which columns its rows are put in order: set {CLUSTERING_COLUMNS_PROPERTY}, or "
            "name them, as in columns=['x', 'y']"
        )
    return given


def _write(
    spark: SparkSession, plan: Plan, files: Sequence[DataFile], writer: Writer, fields: Sequence[Field], to: FileLayout
) -> list[layout.Attempt]:
    """Partitions that fit into one file become one; the others are cut into ranges, of which each becomes a file."""
    sizes: dict[tuple[ColumnValue, ...], int] = {}
    for file in files:
        sizes[file.partition] = sizes.get(file.partition, 0) + file.size_bytes
    schema = writer.schema
    attempts = []
    for large in (False, True):
        members = [file for file in files if (sizes[file.partition] > to.target_bytes) is large]
        if not members:
            continue
        rows = rows_of(spark, plan, members, schema)
        rows, by = in_order(rows, fields, to.order, sum(file.row_count for file in members))
        attempt = layout.Attempt.new(writer.location)
        pieces = sum(-(-sizes[one] // to.target_bytes) for one in {file.partition for file in members})
        layout.write_ordered(rows, by, schema, attempt, pieces=pieces if large else None)
        attempts.append(attempt)
    return attempts
