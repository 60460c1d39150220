"""Versions that one request makes without a writer: restores, merges, changes of the schema."""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import FailedPrecondition, InvalidArgument, LimitExceeded, VersionNotFound
from lakemark_proto.store.v1.store_pb2 import (
    InstantRecord,
    Merged,
    RemovedTotals,
    Replayed,
    StagedTotals,
    VersionRecord,
)
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.context import caller
from lakemark_server.store.keyspace import MAIN
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import retention
from lakemark_server.timeline.branches.divergence import Head, put_merge
from lakemark_server.timeline.branches.merges import check_merge, diverged
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.conflicts.changes import Operation
from lakemark_server.timeline.publication.publish import next_head, put
from lakemark_server.timeline.publication.table_state import BranchState, TableState

# The list of them has to fit into the version's record.
RUNS_MAX: Final = 1_000


def publish_now(
    state: TableState,
    branch: BranchState,
    version: VersionRecord,
    operation: Operation,
    now_ms: int,
    by: caller.Name = caller.nobody,
) -> VersionRecord:
    """Completes ``version``, which says what changes, and publishes it as the branch's next one, whoever writes."""
    head = next_head(branch, now_ms)
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
        # What a merge brought, for whoever looks at the instant; it has no blocks of its own.
        staged=version.merged.added if version.HasField("merged") else None,
        removed=version.merged.removed if version.HasField("merged") else None,
    )
    put(state, branch, record, version, by)
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
) -> tuple[VersionRecord, int, bool]:
    """Replays on a branch what another one has and it does not, as one version.

    Returns that, how many versions it replays, and whether it was a fast-forward: both have the same now. The cost does
    not depend on the number of files. Raises BranchNotFound, InvalidArgument (into itself), FailedPrecondition (nothing
    to merge, or not a fast-forward), CommitConflict, LimitExceeded.
    """
    tx, table_id, table = state.tx, state.table_id, state.table
    name, into = name or MAIN, into or MAIN
    source, target = state.branch_named(name), state.branch_named(into)
    if source is target:
        raise InvalidArgument(f"branch {name!r} cannot be merged into itself; say with into which branch is to get it")
    heads = (Head(one, of.lineage, of.head.version) for one, of in ((name, source), (into, target)))
    divergence = diverged(tx, table_id, log, *heads)
    if not divergence.source.own:
        raise FailedPrecondition(f"branch {name!r} has nothing that {into!r} does not have", branch=name)
    if fast_forward_only and not divergence.fast_forward:
        raise FailedPrecondition(
            f"branch {into!r} has what branch {name!r} does not have since version {divergence.target.after}: it can "
            "be merged by replay, not by fast-forward",
            shared_version=str(divergence.target.after),
            latest=str(target.head.version),
        )
    count, totals = check_merge(tx, log, table, divergence)
    runs = divergence.source.own
    if len(runs) > RUNS_MAX:
        raise LimitExceeded(
            f"what branch {name!r} would bring came in {len(runs)} pieces between merges from other branches; at most "
            f"{RUNS_MAX} are merged at once"
        )
    merged = Merged(
        branch=source.lineage.key,
        name=name,
        after_version=divergence.source.after,
        upto_version=source.head.version,
        replayed=(Replayed(branch=run.branch, after_version=run.after, upto_version=run.upto) for run in runs),
        added=StagedTotals(files=totals.files, rows=totals.rows, bytes=totals.bytes),
        removed=RemovedTotals(files=totals.removed_files, rows=totals.removed_rows, bytes=totals.removed_bytes),
    )
    version = publish_now(state, target, VersionRecord(merged=merged, owner=owner), pb.MERGE_BRANCH, now_ms)
    put_merge(tx, table_id, target.lineage.key, version.version, divergence.source)
    return version, count, divergence.fast_forward
