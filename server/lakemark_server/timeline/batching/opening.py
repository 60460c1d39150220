"""Opening and starting instants: decided inside one transaction, with early conflict detection."""

from __future__ import annotations

from dataclasses import replace

from lakemark_core.errors import InvalidArgument, LimitExceeded
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.admission import usage
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.entries.columns import partition_of
from lakemark_server.store.requests import once
from lakemark_server.timeline import records
from lakemark_server.timeline.batching.jobs import HEARTBEAT_TIMEOUT_MS, OPEN_INSTANTS_MAX, Opened, OpenJob, StartJob
from lakemark_server.timeline.branches import retention
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.conflicts.changes import of_record
from lakemark_server.timeline.conflicts.partition_list import PartitionList
from lakemark_server.timeline.conflicts.rules import find_collision
from lakemark_server.timeline.conflicts.touched import TouchedSet
from lakemark_server.timeline.instants import alive
from lakemark_server.timeline.instants.alive import Alive
from lakemark_server.timeline.instants.states import expired, require_inflight
from lakemark_server.timeline.publication.publish import refusal
from lakemark_server.timeline.publication.rivals import find_rival
from lakemark_server.timeline.publication.table_state import BranchState, TableState


def opened_once(state: TableState, job: OpenJob, now_ms: int, log: ChangeLog, quotas: Quotas) -> Opened:
    """A new instant, or that of the same request. Raises CommitConflict, InvalidArgument, VersionNotFound …"""
    if not job.request_id:
        return _opened(state, job, now_ms, log, quotas)
    created: list[Opened] = []

    def create() -> InstantRecord:
        created.append(_opened(state, job, now_ms, log, quotas))
        return created[0].record

    kind = f"OpenInstant of table {state.table_id}"
    record = once(state.tx, job.request_id, kind, now_ms, InstantRecord, create)
    if created:
        return created[0]
    # It may have moved on since; the writer that asks again wants to know where it stands.
    return _as_opened(state, records.instant(state.tx, state.table_id, record.instant))


def _opened(state: TableState, job: OpenJob, now_ms: int, log: ChangeLog, quotas: Quotas) -> Opened:
    table, branch = state.table, state.branch_named(job.branch)
    latest = branch.head.version
    if job.read_version > latest:
        raise InvalidArgument(f"read_version {job.read_version} does not exist; {table.name} is at version {latest}")
    if job.read_version and job.read_version != latest:
        retention.require_readable(state.tx, state.table_id, table.name, branch.lineage, job.read_version)
    if len(state.writers) >= OPEN_INSTANTS_MAX:
        raise LimitExceeded(f"{table.name} has {OPEN_INSTANTS_MAX} open instants; no more are allowed")
    timeout = job.heartbeat_timeout_ms or HEARTBEAT_TIMEOUT_MS
    record = InstantRecord(
        branch=branch.lineage.key,
        operation=job.operation,
        state=pb.REQUESTED,
        read_version=job.read_version or latest,
        heartbeat_timeout_ms=timeout,
        opened_ms=now_ms,
        schema_id=table.record.schema_id,
        owner=job.owner,
        metadata=job.metadata,
    )
    if job.profile is not None:
        _check_start(state, branch, record, job.profile, now_ms, log)
        record.state = pb.INFLIGHT
    usage.take(state.tx, quotas.tenant(table.record.catalog, state.tx), usage.OPEN_INSTANTS, 1)
    record.instant = records.next_instant(state.tx, state.table_id, now_ms)
    records.put_instant(state.tx, state.table_id, record)
    state.put_writer(Alive(record.instant, now_ms + timeout, timeout, record.state == pb.INFLIGHT, job.operation))
    return Opened(record, table)


def started(state: TableState, job: StartJob, now_ms: int, log: ChangeLog) -> Opened:
    """REQUESTED -> INFLIGHT. Raises CommitConflict, InstantStateError, InstantNotFound, InvalidArgument."""
    record = records.instant(state.tx, state.table_id, job.instant)
    if record.state != pb.INFLIGHT:  # asked for again: nothing to do
        if record.state != pb.REQUESTED:
            require_inflight(record)
        living = alive.find(state.tx, state.table_id, job.instant)
        if living is None or living.expired(now_ms):
            raise expired(record)
        _check_start(state, state.branch(record.branch), record, job.profile, now_ms, log)
        record.state = pb.INFLIGHT
        records.put_instant(state.tx, state.table_id, record)
        timeout = record.heartbeat_timeout_ms
        state.put_writer(Alive(record.instant, now_ms + timeout, timeout, True, record.operation))
    return _as_opened(state, record)


def _as_opened(state: TableState, record: InstantRecord) -> Opened:
    """With the schema that the instant was opened with, even if it is not the latest: its files are checked with it."""
    table = state.table
    if record.schema_id != table.schema.schema_id:
        table = replace(table, schema=lake.get_schema(state.tx, state.table_id, record.schema_id))
    return Opened(record, table)


def _check_start(
    state: TableState, branch: BranchState, record: InstantRecord, profile: pb.WorkProfile, now_ms: int, log: ChangeLog
) -> None:
    """Early conflict detection: against what was committed since the read version, and against live writers."""
    state.guard_starts()
    table = state.table
    _apply_profile(record, profile, table)
    mine = of_record(record)
    done = log.between(state.tx, state.table_id, branch.lineage, record.read_version, branch.head.version, branch.fresh)
    collision = find_collision(table.policy, mine, done) or find_rival(state, record, mine, now_ms)
    if collision:
        raise refusal(state, collision, record.read_version, now_ms)


def _apply_profile(record: InstantRecord, profile: pb.WorkProfile, table: LakeTable) -> None:
    names = {partition_of(partition.values, table.schema) for partition in profile.partitions}
    everything = profile.whole_table or record.operation == pb.OVERWRITE_TABLE
    if record.operation in (pb.DELETE, pb.OVERWRITE_PREDICATE) and not names:
        everything = True  # rows that its predicate selects may come to be in any partition
    if profile.whole_table and record.operation == pb.OVERWRITE_PARTITIONS:
        raise InvalidArgument(
            "an overwrite of partitions names its partitions; to replace everything use OVERWRITE_TABLE"
        )
    if not table.schema.partition_columns and record.operation == pb.OVERWRITE_PARTITIONS:
        raise InvalidArgument(f"{table.name} has no partition columns; use OVERWRITE_TABLE")
    _check_columns(record, profile, table)
    PartitionList(record.operation, names, everything).write_to(record)
    if profile.ByteSize():  # else it tells nothing: the way of nearly every append
        touched = TouchedSet()
        touched.add_profile(profile, table.record.location)
        touched.write_to(record)


def _check_columns(record: InstantRecord, profile: pb.WorkProfile, table: LakeTable) -> None:
    """Two writers of one column must name it by one id, so fields within columns are not told apart."""
    if not profile.columns:
        return
    if record.operation != pb.UPSERT:
        raise InvalidArgument(
            f"columns are named by an UPSERT that writes some of a row; {pb.Operation.Name(record.operation)} changes "
            "whole rows"
        )
    columns = {column.id for column in table.schema.columns}
    for column_id in profile.columns:
        # One that was dropped since is fine; one that there never was would collide with nothing.
        if not 1 <= column_id <= table.record.last_column_id:
            raise InvalidArgument(f"columns: {table.name} has no column id {column_id}")
        field = table.schema.find_id(column_id)
        if field is not None and column_id not in columns:
            raise InvalidArgument(
                f"column id {column_id} is field {field.name!r} within a column; name the column that it belongs to"
            )
