"""Publishing: the only place where versions are made. All of it happens inside one transaction of the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakemark_core.errors import CommitConflict, InvalidSchema, LakemarkError, Unavailable
from lakemark_proto.store.v1.store_pb2 import HeadRecord, InstantRecord, RemovedTotals, StagedTotals, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.admission import usage
from lakemark_server.context import caller
from lakemark_server.store.keyspace import ALIVE, INSTANTS
from lakemark_server.timeline import events, records
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.conflicts.changes import Change, of_record
from lakemark_server.timeline.conflicts.partition_list import PartitionList
from lakemark_server.timeline.conflicts.rules import Collision, find_collision
from lakemark_server.timeline.conflicts.touched import follow_compactions
from lakemark_server.timeline.instants import staging
from lakemark_server.timeline.instants.alive import Alive
from lakemark_server.timeline.instants.staging import Entries
from lakemark_server.timeline.instants.states import ADVICE, expired, require_inflight
from lakemark_server.timeline.publication.commits import Commit, Committed, check_metadata
from lakemark_server.timeline.publication.rivals import find_favoured
from lakemark_server.timeline.publication.table_state import BranchState, TableState


def publish(
    state: TableState, commits: Sequence[Commit], now_ms: int, log: ChangeLog
) -> list[Committed | LakemarkError]:
    """Decides each commit in turn against the versions before it, including those of this transaction.

    An error of one commit is its own answer and touches no other: it is found before anything is written for it.
    Returns the answers in the order of ``commits``. What becomes public if the transaction commits is in the branches
    of ``state``.
    """
    published: dict[int, InstantRecord] = {}
    answers: list[Committed | LakemarkError] = []
    for commit, (instant, writer) in zip(commits, _read(state, commits), strict=True):
        try:
            record = published.get(commit.instant) or records.parse_instant(instant, commit.instant)
            if record.state != pb.COMPLETED:
                _publish_one(state, record, writer, commit, now_ms, log)
                published[record.instant] = record
            answers.append(Committed.of_instant(record))
        except Unavailable:
            raise  # of the store, in the middle: what this commit has written so far must not become durable
        except LakemarkError as error:
            answers.append(error)
    return answers


def _read(state: TableState, commits: Sequence[Commit]) -> list[tuple[bytes | None, bytes | None]]:
    """The stored instant and the stored writer of each commit, all in one read."""
    keys = [space.key(state.table_id, commit.instant) for commit in commits for space in (INSTANTS, ALIVE)]
    stored = state.tx.get_many(keys)
    return list(zip(stored[::2], stored[1::2], strict=True))


def _publish_one(
    state: TableState, record: InstantRecord, writer: bytes | None, commit: Commit, now_ms: int, log: ChangeLog
) -> None:
    branch = _check_state(state, record, writer, commit, now_ms)
    _account(record, commit.entries)
    mine = of_record(record)
    others: Iterable[Change] = log.between(
        state.tx, state.table_id, branch.lineage, record.read_version, branch.head.version, branch.fresh
    )
    if mine.files:
        others = list(others)
        mine = follow_compactions(record, mine, others)
    collision = find_collision(state.table.policy, mine, others) or find_favoured(state, record, mine, now_ms)
    if collision:
        raise refusal(state, collision, record.read_version, now_ms)
    version = _version(state, record, commit, next_head(branch, now_ms))
    put(state, branch, record, version, commit.by)
    inline = commit.entries.totals  # came with the commit, and never counted as staged
    usage.close_writer(
        state.tx, state.table.record.catalog, record.staged.files - inline.files, record.staged.bytes - inline.bytes
    )


def next_head(branch: BranchState, now_ms: int) -> HeadRecord:
    """The head after the next version."""
    head = branch.head
    return HeadRecord(version=head.version + 1, committed_ms=max(now_ms, head.committed_ms))


def put(
    state: TableState,
    branch: BranchState,
    record: InstantRecord,
    version: VersionRecord,
    by: caller.Name = caller.nobody,
) -> None:
    """Writes a version as the branch's new head, and completes its instant."""
    tx, table_id, key = state.tx, state.table_id, branch.lineage.key
    record.state = pb.COMPLETED
    record.version = version.version
    record.completed_ms = version.committed_ms
    records.put_version(tx, table_id, key, version)
    records.put_instant(tx, table_id, record)
    state.clear_writer(record.instant)
    if record.staged.blocks or record.removed.blocks:
        staging.forget_slices(tx, table_id, record.instant)
    branch.head = HeadRecord(version=version.version, committed_ms=version.committed_ms)
    records.put_head(tx, table_id, key, branch.head)
    state.mutation.tell(events.of_commit(state.table.record, key, version, caller.text_of(by)))
    branch.fresh.append(of_record(version))


