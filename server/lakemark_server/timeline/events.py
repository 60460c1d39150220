"""Events of lake tables' timelines: what a mutation tells of versions, instants, branches and tags."""

from __future__ import annotations

from lakemark_proto.store.v1.store_pb2 import InstantRecord, LakeTableRecord, VersionRecord
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.catalog_pb2 import BRANCH, Reference
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.timeline.branches.forks import name_of


def of_commit(table: LakeTableRecord, branch_key: str, version: VersionRecord, by: str = "") -> Event:
    """``by`` "": the current caller."""
    added = version.merged.added if version.HasField("merged") else version.staged
    removed = version.merged.removed if version.HasField("merged") else version.removed
    event = _of_table(pb.COMMITTED, table)
    event.by = by
    detail = event.commit
    detail.branch = name_of(branch_key)
    detail.version = version.version
    detail.instant = version.instant
    detail.operation = version.operation
    detail.read_version = version.read_version
    detail.schema_id = version.schema_id
    detail.partitions.extend(version.partitions)
    detail.all_partitions = version.all_partitions
    detail.added_files, detail.added_rows, detail.added_bytes = added.files, added.rows, added.bytes
    detail.removed_files, detail.removed_rows, detail.removed_bytes = removed.files, removed.rows, removed.bytes
    detail.deltas = version.deltas
    detail.metadata.update(version.metadata)
    detail.owner = version.owner
    detail.restored_version = version.restored_version
    detail.merged_branch = version.merged.name
    return event


def of_rollback(table: LakeTableRecord, record: InstantRecord, by: str = "") -> Event:
    """``by`` "": the current caller."""
    event = _of_table(pb.INSTANT_ROLLED_BACK, table)
    event.by = by
    event.rollback.branch = name_of(record.branch)
    event.rollback.instant = record.instant
    event.rollback.operation = record.operation
    event.rollback.reason = record.rolled_back_reason
    return event


def of_clean(table: LakeTableRecord, instant: int, files: int, size_bytes: int, earliest_version: int) -> Event:
    event = _of_table(pb.CLEANED, table)
    event.clean.instant = instant
    event.clean.deleted_files, event.clean.deleted_bytes = files, size_bytes
    event.clean.earliest_version = earliest_version
    return event


def of_savepoint(
    kind: pb.EventKind.ValueType, table: LakeTableRecord, record: InstantRecord, request_id: str = ""
) -> Event:
    """``record``: the savepoint's instant."""
    event = _of_table(kind, table, request_id)
    event.savepoint.branch = name_of(record.branch)
    event.savepoint.version = record.read_version
    event.savepoint.instant = record.instant
    return event


def of_reference(table: LakeTableRecord, reference: Reference, *, dropped: bool = False, request_id: str = "") -> Event:
    """``reference`` was created, or ``dropped``."""
    created, gone = (
        (pb.BRANCH_CREATED, pb.BRANCH_DROPPED) if reference.kind == BRANCH else (pb.TAG_CREATED, pb.TAG_DROPPED)
    )
    event = _of_table(gone if dropped else created, table, request_id)
    event.reference.CopyFrom(reference)
    return event


def _of_table(kind: pb.EventKind.ValueType, table: LakeTableRecord, request_id: str = "") -> Event:
    return Event(
        kind=kind,
        catalog=table.catalog,
        database=table.database,
        table=table.name,
        table_id=table.table_id,
        request_id=request_id,
    )
