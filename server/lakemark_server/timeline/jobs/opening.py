"""Jobs that open instants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lakemark_core.errors import InstantNotFound, InvalidArgument, LimitExceeded
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.admission import usage
from lakemark_server.kv import ReadTransaction
from lakemark_server.store.mutations import answered
from lakemark_server.store.requests import check_request_id
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import retention
from lakemark_server.timeline.conflicts.changes import Operation
from lakemark_server.timeline.conflicts.rules import SERVICES, WRITES
from lakemark_server.timeline.instants.alive import Alive
from lakemark_server.timeline.jobs.early_conflicts import check_start
from lakemark_server.timeline.jobs.job import JOB_BYTES, Batch, Job, Opened
from lakemark_server.timeline.publication.commits import check_metadata, metadata_bytes

HEARTBEAT_TIMEOUT_MS: Final = 120_000
OPEN_INSTANTS_MAX: Final = 10_000
HEARTBEAT_TIMEOUT_MS_MAX: Final = 24 * 3_600_000
OWNER_CHARS_MAX: Final = 200
WRITERS: Final = tuple(sorted(WRITES | SERVICES))
"""Operations that go from request over staging to commit."""
OWN_REQUESTS: Final[Mapping[Operation, str]] = {
    pb.CLEAN_FILES: "Clean",
    pb.RESTORE_VERSION: "Restore",
    pb.ALTER_SCHEMA: "AlterSchema",
    pb.ALTER_BUCKETS: "AlterBuckets",
    pb.MERGE_BRANCH: "MergeBranch",
    pb.MAKE_SAVEPOINT: "CreateSavepoint",
}


def find_opened(tx: ReadTransaction, table_id: int, request_id: str) -> InstantRecord | None:
    """The instant that an ``OpenJob`` with this id has opened, as it is now; None: there is none, or not any more."""
    opened = answered(tx, request_id, _kind(table_id), InstantRecord)
    try:
        return None if opened is None else records.instant(tx, table_id, opened.instant)
    except InstantNotFound:
        return None


def _kind(table_id: int) -> str:
    """What is asked for, as it is recorded with the answer."""
    return f"OpenInstant of table {table_id}"


@dataclass(frozen=True, slots=True)
class OpenJob(Job):
    """A writer that wants an instant.

    ``profile`` stays the data message that the writer sent; None: the instant stays requested. ``read_version`` None:
    the latest; 0 is what a table is before its first commit. ``heartbeat_timeout_ms`` 0: ``HEARTBEAT_TIMEOUT_MS``.
    ``branch`` empty: main. ``request_id`` empty: asked again, it opens another instant.
    """

    operation: Operation
    branch: str = ""
    request_id: str = ""
    owner: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    heartbeat_timeout_ms: int = 0
    read_version: int | None = None
    profile: pb.WorkProfile | None = None

    @property
    def size_bytes(self) -> int:
        once_bytes = metadata_bytes(self.metadata) + (self.profile.ByteSize() if self.profile else 0)
        return JOB_BYTES + (2 * once_bytes if self.request_id else once_bytes)  # the answer is recorded, too

    def check(self) -> None:
        """Raises InvalidArgument, LimitExceeded for what can be seen to be wrong without the store."""
        if self.operation not in WRITERS:
            choice = f"use one of {', '.join(pb.Operation.Name(one) for one in WRITERS)}"
            if self.operation == pb.OPERATION_UNSPECIFIED:
                raise InvalidArgument(f"operation is missing: {choice}")
            if self.operation not in pb.Operation.values():
                raise InvalidArgument(f"operation {self.operation} is not known: {choice}")
            raise InvalidArgument(
                f"no instant is opened for {pb.Operation.Name(self.operation)}: {OWN_REQUESTS[self.operation]} does it "
                f"in one request. To write, {choice}"
            )
        if not 0 <= self.heartbeat_timeout_ms <= HEARTBEAT_TIMEOUT_MS_MAX:
            raise InvalidArgument(f"heartbeat_timeout_ms must lie between 0 and {HEARTBEAT_TIMEOUT_MS_MAX}")
        if self.read_version is not None and self.read_version < 0:
            raise InvalidArgument(f"read_version {self.read_version} is negative")
        check_request_id(self.request_id)
        check_metadata(self.metadata)
        if len(self.owner) > OWNER_CHARS_MAX:
            raise InvalidArgument(f"owner has more than {OWNER_CHARS_MAX} characters")

    def run(self, batch: Batch) -> Opened:
        """A new instant, or that of the same request. Raises CommitConflict, InvalidArgument, VersionNotFound …"""
        state = batch.state
        kind = _kind(state.table_id)
        opened = batch.mutation.once(self.request_id, kind, InstantRecord, lambda _: self._open(batch))
        if not opened.repeated:
            return Opened(opened.answer, state.table)
        # It may have moved on since; the writer that asks again wants to know where it stands.
        return Opened.before(state, records.instant(state.tx, state.table_id, opened.answer.instant))

    def _open(self, batch: Batch) -> InstantRecord:
        state, now_ms = batch.state, batch.mutation.now_ms
        table, branch = state.table, state.branch_named(self.branch)
        latest = branch.head.version
        read_version = latest if self.read_version is None else self.read_version
        if read_version > latest:
            raise InvalidArgument(f"read_version {read_version} does not exist; {table.name} is at version {latest}")
        if read_version != latest:
            # Version 0 can always be read, but what came since, and may collide, need not be known any more.
            retention.require_readable(state.tx, state.table_id, table.name, branch.lineage, max(read_version, 1))
        if len(state.writers) >= OPEN_INSTANTS_MAX:
            raise LimitExceeded(f"{table.name} has {OPEN_INSTANTS_MAX} open instants; no more are allowed")
        timeout = self.heartbeat_timeout_ms or HEARTBEAT_TIMEOUT_MS
        record = InstantRecord(
            branch=branch.lineage.key,
            operation=self.operation,
            state=pb.REQUESTED,
            read_version=read_version,
            heartbeat_timeout_ms=timeout,
            opened_ms=now_ms,
            schema_id=table.record.schema_id,
            owner=self.owner,
            metadata=self.metadata,
        )
        if self.profile is not None:
            check_start(batch, branch, record, self.profile)
            record.state = pb.INFLIGHT
        batch.quotas.take(state.tx, table.record.catalog, usage.OPEN_INSTANTS)
        record.instant = records.next_instant(state.tx, state.table_id, now_ms)
        records.put_instant(state.tx, state.table_id, record)
        state.put_writer(Alive(record.instant, now_ms + timeout, timeout, record.state == pb.INFLIGHT, self.operation))
        return record
