"""Compaction: base files and their deltas become new base files, and small files become larger ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakemark import Client, Commit, DataFile, Plan, Table, Writer
from lakemark.files.runs import RunLimits
from lakemark_core.bucket_directory import Directory
from lakemark_core.bucket_tree import bucket_named
from lakemark_core.file_layout import FileLayout, layout_of
from lakemark_core.merge_sql import DELTA_FIELDS, INSTANT
from lakemark_core.table_kind import TableKind
from lakemark_spark.batches import Bucket, BucketGroup, by_bucket
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.fragments import merge_fragments
from lakemark_spark.groups import files_of_groups, instant_of, plan_of_groups, write_each_group, write_groups
from lakemark_spark.merges import deletes
from lakemark_spark.reader import merged_rows, rows_of
from lakemark_spark.z_order import in_order

LARGE_ROWS: Final = 300_000
"""From so many rows on a file group is worth a job of its own."""


def compact(
    spark: SparkSession,
    table: str,
    where: str | None = None,
    *,
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    request_id: str | None = None,
    instant: int = 0,
    branch: str = "",
    limits: RunLimits | None = None,
) -> Commit | None:
    """Merges deltas or small files of ``database.table`` into files of a good size, in one commit; no row changes.

    In a table with buckets each file group that has deltas becomes one base file. Files of buckets that were split or
    merged since are written into those that there are now, also where nothing is merged. With an ordering column
    deletes are kept beside it for as long as ``lakemark.merge.deletes.retain-ms`` says, so that older changes which
    arrive later lose to them, too. Rows are in the order of ``lakemark.clustering.columns`` if the table names some. In
    a table without buckets the files of a partition that are smaller than half of
    ``lakemark.write.target-file-size-bytes`` are merged into files of up to this size.

    ``where`` (Spark SQL): only files or file groups that may hold such rows; name partitions by it. None: there is
    nothing to merge, and nothing is committed. ``limits``: only files that it chooses. ``instant``: of a task
    (``Client.begin``). The rest is as in ``upsert``.

    Writers go on meanwhile; what they commit to tables with buckets lies on top of the new base files. Raises
    CommitConflict if another compaction or clustering, or a change that writes the same files again, was first: nothing
    is changed then. Raises InvalidPredicate, TableNotFound.
    """
    with use_client(server) as client:
        definition = client.tables.get(table)
        kind = definition.table_kind
        if not kind.buckets:
            target = layout_of(definition.properties).target_bytes
            # To the conflict rules: rows come into other file groups.
            with client.begin(
                table, "cluster", start=False, request_id=request_id, instant=instant, branch=branch
            ) as writer:
                if writer.committed:
                    return writer.commit()
                return merge_fragments(
                    client, spark, writer, where, target, branch=branch, metadata=metadata, limits=limits
                )
        return compact_groups(
            client,
            spark,
            definition,
            where,
            metadata=metadata,
            request_id=request_id,
            instant=instant,
            branch=branch,
            limits=limits,
            order=layout_of(definition.properties),
        )


def compact_groups(
    client: Client,
    spark: SparkSession,
    definition: Table,
    where: str | None,
    *,
    metadata: Mapping[str, str] | None,
    request_id: str | None,
    instant: int,
    branch: str,
    order: FileLayout,
    limits: RunLimits | None = None,
    every: bool = False,
) -> Commit | None:
    """``compact`` of a table with buckets, the rows of each base file in the order of the columns of ``order``.

    ``every``: also the file groups without deltas. Raises as ``compact`` does.
    """
    table, kind = definition.name, definition.table_kind
    # Found before the version that is read: what is below it is either in that version or will never be.
    before = _finished_before(client, table) if definition.conflict_policy == "row" else None
    with client.begin(table, "compact", start=False, request_id=request_id, instant=instant, branch=branch) as writer:
        if writer.committed:
            return writer.commit()
        if before is not None:
            before = min([before, *_committed_since(client, table, writer.read_version, branch)])
        plan = client.plan(table, where, version=writer.read_version, branch=branch)
        files = plan.files()
        due = _due(files, before, kind, every=every)
        if due and kind.directory is not None:
            # All files with such keys are needed, and not only those with rows that the condition selects.
            plan = plan_of_groups(client, writer, branch, due)
        merging = _merging(plan.files(), due, before)
        if limits is not None:
            chosen = {BucketGroup(file.partition, file.file_group) for file in limits.groups(merging)}
            # With those that share keys with them.
            merging = _merging(plan.files(), _with_buckets_over(chosen, kind), before)
        known_until = writer.instant - kind.deletes_retained_ms
        forgotten = _forgotten(files, known_until)
        if not merging and not forgotten:
            writer.rollback("there are no files to cluster" if every else "there are no deltas to merge")
            return None
        writer.start(
            list(dict.fromkeys(file.partition for file in (*merging, *forgotten))),
            file_groups=sorted({file.file_group for file in (*merging, *forgotten)}),
        )
        added = _merged(spark, plan, merging, writer, kind, known_until, order) if merging else []
        removed = dict.fromkeys(file.path for file in (*merging, *forgotten))
        return writer.commit(added, removed=list(removed), metadata=metadata)


def _merged(
    spark: SparkSession,
    plan: Plan,
    files: Sequence[DataFile],
    writer: Writer,
    kind: TableKind,
    known_until: int,
    order: FileLayout,
) -> list[DataFile]:
    """The base files that take the places of ``files``, and the deletes of instants after ``known_until``.

    A delete that nobody knows of any more would lose to an older change that comes later. Those of tables without an
    ordering column need not be known: there a change that comes later is newer.
    """

    def ordered(members: Sequence[DataFile]) -> tuple[DataFrame, list[str]]:
        rows = merged_rows(spark, plan, members, kind, writer.schema)
        count = sum(file.row_count for file in members)
        # A sample of the rows of the files as they are: one of the merged rows would merge them twice.
        return in_order(
            rows, order.fields(writer.schema), order.order, count, lambda: rows_of(spark, plan, members, writer.schema)
        )

    large, small = _large_groups(files, kind)
    bases = write_each_group(spark, large, lambda bucket: ordered(large[bucket]), writer, kind) if large else []
    if small:
        rows, by = ordered(small)
        bases += write_groups(by_bucket(rows, writer.schema, kind), writer, kind, by=by)
    deltas = [file for file in files if file.kind == "delta"]
    if not deltas or not kind.ordering_column or known_until >= writer.instant:
        return bases
    log = deletes(rows_of(spark, plan, deltas, writer.schema, DELTA_FIELDS), writer.schema, kind)
    log = by_bucket(log.where(F.col(INSTANT) > known_until), writer.schema, kind)
    kept = write_groups(log, writer, kind, [field.name for field in DELTA_FIELDS])
    return [*bases, *(replace(file, kind="delta", base_instant=writer.instant) for file in kept)]


def _large_groups(files: Sequence[DataFile], kind: TableKind) -> tuple[dict[Bucket, list[DataFile]], list[DataFile]]:
    """The file groups with many rows, by partition and bucket, and the files of the others.

    A large one is written by a job of its own: Spark shuffles none of its rows, and looks them up among its own deltas
    alone. Groups of a partition of which some buckets were split or merged since are not told apart.
    """
    groups: dict[Bucket, list[DataFile]] = {}
    others: list[DataFile] = []
    moved = {
        file.partition for file in files if kind.directory is not None and file.bucket not in kind.directory.leaves
    }
    for file in files:
        if file.bucket is None or file.partition in moved:
            others.append(file)
        else:
            groups.setdefault((file.partition, file.bucket), []).append(file)
    large = {}
    for group, members in groups.items():
        if sum(file.row_count for file in members) >= LARGE_ROWS:
            large[group] = members
        else:
            others += members
    return large, others


def _due(files: Sequence[DataFile], before: int | None, kind: TableKind, *, every: bool) -> set[BucketGroup]:
    """The groups with deltas of instants less than ``before`` (None: all), or with base files (``every``).

    Also those of buckets that were split or merged since: their rows come into the buckets that there are now.
    """
    groups = {
        BucketGroup(file.partition, file.file_group)
        for file in files
        if _merges(file, before) or _elsewhere(file, kind.directory) or (every and file.kind == "base")
    }
    return _with_buckets_over(groups, kind)


def _with_buckets_over(groups: Set[BucketGroup], kind: TableKind) -> set[BucketGroup]:
    """The groups, and those into which their rows are written now.

    Of a bucket that has come in the place of several, the files of all are written as one.
    """
    if kind.directory is None:
        return set(groups)
    buckets = ((group.partition, bucket_named(group.name)) for group in groups)
    over = ((partition, kind.directory.over(bucket)) for partition, bucket in buckets if bucket is not None)
    return {*groups} | {BucketGroup(partition, kind.group_name(bucket)) for partition, bucket in over}


def _merging(files: Sequence[DataFile], groups: Collection[BucketGroup], before: int | None) -> list[DataFile]:
    """What is merged of the files of the groups: all but deltas of ``before`` and later."""
    theirs = files_of_groups(files, groups)
    return [file for file in theirs if file.kind == "base" or file.keeps_deletes or _merges(file, before)]


def _merges(file: DataFile, before: int | None) -> bool:
    return file.kind == "delta" and not file.keeps_deletes and (before is None or instant_of(file) < before)


def _elsewhere(file: DataFile, directory: Directory | None) -> bool:
    """Whether rows of the file's bucket are written into other buckets now."""
    if directory is None or file.bucket is None or (file.kind == "delta" and not file.keeps_deletes):
        return False
    return file.bucket not in directory.leaves


def _forgotten(files: Sequence[DataFile], known_until: int) -> list[DataFile]:
    """Kept deletes that are all older. They are taken out alone: the base files have seen them."""
    return [file for file in files if file.keeps_deletes and instant_of(file) <= known_until]


def _finished_before(client: Client, table: str) -> int:
    """An instant: all that are less are committed or rolled back.

    Where nobody waits for anybody (policy ``row``) the greater instant wins among changes of a row that are otherwise
    equally new. A delta that came after the compaction lies on top of all that was merged: so nothing may be merged
    that is greater than an instant which can still be committed.
    """
    latest = client.timeline.instants(table, limit=1, newest_first=True)
    oldest = client.timeline.instants(table, states=("requested", "inflight"), limit=1)
    return min([*(one.instant + 1 for one in latest), *(one.instant for one in oldest)], default=0)


def _committed_since(client: Client, table: str, version: int, branch: str) -> list[int]:
    """The instants of later versions. An instant that a plan has opened may have read its version long ago: what was
    open then and is committed now is not in that version, and nothing greater may be merged before it."""
    return [one.instant for one in client.timeline.versions(table, branch=branch, after=version, limit=1_000_000)]
