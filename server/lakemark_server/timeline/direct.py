"""Versions that come to be in one request, without a writer: restores, merges, changes of the schema."""

from __future__ import annotations

from typing import Final

from lakemark.errors import CommitConflict, FailedPrecondition, InvalidArgument, LimitExceeded, VersionNotFound
from lakemark_proto.store.v1.store_pb2 import InstantRecord, Merged, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.keyspace import MAIN
from lakemark_server.timeline import branches, records, retention
from lakemark_server.timeline.change_log import ChangeLog
from lakemark_server.timeline.changes import Change, Operation, by_group
from lakemark_server.timeline.conflicts import Collision, find_collision
from lakemark_server.timeline.publish import following, put
from lakemark_server.timeline.table_state import BranchState, TableState

MERGED_VERSIONS_MAX: Final = 10_000


def publish_now(
    state: TableState, branch: BranchState, version: VersionRecord, operation: Operation, now_ms: int
) -> VersionRecord:
    """Completes ``version``, which says what changes, and publishes it as the branch's next one, whoever writes."""
    head = following(branch, now_ms)
    version.version, version.committed_ms = head.version, head.committed_ms
    version.instant = records.next_instant(state.tx, state.table_id, now_ms)
    version.operation = operation
    version.read_version = branch.head.version
    version.schema_id = version.schema_id or state.table.record.schema_id
    record = InstantRecord(
        instant=version.instant,
        branch=branch.lineage.key,
        operation=operation,
        read_version=version.read_version,
        opened_ms=now_ms,
        schema_id=version.schema_id,
        owner=version.owner,
        metadata=version.metadata,
    )
    put(state, branch, record, version)
    return version


def restore(state: TableState, branch: BranchState, version: int, owner: str, now_ms: int) -> VersionRecord:
    """A new version with the files of an old one. Raises VersionNotFound, InvalidArgument.

    Writers in flight lose: they have read what is no longer there.
    """
    latest = branch.head.version
    if version < 1:
        raise InvalidArgument(f"version {version} cannot be restored; name one from 1 to {latest}")
    if version > latest:
        raise VersionNotFound(
            f"{state.table.name} has no version {version}; the latest is {latest}",
            version=str(version),
            latest=str(latest),
        )
    retention.require_readable(state.tx, state.table_id, state.table.name, branch.lineage, version)
    fields = VersionRecord(restored_version=version, all_partitions=True, owner=owner)
    return publish_now(state, branch, fields, pb.RESTORE_VERSION, now_ms)


def merge(
    state: TableState, name: str, into: str, *, fast_forward_only: bool, owner: str, now_ms: int, log: ChangeLog
) -> tuple[VersionRecord, int]:
    """Replays what a branch has over its parent as one version of it; returns that, and how many versions it replays.

    The cost does not depend on the number of files. Raises BranchNotFound, InvalidArgument (not its parent),
    FailedPrecondition (nothing to merge, or not a fast-forward), CommitConflict, LimitExceeded.
    """
    tx, table_id, table = state.tx, state.table_id, state.table
    record = branches.branch(tx, table_id, name)
    target, source = state.branch_named(into), state.branch_named(name)
    if target.lineage.key != record.parent_key:
        raise InvalidArgument(
            f"branch {name!r} forked from {record.parent_name or MAIN!r}; it can be merged into that one only, not "
            f"into {into or MAIN!r}"
        )
    after, upto = max(record.fork_version, record.merged_version), source.head.version
    if upto <= after:
        raise FailedPrecondition(f"branch {name!r} has nothing that {into or MAIN!r} does not have", branch=name)
    if upto - after > MERGED_VERSIONS_MAX:
        raise LimitExceeded(
            f"branch {name!r} has {upto - after} versions to replay; at most {MERGED_VERSIONS_MAX} are merged at once"
        )
    theirs = [
        change
        for change in log.between(tx, table_id, target.lineage, record.fork_version, target.head.version, target.fresh)
        if change.merged_from != source.lineage.key
    ]
    if theirs and fast_forward_only:
        raise FailedPrecondition(
            f"{into or MAIN!r} has moved on since branch {name!r} forked at version {record.fork_version}: it can be "
            "merged by replay, not by fast-forward",
            fork_version=str(record.fork_version),
            latest=str(target.head.version),
        )
    for mine in log.between(tx, table_id, source.lineage, after, upto, source.fresh):
        collision = find_collision(table.policy, by_group(mine), theirs)
        if collision:
            raise _refusal(table.name, name, into or MAIN, mine, collision)
    fields = VersionRecord(
        merged=Merged(branch=source.lineage.key, name=name, after_version=after, upto_version=upto), owner=owner
    )
    version = publish_now(state, target, fields, pb.MERGE_BRANCH, now_ms)
    record.merged_version = upto
    branches.rewrite(tx, table_id, record)
    return version, upto - after


def _refusal(table: str, name: str, into: str, mine: Change, collision: Collision) -> CommitConflict:
    return CommitConflict(
        f"merge of branch {name!r} into {into!r} of {table} refused: version {mine.version} of the branch against "
        f"{collision.describe()}. Make a new branch of {into!r} and do the work again on it",
        branch=name,
        branch_version=str(mine.version),
        **collision.details(),
    )
