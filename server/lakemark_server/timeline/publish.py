"""Publishing: the one small transaction that makes commits of a table real.

Its cost does not depend on the size of the table or of the commits: entries were staged before, and are only referred
to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from lakemark.errors import CommitConflict, InstantStateError, InvalidSchema, LakemarkError
from lakemark_proto.store.v1.store_pb2 import HeadRecord, InstantRecord, StagedTotals, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.keyspace import INSTANTS
from lakemark_server.kv import Transaction
from lakemark_server.timeline import alive, records
from lakemark_server.timeline.change_log import ChangeLog
from lakemark_server.timeline.conflicts import OVERWRITE_TABLE, Change, Collision, find_collision
from lakemark_server.timeline.partition_list import PartitionList

ADVICE: Final = "open a new instant, read the latest version and try again"


@dataclass(frozen=True, slots=True)
class CommitJob:
    """One commit that waits to be published. ``block`` holds the entries that were not staged before."""

    instant: int
    schema_id: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    block: bytes = b""
    block_totals: StagedTotals = field(default_factory=StagedTotals)
    block_partitions: frozenset[str] = frozenset()


def publish(
    tx: Transaction, table_id: int, branch: str, jobs: list[CommitJob], now_ms: int, log: ChangeLog
) -> tuple[list[pb.CommitResponse | LakemarkError], list[Change]]:
    """Decides each job in turn against the versions before it, those of this batch included.

    Returns the answers in the order of ``jobs``, and the changes that are published if the transaction commits.
    """
    table = lake.load(tx, table_id)
    head = records.head(tx, table_id, branch)
    stored = tx.get_many([INSTANTS.key(table_id, job.instant) for job in jobs])
    fresh: list[Change] = []
    answers: list[pb.CommitResponse | LakemarkError] = []
    for job, value in zip(jobs, stored, strict=True):
        try:
            record = records.parse_instant(value, job.instant)
            if any(change.instant == job.instant for change in fresh):
                record = records.instant(tx, table_id, job.instant)
            if record.state == pb.COMPLETED:
                answers.append(response_of(record))
                continue
            _check_state(tx, table, record, branch, job, now_ms)
            mine = change_of(record, job)
            others = log.between(tx, table_id, branch, record.read_version, head.version, fresh)
            collision = find_collision(table.policy, mine, others)
            if collision:
                raise refusal(table.name, collision, record.read_version)
        except LakemarkError as error:
            answers.append(error)
            continue
        head = HeadRecord(version=head.version + 1, committed_ms=max(now_ms, head.committed_ms))
        version = _version(record, job, head)
        _complete(tx, table_id, branch, record, version)
        fresh.append(records.change_of(version))
        answers.append(response_of(record))
    if fresh:
        records.put_head(tx, table_id, branch, head)
    return answers, fresh


def _check_state(
    tx: Transaction, table: LakeTable, record: InstantRecord, branch: str, job: CommitJob, now_ms: int
) -> None:
    require_inflight(record)
    if record.branch != branch:
        raise InstantStateError(f"instant {record.instant} belongs to branch {record.branch!r}")
    living = alive.find(tx, table.table_id, record.instant)
    if living is None or living.expired(now_ms):
        raise expired(record)
    schema_id = job.schema_id or record.schema_id
    if schema_id != table.record.schema_id:
        raise InvalidSchema(
            f"the files of instant {record.instant} were written with schema {schema_id}; {table.name} has schema "
            f"{table.record.schema_id}. Read the table's schema again and rewrite them",
            schema_id=str(schema_id),
            latest_schema_id=str(table.record.schema_id),
        )


def require_inflight(record: InstantRecord) -> None:
    """Raises InstantStateError that says what the instant is instead, and why."""
    if record.state == pb.INFLIGHT:
        return
    state = pb.InstantState.Name(record.state)
    why = {
        pb.REQUESTED: "it was not started: tell what it is going to write (StartInstant) first",
        pb.COMPLETED: f"it was committed as version {record.version}",
        pb.ROLLED_BACK: f"it was rolled back: {record.rolled_back_reason or 'no reason was given'}",
    }.get(record.state, "")
    raise InstantStateError(
        f"instant {record.instant} is {state}, not INFLIGHT; {why}", instant=str(record.instant), state=state
    )


def expired(record: InstantRecord) -> InstantStateError:
    return InstantStateError(
        f"the heartbeat of instant {record.instant} ran out after {record.heartbeat_timeout_ms} ms; it holds nothing "
        f"any more and its files are given up: {ADVICE}",
        instant=str(record.instant),
        state="EXPIRED",
    )


def change_of(record: InstantRecord, job: CommitJob | None = None) -> Change:
    """What an instant does, as far as it is known."""
    partitions = frozenset(record.partitions) | (job.block_partitions if job else frozenset())
    everything = record.all_partitions or record.operation == OVERWRITE_TABLE
    return Change(record.instant, record.operation, partitions, everything, owner=record.owner)


def refusal(table: str, collision: Collision, read_version: int) -> CommitConflict:
    return CommitConflict(
        f"commit to {table} refused: {collision.describe()}; this writer had read version {read_version}: {ADVICE}",
        **collision.details(),
        read_version=str(read_version),
    )


def _version(record: InstantRecord, job: CommitJob, head: HeadRecord) -> VersionRecord:
    partitions = PartitionList.of(record)
    partitions.add(job.block_partitions)
    staged, block = record.staged, job.block_totals
    return VersionRecord(
        version=head.version,
        instant=record.instant,
        committed_ms=head.committed_ms,
        operation=record.operation,
        read_version=record.read_version,
        schema_id=record.schema_id,
        staged=StagedTotals(
            files=staged.files + block.files,
            rows=staged.rows + block.rows,
            bytes=staged.bytes + block.bytes,
            blocks=staged.blocks,
        ),
        partitions=partitions.names,
        all_partitions=partitions.all_partitions,
        metadata=dict(record.metadata) | job.metadata,
        owner=record.owner,
        inline_block=job.block,
    )


def _complete(tx: Transaction, table_id: int, branch: str, record: InstantRecord, version: VersionRecord) -> None:
    record.state = pb.COMPLETED
    record.version = version.version
    record.completed_ms = version.committed_ms
    record.staged.CopyFrom(version.staged)
    records.put_version(tx, table_id, branch, version)
    records.put_instant(tx, table_id, record)
    alive.clear(tx, table_id, record.instant)


def response_of(record: InstantRecord) -> pb.CommitResponse:
    """Of a completed instant; the same however often it is asked for."""
    return pb.CommitResponse(
        version=record.version,
        instant=record.instant,
        committed_ms=record.completed_ms,
        rebased_over=record.version - 1 - record.read_version,
    )
