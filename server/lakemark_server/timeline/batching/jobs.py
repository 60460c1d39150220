"""What writers ask of the timeline, and what can be checked of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lakemark_core.errors import InvalidArgument, LakemarkError
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.store.requests import check_request_id
from lakemark_server.timeline.conflicts.changes import Operation
from lakemark_server.timeline.conflicts.rules import SERVICES, WRITES
from lakemark_server.timeline.publication.publish import check_metadata

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
    pb.MERGE_BRANCH: "MergeBranch",
    pb.MAKE_SAVEPOINT: "CreateSavepoint",
}


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A writer that wants an instant. ``profile`` is None if it stays requested."""

    operation: Operation
    branch: str = ""
    request_id: str = ""
    owner: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    heartbeat_timeout_ms: int = 0
    read_version: int = 0
    profile: pb.WorkProfile | None = None

    @classmethod
    def of(cls, request: pb.OpenInstantRequest) -> OpenJob:
        starts = request.start or request.HasField("profile")
        return cls(
            operation=request.operation,
            branch=request.branch,
            request_id=request.request_id,
            owner=request.owner,
            metadata=request.metadata,
            heartbeat_timeout_ms=request.heartbeat_timeout_ms,
            read_version=request.read_version,
            profile=request.profile if starts else None,
        )


@dataclass(frozen=True, slots=True)
class StartJob:
    """A writer that tells what it is going to do."""

    instant: int
    profile: pb.WorkProfile


@dataclass(frozen=True, slots=True)
class Opened:
    """What a writer gets: its instant, and the table as it was then."""

    record: InstantRecord
    table: LakeTable


class Moved:
    """The answer to a job that waited in the wrong place: its name means another table by now, or none, or its files
    are more than a batch reads. Whoever handed it in looks again, with a thread of his own."""


MOVED: Final = Moved()


@dataclass(frozen=True, slots=True)
class CommittedAndOpened:
    """``opened``: the next instant of the writer, or why it is not to be had; the commit stands."""

    response: pb.CommitResponse
    opened: Opened | LakemarkError


def check_open(job: OpenJob) -> None:
    """Raises InvalidArgument, LimitExceeded for what can be seen to be wrong without the store."""
    if job.operation not in WRITERS:
        choice = f"use one of {', '.join(pb.Operation.Name(one) for one in WRITERS)}"
        if job.operation == pb.OPERATION_UNSPECIFIED:
            raise InvalidArgument(f"operation is missing: {choice}")
        if job.operation not in pb.Operation.values():
            raise InvalidArgument(f"operation {job.operation} is not known: {choice}")
        raise InvalidArgument(
            f"no instant is opened for {pb.Operation.Name(job.operation)}: {OWN_REQUESTS[job.operation]} does it in "
            f"one request. To write, {choice}"
        )
    if not 0 <= job.heartbeat_timeout_ms <= HEARTBEAT_TIMEOUT_MS_MAX:
        raise InvalidArgument(f"heartbeat_timeout_ms must lie between 0 and {HEARTBEAT_TIMEOUT_MS_MAX}")
    if job.read_version < 0:
        raise InvalidArgument(f"read_version {job.read_version} is negative")
    check_request_id(job.request_id)
    check_metadata(job.metadata)
    if len(job.owner) > OWNER_CHARS_MAX:
        raise InvalidArgument(f"owner has more than {OWNER_CHARS_MAX} characters")
