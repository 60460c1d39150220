"""The one error tree of Lakemark, used by the service, its facades and its clients.

Every error says what is wrong and what to do, and carries

* ``code``: a stable word for machines, sent on every protocol;
* ``grpc_status``: the name of the gRPC status it becomes;
* ``exit_code``: the exit status of the command line;
* ``outcome``: whether asking again helps;
* ``details``: what collided, which name was wrong … as strings, so that they travel unchanged.

Neither the message nor the details have secrets of URLs in them (``lakemark_core.redaction``).

::

    LakemarkError
    ├── InvalidArgument            the request can never work
    │   ├── OffsetUnknown           the log has no such event yet
    │   ├── InvalidName
    │   ├── InvalidPartition        values, a name or a definition that does not fit the partitions of its table
    │   ├── InvalidPredicate
    │   ├── InvalidSchema
    │   └── InvalidFile
    ├── NotFound
    │   ├── DatabaseNotFound, TableNotFound, PartitionNotFound, FunctionNotFound
    │   ├── VersionNotFound, BranchNotFound, InstantNotFound, ConsumerNotFound, SinkNotFound
    │   └── LockNotFound, TransactionNotFound
    ├── AlreadyExists
    ├── FailedPrecondition         the request does not fit the state of things
    │   ├── InstantStateError
    │   ├── NotEmpty
    │   ├── UnsupportedOperation
    │   ├── EventsTrimmed           events are kept no longer
    │   ├── EventsLost              a restored store does not have them
    │   ├── ConsumerTaken           somebody else has the consumer, or it was moved
    │   ├── TransactionAborted      by its client, by a conflict, or because it was silent for too long
    │   ├── TransactionOpen         its locks are freed by its end
    │   └── StorageRefused          where the files lie something is missing: details["reason"] says what
    ├── CommitConflict             lost the race; open a new instant and plan again
    ├── LimitExceeded              too large, too many
    │   └── QuotaExceeded          the tenant has all that it is allowed: free some, or ask for more
    ├── Unimplemented
    ├── Unavailable                try again later
    │   ├── StoreConflict          the transaction lost a race in the store too often
    │   ├── StorageUnavailable     the same of a store of files that may answer later
    │   ├── Overloaded             too many requests at once: come back after ``retry_after_ms``
    │   └── DeadlineExceeded       the request's time was over before anything happened
    ├── UnknownOutcome             it may have happened: ask again with the same request id
    │   ├── DeadlineUnknown        the request's time was over while its commit was on the way
    │   └── FilesLeft              it has happened, but files that go with it are still there
    └── Internal                   a defect of Lakemark
        └── CorruptStore

``UncommittedWarning`` is no error: it is given through ``warnings``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from lakemark_core.redaction import redacted


class Outcome(StrEnum):
    """What asking again would do."""

    FATAL = "fatal"
    RETRYABLE = "retryable"
    UNKNOWN = "unknown"


class LakemarkError(Exception):
    """Root of all errors; ``str(error)`` is written for the person who made the request."""

    code: ClassVar[str] = "internal"
    grpc_status: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 70
    outcome: ClassVar[Outcome] = Outcome.FATAL

    def __init__(self, message: str, /, **details: str) -> None:
        self.message = redacted(message)
        self.details: dict[str, str] = {name: redacted(value) for name, value in details.items()}
        super().__init__(self.message)


class InvalidArgument(LakemarkError):
    code = "invalid_argument"
    grpc_status = "INVALID_ARGUMENT"
    exit_code = 64


class InvalidName(InvalidArgument):
    code = "invalid_name"


class InvalidPartition(InvalidArgument):
    code = "invalid_partition"


class InvalidPredicate(InvalidArgument):
    code = "invalid_predicate"


class InvalidSchema(InvalidArgument):
    code = "invalid_schema"


class InvalidFile(InvalidArgument):
    code = "invalid_file"


class OffsetUnknown(InvalidArgument):
    """The log of events has no such offset yet; ``details["last_offset"]`` is the last one."""

    code = "offset_unknown"


class NotFound(LakemarkError):
    code = "not_found"
    grpc_status = "NOT_FOUND"
    exit_code = 66


class DatabaseNotFound(NotFound):
    code = "database_not_found"


class TableNotFound(NotFound):
    code = "table_not_found"


class PartitionNotFound(NotFound):
    code = "partition_not_found"


class FunctionNotFound(NotFound):
    code = "function_not_found"


class VersionNotFound(NotFound):
    code = "version_not_found"


class BranchNotFound(NotFound):
    code = "branch_not_found"


class InstantNotFound(NotFound):
    code = "instant_not_found"


class ConsumerNotFound(NotFound):
    code = "consumer_not_found"


class SinkNotFound(NotFound):
    code = "sink_not_found"


class LockNotFound(NotFound):
    """It was freed, or its holder was silent for too long."""

    code = "lock_not_found"


class TransactionNotFound(NotFound):
    """It was never opened, or has ended long ago."""

    code = "transaction_not_found"


class AlreadyExists(LakemarkError):
    code = "already_exists"
    grpc_status = "ALREADY_EXISTS"
    exit_code = 65


class FailedPrecondition(LakemarkError):
    code = "failed_precondition"
    grpc_status = "FAILED_PRECONDITION"
    exit_code = 65


class InstantStateError(FailedPrecondition):
    code = "instant_state"


class NotEmpty(FailedPrecondition):
    code = "not_empty"


class LocationTaken(FailedPrecondition):
    """A directory belongs to another table, partition or database, or lies inside or around such a one.

    ``details``: ``location``, and ``by``, who has it.
    """

    code = "location_taken"


class UnsupportedOperation(FailedPrecondition):
    code = "unsupported_operation"


class EventsTrimmed(FailedPrecondition):
    """The events behind the offset are kept no longer; ``details["first_offset"]`` is the first that there is."""

    code = "events_trimmed"


class EventsLost(FailedPrecondition):
    """The store was restored from a backup that has no such event of the epoch, or does not know the epoch.

    ``details["last_offset"]`` is the last event that is certainly the same in both; 0: none is.
    """

    code = "events_lost"


class ConsumerTaken(FailedPrecondition):
    """Another member of its group has the consumer, or it was moved or dropped: what is said of it no longer counts."""

    code = "consumer_taken"


class TransactionAborted(FailedPrecondition):
    """The transaction was aborted: by its client, by a conflict, or because it was silent for too long."""

    code = "transaction_aborted"


class TransactionOpen(FailedPrecondition):
    """The lock belongs to a transaction: it is freed when that is committed or aborted."""

    code = "transaction_open"


class StorageRefused(FailedPrecondition):
    """Where the files lie something is missing: credentials, a permission, the bucket, the right region.

    ``details``: ``location``, ``bucket``, ``reason``.
    """

    code = "storage_refused"


class CommitConflict(LakemarkError):
    """Another commit or writer came first; ``details`` name the instant, version, policy and what collides."""

    code = "commit_conflict"
    grpc_status = "ABORTED"
    exit_code = 75


class LimitExceeded(LakemarkError):
    code = "limit_exceeded"
    grpc_status = "RESOURCE_EXHAUSTED"
    exit_code = 69


class QuotaExceeded(LimitExceeded):
    """``details``: ``catalog`` (the tenant), ``limit`` (its name), ``allowed``, ``used``, ``asked``."""

    code = "quota_exceeded"


class Unimplemented(LakemarkError):
    code = "unimplemented"
    grpc_status = "UNIMPLEMENTED"
    exit_code = 69


class Unavailable(LakemarkError):
    code = "unavailable"
    grpc_status = "UNAVAILABLE"
    exit_code = 75
    outcome = Outcome.RETRYABLE


class StoreConflict(Unavailable):
    code = "store_conflict"


class StorageUnavailable(Unavailable):
    """Where the files lie nothing answered, or only that it has too much to do, at each of several attempts.

    ``details``: ``location``, ``bucket``, ``reason``.
    """

    code = "storage_unavailable"


class Overloaded(Unavailable):
    """Nothing happened. ``details["retry_after_ms"]`` says after which time it is worth asking again."""

    code = "overloaded"
    grpc_status = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(Unavailable):
    """The time that the client gave was over, or the client was gone, before anything of the request happened."""

    code = "deadline_exceeded"
    grpc_status = "DEADLINE_EXCEEDED"


class UnknownOutcome(LakemarkError):
    code = "unknown_outcome"
    grpc_status = "UNKNOWN"
    exit_code = 75
    outcome = Outcome.UNKNOWN


class DeadlineUnknown(UnknownOutcome):
    """The time that the client gave was over while a commit was with the store, which may or may not carry it out."""

    code = "deadline_unknown"
    grpc_status = "DEADLINE_EXCEEDED"


class FilesLeft(UnknownOutcome):
    """It has happened and stays so, but files that were to be deleted with it are still there. Asked again with the
    same request id, it goes on with them."""

    code = "files_left"


class Internal(LakemarkError):
    code = "internal"


class CorruptStore(Internal):
    code = "corrupt_store"
    grpc_status = "DATA_LOSS"


class UncommittedWarning(UserWarning):
    """A writer's ``with`` block ended without an error and without a commit: what was staged is rolled back.

    Give ``Writer.rollback`` if that is what is meant; nobody is warned then.
    """


def _tree(root: type[LakemarkError]) -> dict[str, type[LakemarkError]]:
    by_code = {root.code: root} if root is not LakemarkError else {}
    for child in root.__subclasses__():
        by_code |= _tree(child)
    return by_code


def by_code(code: str) -> type[LakemarkError]:
    """The class whose ``code`` this is; ``Internal`` for a code that this release does not know."""
    return _tree(LakemarkError).get(code, Internal)
