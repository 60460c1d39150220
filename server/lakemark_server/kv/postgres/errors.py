"""What PostgreSQL's failures mean to a caller: decided by SQLSTATE, in one table, never by the text of a message.

The codes come from PostgreSQL's documentation, appendix A.
"""

from __future__ import annotations

from typing import Final

import psycopg

from lakemark_core.errors import CorruptStore, FailedPrecondition, Internal, LakemarkError, LimitExceeded, Unavailable

from ..api import CommitUnknownResult, Conflict, StoreFormatUnknown
from ..limits import too_old


class PostgresFailure(Exception):
    """A statement or the connection failed. The connection is closed then, which rolls back its transaction.

    ``sqlstate`` is None if the server sent none: the connection was lost, or the server did not answer in time.
    ``statement`` is the position of the failed statement among those sent together; None if unknown.
    """

    def __init__(self, message: str, sqlstate: str | None = None, statement: int | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.statement = statement

    @property
    def lost(self) -> bool:
        """Whether the connection broke, rather than the statement: another connection may do better."""
        return self.sqlstate is None or self.sqlstate[:3] == "57P" or self.sqlstate[:2] == "08"


def failure_of(error: psycopg.Error, text: str) -> PostgresFailure:
    """The driver's error, in one line. ``text`` is its message without secrets."""
    return PostgresFailure(" ".join((error.diag.message_primary or text).split()), error.sqlstate)


class NoAnswer(PostgresFailure):
    """The server did not answer in time. Asking again at once is of no use."""

    lost = False


_NOTHING: Final = "nothing was applied"

# By full code, else by class (the first two letters).
MEANINGS: Final[dict[str, tuple[type[LakemarkError], str]]] = {
    "08": (Unavailable, "the connection to PostgreSQL failed"),
    "25006": (Unavailable, "PostgreSQL takes no writes here: a standby, or one that was demoted"),
    "25P03": (Unavailable, "this process held a transaction open for too long"),
    "3F000": (StoreFormatUnknown, "the store's schema is gone"),
    "40": (Conflict, "PostgreSQL rolled the transaction back to let others through"),
    "42501": (FailedPrecondition, "this user lacks a right on the store's schema"),
    "42P01": (StoreFormatUnknown, "a table of the store is gone"),
    "42P07": (StoreFormatUnknown, "the schema holds tables that are not Lakemark's"),
    "53": (Unavailable, "PostgreSQL is out of memory, disk or connections"),
    "54": (LimitExceeded, "PostgreSQL's own limits do not allow this"),
    "55P03": (Unavailable, "other commits took too long"),
    "57": (Unavailable, "PostgreSQL ended the statement or the connection"),
    "58": (Unavailable, "PostgreSQL's files cannot be read or written now"),
    "XX001": (CorruptStore, "PostgreSQL found a damaged page; restore a backup"),
    "XX002": (CorruptStore, "PostgreSQL found a damaged index; REINDEX it"),
}
STATEMENT_TIMEOUT: Final = "57014"


def translated(failure: PostgresFailure) -> LakemarkError:
    """The error of a caller for whom nothing was applied."""
    code = failure.sqlstate
    if code is None:
        # A refused connection, too: for that, libpq shows the server's words but not its code.
        return Unavailable(f"PostgreSQL cannot be reached ({failure}); {_NOTHING}")
    meaning = MEANINGS.get(code) or MEANINGS.get(code[:2])
    if meaning is None:
        return Internal(f"PostgreSQL failed in a way that this release does not know ({code}: {failure}); {_NOTHING}")
    error, words = meaning
    return error(f"{words} ({code}: {failure}); {_NOTHING}")


def read_error(failure: PostgresFailure) -> LakemarkError:
    """The error of a read. A statement may run for as long as a transaction may live."""
    return too_old() if failure.sqlstate == STATEMENT_TIMEOUT else translated(failure)


def commit_error(failure: PostgresFailure, commit: int) -> LakemarkError:
    """The error of a transaction whose COMMIT was sent as statement number ``commit``.

    PostgreSQL answers in order and skips what follows a failed statement: an answer about an earlier statement means
    that COMMIT did not run. A lost connection, or a server that shuts down, says nothing about it.
    """
    if failure.statement is not None and failure.statement < commit:
        return translated(failure)
    return CommitUnknownResult(
        f"PostgreSQL was lost while committing ({failure.sqlstate or failure}); the change may be there or not"
    )
