"""Removes partitions that are too old: one commit replaces them by nothing, under the conflict rules of the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Final

from lakemark_core.messages.values import partition_to_proto
from lakemark_core.partition_ttl import ttl_of
from lakemark_core.types import values_of_partition
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1 import timeline_pb2
from lakemark_proto.v1.types_pb2 import TableName
from lakemark_server.optimization import records
from lakemark_server.optimization.assessments import Assessment
from lakemark_server.optimization.expiries import Expiry
from lakemark_server.optimization.plans import METADATA_REASON, OWNER, PlanRefused
from lakemark_server.timeline.conflicts.partition_list import BYTES_MAX, NAMES_MAX
from lakemark_server.timeline.jobs.job import Batch, Job, Opened
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft, Committed
from lakemark_server.timeline.service import Timeline

_NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class DepartureJob(Job):
    """Opens the instant, unless a user has taken back meanwhile what the partitions would go by."""

    opening: OpenJob
    ttl: str
    partitions: frozenset[str]
    brought_back_ms: int

    @property
    def size_bytes(self) -> int:
        """As ``Job`` says."""
        return self.opening.size_bytes

    def run(self, batch: Batch) -> Opened:
        """Raises PlanRefused, and what ``OpenJob.run`` raises."""
        tx, table = batch.state.tx, batch.state.table
        if str(ttl_of(table.record.properties)) != self.ttl:
            raise PlanRefused("the table has another time to live by now")
        record = records.table(tx, table.table_id)
        if record.paused_ms:
            raise PlanRefused("the table was paused meanwhile")
        if record.brought_back_ms != self.brought_back_ms:
            raise PlanRefused("older files were brought back meanwhile")
        holds = records.holds(tx, table.table_id)
        held = {hold.partition for hold in holds if hold.until_ms > batch.mutation.now_ms}
        planned = {task.partition for task in records.tasks_of_table(tx, table.table_id)}
        if "" in held or self.partitions & (held | planned):
            raise PlanRefused("a partition is held or optimized meanwhile")
        return self.opening.run(batch)


def fitting(due: Iterable[Expiry]) -> list[Expiry]:
    """As many of the first ones as one commit can name."""
    taken: list[Expiry] = []
    left = BYTES_MAX
    for one in due:
        size = len(one.measure.name.encode())
        if size > BYTES_MAX:  # no commit can name it, and the others must not wait for it
            continue
        if size > left or len(taken) == NAMES_MAX:
            break
        taken.append(one)
        left -= size
    return taken


def remove(timeline: Timeline, look: Assessment, due: Sequence[Expiry]) -> Committed:
    """Removes these partitions as they were looked at. Raises CommitConflict (somebody has changed one since),
    PlanRefused, and what the timeline raises."""
    schema = look.table.schema
    profile = timeline_pb2.WorkProfile(
        partitions=[
            timeline_pb2.WorkProfile.Partition(
                values=partition_to_proto(values_of_partition(one.measure.name, schema), schema)
            )
            for one in due
        ]
    )
    opening = OpenJob(
        timeline_pb2.OVERWRITE_PARTITIONS,
        request_id=f"expire/{token_hex(8)}",
        owner=OWNER,
        metadata={METADATA_REASON: _reason(due)},
        read_version=look.version,
        profile=profile,
    )
    names = frozenset(one.measure.name for one in due)
    job = DepartureJob(opening, str(look.ttl), names, look.facts.record.brought_back_ms)
    opened = timeline.open_by(look.table.table_id, job)
    return timeline.commit(look.table, CommitDraft(opened.record.instant))


def run_of(
    look: Assessment, due: Sequence[Expiry], made: Committed, began_ms: int, ended_ms: int
) -> pb.OptimizationTask:
    """The line of the history that tells of it."""
    record = look.table.record
    measures = [one.measure for one in due]
    return pb.OptimizationTask(
        table=TableName(catalog=record.catalog, database=record.database, table=record.name),
        table_id=look.table.table_id,
        instant=made.instant,
        plan=made.instant,
        partition=due[0].measure.name if len(due) == 1 else "",
        kind=pb.EXPIRE,
        state=pb.TASK_DONE,
        group=look.policy.group,
        reason=_reason(due),
        read_version=look.version,
        planned_ms=began_ms,
        assigned_ms=began_ms,
        ended_ms=ended_ms,
        version=made.version,
        files_before=sum(one.files for one in measures),
        bytes_before=sum(one.bytes for one in measures),
        rows_before=sum(one.rows for one in measures),
    )


def _reason(due: Sequence[Expiry]) -> str:
    names = ", ".join(one.measure.name for one in due[:_NAMED_MAX])
    more = f" and {len(due) - _NAMED_MAX} more" if len(due) > _NAMED_MAX else ""
    return f"too old: {names}{more}; the first one: {due[0].reason}"[:500]
