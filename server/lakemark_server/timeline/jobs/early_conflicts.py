"""Early conflict detection: a writer that would collide learns so when it starts, before it writes its files."""

from __future__ import annotations

from lakemark_core.errors import InvalidArgument
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.entries.columns import partition_of
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.conflicts.changes import of_record
from lakemark_server.timeline.conflicts.partition_list import PartitionList
from lakemark_server.timeline.conflicts.rules import find_collision
from lakemark_server.timeline.conflicts.touched import TouchedSet
from lakemark_server.timeline.jobs.job import Batch
from lakemark_server.timeline.publication.publish import refusal
from lakemark_server.timeline.publication.rivals import find_rival
from lakemark_server.timeline.publication.table_state import BranchState
from lakemark_server.timeline.refusals import REASON_CHARS_MAX, Refusal


def check_start(batch: Batch, branch: BranchState, record: InstantRecord, profile: pb.WorkProfile) -> None:
    """Checks against what was committed since the read version, and against live writers; notes the profile in the
    record. Raises CommitConflict, InvalidArgument, LimitExceeded."""
    state = batch.state
    state.guard_starts()
    table = state.table
    _apply_profile(record, profile, table)
    mine = of_record(record)
    done = batch.log.between(
        state.tx, state.table_id, branch.lineage, record.read_version, branch.head.version, branch.fresh
    )
    collision = find_collision(table.policy, mine, done) or find_rival(state, record, mine, batch.mutation.now_ms)
    if collision:
        conflict = refusal(state, collision, record.read_version, batch.mutation.now_ms)
        batch.refused_starts.append(
            Refusal(
                batch.mutation.now_ms,
                table.table_id,
                table.name,
                forks.name_of(record.branch),
                record.operation,
                record.owner,
                conflict.message[:REASON_CHARS_MAX],
            )
        )
        raise conflict


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
