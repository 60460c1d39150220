"""What FoundationDB's errors mean to a caller: decided by code, in one table, never by the text of a message.

The codes come from FoundationDB's documentation, "Error codes". Which of them may be retried, and which leave the
outcome unknown, comes from ``fdb_error_predicate`` of its client.
"""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import CorruptStore, FailedPrecondition, Internal, LakemarkError, Unavailable

from ..api import (
    CommitUnknownResult,
    Conflict,
    KeyTooLarge,
    TransactionTooLarge,
    TransactionTooOld,
    TryAgain,
    ValueTooLarge,
)

_NOTHING: Final = "nothing was applied"

TIMED_OUT: Final = 1031

MEANINGS: Final[dict[int, tuple[type[LakemarkError], str]]] = {
    1007: (TransactionTooOld, "the transaction took longer than FoundationDB keeps old versions"),
    1009: (TryAgain, "FoundationDB's storage servers are behind"),
    1020: (Conflict, "another transaction wrote what this one had read"),
    TIMED_OUT: (Unavailable, "FoundationDB did not answer in time"),
    1032: (TryAgain, "too many callers wait for changes"),
    1037: (TryAgain, "FoundationDB's storage servers are behind"),
    1038: (Unavailable, "FoundationDB is locked by its operator, as during a restore"),
    1039: (Unavailable, "FoundationDB is being upgraded"),
    1042: (TryAgain, "FoundationDB has too many commits under way"),
    1051: (TryAgain, "FoundationDB throttles its clients"),
    1078: (TryAgain, "FoundationDB has too many transactions waiting to begin"),
    1213: (TryAgain, "FoundationDB throttles its clients"),
    1223: (TryAgain, "FoundationDB throttles its clients"),
    1235: (TryAgain, "FoundationDB throttles writes to a part of its keys"),
    1242: (TryAgain, "a part of FoundationDB's keys is locked, as while it is loaded in bulk"),
    1501: (Unavailable, "there is no memory left for FoundationDB's client"),
    1515: (FailedPrecondition, "there is no cluster file at the path"),
    1520: (CorruptStore, "FoundationDB found damaged data; restore a backup"),
    1522: (CorruptStore, "FoundationDB found a damaged file; restore a backup"),
    2101: (TransactionTooLarge, "the transaction is larger than FoundationDB takes"),
    2102: (KeyTooLarge, "a key is larger than FoundationDB takes"),
    2103: (ValueTooLarge, "a value is larger than FoundationDB takes"),
    2104: (FailedPrecondition, "the cluster file holds no connection string"),
    2203: (FailedPrecondition, "FoundationDB's client library is too old"),
}
"""Errors by code, if nothing was applied."""

_SURELY_NOT_COMMITTED: Final = frozenset(
    {1007, 1009, 1020, 1037, 1038, 1042, 1051, 1078, 1213, 1223, 1235, 1242, 2101, 2102, 2103}
)
"""Codes with which the cluster or the client refuses a commit. All others leave its outcome unknown."""


def translated(code: int, text: str) -> LakemarkError:
    """The error of a caller for whom nothing was applied; ``text`` is FoundationDB's."""
    meaning = MEANINGS.get(code)
    if meaning is None:
        return Internal(f"FoundationDB failed in a way that this release does not know ({code}: {text}); {_NOTHING}")
    error, words = meaning
    return error(f"{words} ({code}: {text}); {_NOTHING}")


def commit_error(code: int, text: str) -> LakemarkError:
    """The error of a transaction whose commit was sent.

    After 1021, FoundationDB's client makes sure that the commit is no longer under way. After a time-out it may be.
    """
    if code in _SURELY_NOT_COMMITTED:
        return translated(code, text)
    return CommitUnknownResult(
        f"FoundationDB was lost while committing ({code}: {text}); the change may be there or not"
    )
