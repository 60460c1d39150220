"""Publishing: the one small transaction that makes commits of a table real.

Its cost does not depend on the size of the table or of the commits: entries were staged before, and are only referred
to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lakemark.errors import CommitConflict, InstantStateError, InvalidSchema, LakemarkError, LimitExceeded
from lakemark_proto.store.v1.store_pb2 import HeadRecord, InstantRecord, StagedTotals, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.keyspace import ALIVE, INSTANTS
from lakemark_server.timeline import records, staging
from lakemark_server.timeline.alive import Alive
from lakemark_server.timeline.change_log import ChangeLog
from lakemark_server.timeline.conflicts import OVERWRITE_TABLE, Change, Collision, find_collision
from lakemark_server.timeline.partition_list import PartitionList
from lakemark_server.timeline.staging import NO_ENTRIES, Entries
from lakemark_server.timeline.states import ADVICE, expired, require_inflight
from lakemark_server.timeline.table_state import TableState

METADATA_BYTES_MAX: Final = 20_000
_MAP_ENTRY_BYTES: Final = 8  # what protobuf adds to a key and its value


@dataclass(frozen=True, slots=True)
class CommitJob:
    """One commit that waits to be published. ``entries`` were not staged before, and are inline."""

    instant: int
    schema_id: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    entries: Entries = NO_ENTRIES


def publish(
    state: TableState, jobs: list[CommitJob], now_ms: int, log: ChangeLog
) -> tuple[list[pb.CommitResponse | LakemarkError], list[Change]]:
    """Decides each job in turn against the versions before it, those of this batch included.

    What is wrong with one job is that job's answer and touches no other; it is found before anything is written for it.
    Returns the answers in the order of ``jobs``, and the changes that are published if the transaction commits.
    """
    tx, table_id, branch = state.tx, state.table_id, state.branch
    table, head = state.table, state.head
    fresh: list[Change] = []
    published: dict[int, InstantRecord] = {}
    answers: list[pb.CommitResponse | LakemarkError] = []
    for job, (instant, writer) in zip(jobs, _read(state, jobs), strict=True):
        try:
            record = published.get(job.instant) or records.parse_instant(instant, job.instant)
            if record.state == pb.COMPLETED:
                answers.append(response_of(record))
                continue
            _check_state(state, record, writer, job, now_ms)
            mine = change_of(record, job)
            others = log.between(tx, table_id, branch, record.read_version, head.version, fresh)
            collision = find_collision(table.policy, mine, others)
            if collision:
                raise refusal(table.name, collision, record.read_version)
            following = HeadRecord(version=head.version + 1, committed_ms=max(now_ms, head.committed_ms))
            version = _version(record, job, following)
        except LakemarkError as error:
            answers.append(error)
            continue
        head = following
        _complete(state, record, version)
        published[record.instant] = record
        fresh.append(records.change_of(version))
        answers.append(response_of(record))
    if fresh:
        records.put_head(tx, table_id, branch, head)
    return answers, fresh


def _read(state: TableState, jobs: list[CommitJob]) -> list[tuple[bytes | None, bytes | None]]:
    """Of each job the stored instant and the stored writer, all in one read."""
    keys = [space.key(state.table_id, job.instant) for job in jobs for space in (INSTANTS, ALIVE)]
    stored = state.tx.get_many(keys)
    return list(zip(stored[::2], stored[1::2], strict=True))


def _check_state(state: TableState, record: InstantRecord, writer: bytes | None, job: CommitJob, now_ms: int) -> None:
    require_inflight(record)
    if record.branch != state.branch:
        raise InstantStateError(f"instant {record.instant} belongs to branch {record.branch!r}")
    if writer is None or Alive.unpack(record.instant, writer).expired(now_ms):
        raise expired(record)
    staging.check_more(record, job.entries)
    staging.check_new_slices(state.tx, state.table_id, record, job.entries.slices)
    table = state.table
    schema_id = job.schema_id or record.schema_id
    if schema_id != table.record.schema_id:
        raise InvalidSchema(
            f"the files of instant {record.instant} were written with schema {schema_id}; {table.name} has schema "
            f"{table.record.schema_id}. Read the table's schema again and rewrite them",
            schema_id=str(schema_id),
            latest_schema_id=str(table.record.schema_id),
        )


def change_of(record: InstantRecord, job: CommitJob | None = None) -> Change:
    """What an instant does, as far as it is known."""
    partitions = frozenset(record.partitions) | (job.entries.partitions if job else frozenset())
    everything = record.all_partitions or record.operation == OVERWRITE_TABLE
    return Change(record.instant, record.operation, partitions, everything, owner=record.owner)


def refusal(table: str, collision: Collision, read_version: int) -> CommitConflict:
    return CommitConflict(
        f"commit to {table} refused: {collision.describe()}; this writer had read version {read_version}: {ADVICE}",
        **collision.details(),
        read_version=str(read_version),
    )


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raises LimitExceeded if it takes more room than a version's record has for it."""
    size = sum(len(key.encode()) + len(value.encode()) + _MAP_ENTRY_BYTES for key, value in metadata.items())
    if size > METADATA_BYTES_MAX:
        raise LimitExceeded(
            f"the metadata of an instant takes {size} bytes; at most {METADATA_BYTES_MAX} are kept, counting what was "
            "given when it was opened and with its commit"
        )


def _version(record: InstantRecord, job: CommitJob, head: HeadRecord) -> VersionRecord:
    """Raises LimitExceeded; all that is in the record is bounded, so that it fits into one value of the store."""
    partitions = PartitionList.of(record)
    partitions.add(job.entries.partitions)
    metadata = dict(record.metadata) | job.metadata
    check_metadata(metadata)
    staged, added = record.staged, job.entries.totals
    return VersionRecord(
        version=head.version,
        instant=record.instant,
        committed_ms=head.committed_ms,
        operation=record.operation,
        read_version=record.read_version,
        schema_id=record.schema_id,
        staged=StagedTotals(
            files=staged.files + added.files,
            rows=staged.rows + added.rows,
            bytes=staged.bytes + added.bytes,
            blocks=staged.blocks,
        ),
        partitions=partitions.names,
        all_partitions=partitions.all_partitions,
        metadata=metadata,
        owner=record.owner,
        inline_block=job.entries.block,
    )


def _complete(state: TableState, record: InstantRecord, version: VersionRecord) -> None:
    record.state = pb.COMPLETED
    record.version = version.version
    record.completed_ms = version.committed_ms
    record.staged.CopyFrom(version.staged)
    records.put_version(state.tx, state.table_id, state.branch, version)
    records.put_instant(state.tx, state.table_id, record)
    state.clear_writer(record.instant)


def response_of(record: InstantRecord) -> pb.CommitResponse:
    """Of a completed instant; the same however often it is asked for."""
    return pb.CommitResponse(
        version=record.version,
        instant=record.instant,
        committed_ms=record.completed_ms,
        rebased_over=record.version - 1 - record.read_version,
    )
