"""Converts records of the store to messages of the protocol."""

from __future__ import annotations

from lakemark_proto.store.v1.store_pb2 import (
    InstantRecord,
    LakeTableRecord,
    TagRecord,
    VersionRecord,
)
from lakemark_proto.v1 import catalog_pb2, timeline_pb2, types_pb2
from lakemark_server.catalog import definitions
from lakemark_server.catalog.lake import POLICIES, LakeTable
from lakemark_server.catalog.schemas import SchemaVersion
from lakemark_server.timeline.branches.forks import name_of
from lakemark_server.timeline.instants.alive import Alive

_ACTIONS = {
    timeline_pb2.APPEND: timeline_pb2.COMMIT,
    timeline_pb2.UPSERT: timeline_pb2.COMMIT,
    timeline_pb2.DELETE: timeline_pb2.COMMIT,
    timeline_pb2.OVERWRITE_PARTITIONS: timeline_pb2.REPLACECOMMIT,
    timeline_pb2.OVERWRITE_TABLE: timeline_pb2.REPLACECOMMIT,
    timeline_pb2.OVERWRITE_PREDICATE: timeline_pb2.REPLACECOMMIT,
    timeline_pb2.COMPACT: timeline_pb2.COMPACTION,
    timeline_pb2.CLUSTER: timeline_pb2.CLUSTERING,
    timeline_pb2.CLEAN_FILES: timeline_pb2.CLEAN,
    timeline_pb2.RESTORE_VERSION: timeline_pb2.RESTORE,
    timeline_pb2.ALTER_SCHEMA: timeline_pb2.SCHEMA,
    timeline_pb2.ALTER_BUCKETS: timeline_pb2.BUCKETS,
    timeline_pb2.MERGE_BRANCH: timeline_pb2.COMMIT,
    timeline_pb2.MAKE_SAVEPOINT: timeline_pb2.SAVEPOINT,
}


def dropped_table(record: LakeTableRecord) -> catalog_pb2.DroppedTable:
    how = record.dropped
    return catalog_pb2.DroppedTable(
        name=types_pb2.TableName(catalog=record.catalog, database=record.database, table=record.name),
        table_id=record.table_id,
        location=record.location,
        dropped_ms=how.dropped_ms,
        until_ms=how.until_ms,
        dropped_by=how.by,
        keeps_files=how.keep_files or record.external,
        version=how.version if how.HasField("version") else None,
        files=how.files if how.HasField("files") else None,
        size_bytes=how.bytes if how.HasField("bytes") else None,
    )


def schema_version(known: SchemaVersion) -> catalog_pb2.SchemaVersion:
    return catalog_pb2.SchemaVersion(
        schema=definitions.schema_message(known.schema),
        version=known.version,
        committed_ms=known.committed_ms,
        changes=known.changes,
    )


def instant(record: InstantRecord, table: LakeTable, living: Alive | None = None) -> timeline_pb2.Instant:
    """``living`` adds the heartbeat of an instant that is still open."""
    return timeline_pb2.Instant(
        table=definitions.table_name(table),
        branch=name_of(record.branch),
        instant=record.instant,
        action=_action(record),
        operation=record.operation,
        state=record.state,
        read_version=record.read_version,
        version=record.version,
        heartbeat_ms=living.deadline_ms - living.timeout_ms if living else 0,
        heartbeat_timeout_ms=record.heartbeat_timeout_ms,
        completed_ms=record.completed_ms,
        staged_files=record.staged.files,
        staged_rows=record.staged.rows,
        staged_bytes=record.staged.bytes,
        metadata=record.metadata,
        rolled_back_reason=record.rolled_back_reason,
        owner=record.owner,
        removed_files=record.removed.files,
        conflict_code=record.conflict.code,
    )


def _action(record: InstantRecord) -> timeline_pb2.Action.ValueType:
    if record.deltas and record.operation in (timeline_pb2.UPSERT, timeline_pb2.DELETE):
        return timeline_pb2.DELTACOMMIT
    return _ACTIONS.get(record.operation, timeline_pb2.ACTION_UNSPECIFIED)


def opened_instant(record: InstantRecord, table: LakeTable) -> timeline_pb2.Instant:
    """The instant, with what a writer needs to begin."""
    message = instant(record, table)
    message.staging_location = f"{table.record.location}/{record.instant}"
    message.schema.CopyFrom(definitions.schema_message(table.schema))
    message.conflict_policy = POLICIES[table.policy]
    return message


def savepoint(record: TagRecord) -> timeline_pb2.ListSavepointsResponse.Savepoint:
    return timeline_pb2.ListSavepointsResponse.Savepoint(
        branch=record.branch_name,
        version=record.version,
        comment=record.comment,
        created_ms=record.created_ms,
        instant=record.savepoint_instant,
    )


def version(record: VersionRecord) -> timeline_pb2.Version:
    """The version. A merge has the files of the versions that it replays."""
    of = record.merged if record.HasField("merged") else None
    added, removed = (record.staged, record.removed) if of is None else (of.added, of.removed)
    message = timeline_pb2.Version(
        version=record.version,
        instant=record.instant,
        committed_ms=record.committed_ms,
        operation=record.operation,
        read_version=record.read_version,
        schema_id=record.schema_id,
        added_files=added.files,
        added_rows=added.rows,
        added_bytes=added.bytes,
        metadata=record.metadata,
        partitions=record.partitions,
        all_partitions=record.all_partitions,
        owner=record.owner,
        removed_files=removed.files,
        removed_rows=removed.rows,
        removed_bytes=removed.bytes,
        columns=record.touched.columns,
        restored_version=record.restored_version,
    )
    if record.HasField("merged"):
        merged = record.merged
        message.merged.branch, message.merged.after_version = merged.name, merged.after_version
        message.merged.upto_version = merged.upto_version
    return message
