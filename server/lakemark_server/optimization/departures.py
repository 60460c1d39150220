"""Removes partitions that are too old: one commit replaces them by nothing, under the conflict rules of the table."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex
from typing import Final

from lakemark_core.messages.values import partition_to_proto
from lakemark_core.types import values_of_partition
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1 import timeline_pb2
from lakemark_proto.v1.types_pb2 import TableName
from lakemark_server.optimization.assessments import Assessment
from lakemark_server.optimization.expiries import Expiry
from lakemark_server.optimization.plans import METADATA_REASON, OWNER
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft, Committed
from lakemark_server.timeline.service import Timeline

_NAMED_MAX: Final = 10


def remove(timeline: Timeline, look: Assessment, due: Sequence[Expiry]) -> Committed:
    """Removes these partitions as they were looked at. Raises CommitConflict (somebody has changed one since), and what
    the timeline raises."""
    schema = look.table.schema
    profile = timeline_pb2.WorkProfile(
        partitions=[
            timeline_pb2.WorkProfile.Partition(
                values=partition_to_proto(values_of_partition(one.measure.name, schema), schema)
            )
            for one in due
        ]
    )
    opened = timeline.open(
        look.table.table_id,
        OpenJob(
            timeline_pb2.OVERWRITE_PARTITIONS,
            request_id=f"expire/{token_hex(8)}",
            owner=OWNER,
            metadata={METADATA_REASON: _reason(due)},
            read_version=look.version,
            profile=profile,
        ),
    )
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
