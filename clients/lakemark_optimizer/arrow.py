"""Small tasks by pyarrow in the worker: a few fragments are merged in a second, and no JVM is started."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from lakemark import Client, DataFile, Plan, Writer
from lakemark.client.optimization import OptimizationTask
from lakemark.files.runs import RunLimits, bins_of, without_deltas
from lakemark.parquet import write_table
from lakemark.reading.scan import read_files
from lakemark_core.errors import FailedPrecondition, UnsupportedOperation
from lakemark_core.file_layout import layout_of
from lakemark_optimizer.executor import METADATA, Result, where_of


class ArrowExecutor:
    """An ``Executor``."""

    name = "arrow"

    def __init__(self, client: Client) -> None:
        self._client = client

    def run(self, task: OptimizationTask, cancelled: threading.Event) -> Result:
        """As ``Executor`` says. Raises UnsupportedOperation for a task that needs Spark."""
        if task.needs_spark:
            raise UnsupportedOperation("the task needs Spark: rows in order, deletes that are kept, or much data")
        client = self._client
        if task.buckets:
            table = client.tables.get(task.table)
            if table.conflict_policy == "row":
                raise UnsupportedOperation("deltas of tables with policy 'row' are compacted by Spark")
            if table.table_kind.directory is not None:
                raise UnsupportedOperation("deltas of tables whose buckets split and merge are compacted by Spark")
        where = where_of(client, task)
        operation: Literal["compact", "cluster"] = "compact" if task.buckets else "cluster"
        with client.begin(
            task.table, operation, start=False, request_id=task.request_id, instant=task.instant
        ) as writer:
            if writer.committed:
                return Result("done", version=writer.commit().version)
            plan = client.plan(task.table, where, version=writer.read_version)
            limits = RunLimits(task.small_bytes, task.bytes_max)
            pieces = _compactions(plan, limits) if task.buckets else self._merges(task, plan, limits)
            if not pieces:
                told = "there is nothing to merge any more"
                writer.rollback(told)
                return Result("nothing", told)
            files = [file for piece in pieces for file in piece]
            writer.start(
                list(dict.fromkeys(file.partition for file in files)),
                file_groups=sorted({file.file_group for file in files}),
            )
            added: list[DataFile] = []
            for piece in pieces:
                if cancelled.is_set():
                    raise FailedPrecondition("the task was given to another worker")
                added += _written_again(plan, piece, writer, compacted=task.buckets)
            commit = writer.commit(added, removed=[file.path for file in files], metadata={METADATA: task.kind})
            return Result("done", version=commit.version)

    def close(self) -> None:
        """Nothing is held."""

    def _merges(self, task: OptimizationTask, plan: Plan, limits: RunLimits) -> list[list[DataFile]]:
        target = layout_of(self._client.tables.get(task.table).properties).target_bytes
        return bins_of(limits.fragments(without_deltas(plan.files())), target)


def _compactions(plan: Plan, limits: RunLimits) -> list[list[DataFile]]:
    """The files of each file group that has deltas to compact."""
    files = plan.files()
    changed = {(file.partition, file.file_group) for file in files if file.kind == "delta" and not file.keeps_deletes}
    taken = limits.groups([file for file in files if (file.partition, file.file_group) in changed])
    groups: dict[object, list[DataFile]] = {}
    for file in taken:
        groups.setdefault((file.partition, file.file_group), []).append(file)
    return list(groups.values())


def _written_again(plan: Plan, files: Sequence[DataFile], writer: Writer, *, compacted: bool) -> list[DataFile]:
    """The files in the places of ``files``, which are of one partition (and, if ``compacted``, of one file group).

    Raises FailedPrecondition if a merge has not as many rows as before.
    """
    rows = read_files(plan, files)
    written = write_table(rows, writer).files
    if compacted:
        one = files[0]
        return [replace(file, file_group=one.file_group, bucket=one.bucket) for file in written]
    before, after = (sum(file.row_count for file in some) for some in (files, written))
    if before != after:
        raise FailedPrecondition(
            f"{writer.table}: {len(files)} files of version {plan.version} have {before} rows by their entries, and "
            f"{after} were read and written; nothing is changed. lakemark verify compares entries with files"
        )
    return written