def _check_state(
    state: TableState, record: InstantRecord, writer: bytes | None, commit: Commit, now_ms: int
) -> BranchState:
    require_inflight(record)
    branch = state.branch(record.branch)
    if writer is None or Alive.unpack(record.instant, writer).expired(now_ms):
        raise expired(record)
    staging.check_more(record, commit.entries)
    staging.check_operation(record, commit.entries)
    staging.check_new_slices(state.tx, state.table_id, record, commit.entries)
    table = state.table
    schema_id = commit.schema_id or record.schema_id
    if not 1 <= schema_id <= table.record.schema_id:
        raise InvalidSchema(
            f"{table.name} has no schema {schema_id}; its schemas are 1 to {table.record.schema_id}",
            schema_id=str(schema_id),
            latest_schema_id=str(table.record.schema_id),
        )
    return branch


def _account(record: InstantRecord, entries: Entries) -> None:
    """What the commit request itself brings counts as staged. Raises LimitExceeded."""
    partitions = PartitionList.of(record)
    partitions.add(entries.partitions)
    partitions.write_to(record)
    entries.add_touched(record)
    staging.add_totals(record, entries)


def refusal(state: TableState, collision: Collision, read_version: int, now_ms: int) -> CommitConflict:
    table, theirs = state.table, collision.theirs
    rival = state.writers.get(theirs.instant) if not theirs.version else None
    lasts = "" if rival is None else f". {_how_long(table.name, rival, now_ms)}"
    left = {} if rival is None else {"heartbeat_left_ms": str(max(0, rival.deadline_ms - now_ms))}
    return CommitConflict(
        f"commit to {table.name} refused: {collision.describe(table.column_names)}; this writer had read version "
        f"{read_version}: {ADVICE}{lasts}",
        **collision.details(),
        read_version=str(read_version),
        **left,
    )


def _how_long(table: str, rival: Alive, now_ms: int) -> str:
    """How long a writer in flight may be in the way of others, and how to end it."""
    left_s = max(0, rival.deadline_ms - now_ms + 999) // 1000
    return (
        f"Instant {rival.instant} is in the way until it commits or rolls back. If its writer has ended silently, then "
        f"for {left_s} s from now: its heartbeat may pause {rival.timeout_ms / 1000:g} s. To end it at once: lakemark "
        f"timeline rollback {table} {rival.instant}, or client.timeline.rollback({table!r}, {rival.instant})"
    )


def _version(state: TableState, record: InstantRecord, commit: Commit, head: HeadRecord) -> VersionRecord:
    """Raises LimitExceeded; all that is in the record is bounded, so that it fits into one value of the store."""
    metadata = {**record.metadata, **commit.metadata}
    check_metadata(metadata)
    staged, removed = record.staged, record.removed
    schema_id = commit.schema_id or record.schema_id
    latest = state.table.record.schema_id
    version = VersionRecord(
        version=head.version,
        instant=record.instant,
        committed_ms=head.committed_ms,
        operation=record.operation,
        read_version=record.read_version,
        schema_id=latest,
        file_schema_id=0 if schema_id == latest else schema_id,
        staged=StagedTotals(files=staged.files, rows=staged.rows, bytes=staged.bytes, blocks=staged.blocks),
        partitions=record.partitions,
        all_partitions=record.all_partitions,
        metadata=metadata,
        owner=record.owner,
        inline_block=commit.entries.block,
        deltas=record.deltas,
    )
    if removed.files:
        version.removed.CopyFrom(
            RemovedTotals(files=removed.files, rows=removed.rows, bytes=removed.bytes, blocks=removed.blocks)
        )
        version.inline_removed = commit.entries.removed_block
    if record.HasField("touched"):
        version.touched.CopyFrom(record.touched)
    return version
