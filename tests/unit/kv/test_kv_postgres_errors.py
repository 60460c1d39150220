"""SQLSTATE to error: every class of failure, and the outcome of a commit on its way."""

from __future__ import annotations

import psycopg
import pytest

from lakemark_core.errors import CorruptStore, FailedPrecondition, Internal, LakemarkError, LimitExceeded, Unavailable
from lakemark_server.kv import CommitUnknownResult, Conflict, StoreFormatUnknown, TransactionTooOld
from lakemark_server.kv.postgres.errors import (
    MEANINGS,
    NoAnswer,
    PostgresFailure,
    commit_error,
    failure_of,
    read_error,
    translated,
)

ERRORS: dict[type[psycopg.Error], type[LakemarkError]] = {
    psycopg.errors.ConnectionFailure: Unavailable,
    psycopg.errors.ReadOnlySqlTransaction: Unavailable,
    psycopg.errors.IdleInTransactionSessionTimeout: Unavailable,
    psycopg.errors.InvalidSchemaName: StoreFormatUnknown,
    psycopg.errors.SerializationFailure: Conflict,
    psycopg.errors.DeadlockDetected: Conflict,
    psycopg.errors.InsufficientPrivilege: FailedPrecondition,
    psycopg.errors.UndefinedTable: StoreFormatUnknown,
    psycopg.errors.DuplicateTable: StoreFormatUnknown,
    psycopg.errors.DiskFull: Unavailable,
    psycopg.errors.OutOfMemory: Unavailable,
    psycopg.errors.TooManyConnections: Unavailable,
    psycopg.errors.ProgramLimitExceeded: LimitExceeded,
    psycopg.errors.LockNotAvailable: Unavailable,
    psycopg.errors.QueryCanceled: Unavailable,
    psycopg.errors.AdminShutdown: Unavailable,
    psycopg.errors.CrashShutdown: Unavailable,
    psycopg.errors.CannotConnectNow: Unavailable,
    psycopg.errors.IoError: Unavailable,
    psycopg.errors.DataCorrupted: CorruptStore,
    psycopg.errors.IndexCorrupted: CorruptStore,
    psycopg.errors.DivisionByZero: Internal,
}


@pytest.mark.parametrize("driver", ERRORS, ids=lambda driver: driver.__name__)
def test_each_code_has_its_error(driver: type[psycopg.Error]) -> None:
    code = driver.sqlstate
    assert code is not None
    error = translated(PostgresFailure("the server's words", code, 0))
    assert type(error) is ERRORS[driver]
    assert code in str(error)
    assert "the server's words" in str(error)


def test_every_line_of_the_table_is_met() -> None:
    codes = {driver.sqlstate or "" for driver in ERRORS}
    assert {code if code in MEANINGS else code[:2] for code in codes} >= MEANINGS.keys()


def test_text_decides_nothing() -> None:
    misleading = "could not serialize access; deadlock detected; password authentication failed"
    assert type(translated(PostgresFailure(misleading, "53100", 0))) is Unavailable
    assert type(translated(PostgresFailure(misleading))) is Unavailable


@pytest.mark.parametrize(
    ("failure", "unknown"),
    [
        (PostgresFailure("no room", "53100", 1), False),
        (PostgresFailure("terminated", "57P01", 1), False),
        (PostgresFailure("terminated", "57P01", 2), True),
        (PostgresFailure("the connection was lost"), True),
        (NoAnswer("no answer in time"), True),
    ],
)
def test_only_a_commit_that_may_have_run_is_of_unknown_outcome(failure: PostgresFailure, unknown: bool) -> None:
    assert (type(commit_error(failure, commit=2)) is CommitUnknownResult) == unknown


def test_a_read_that_takes_as_long_as_a_transaction_may_live_is_too_old() -> None:
    assert type(read_error(PostgresFailure("canceled", "57014", 0))) is TransactionTooOld
    assert type(read_error(PostgresFailure("terminated", "57P01", 0))) is Unavailable


def test_only_a_lost_connection_is_worth_another_one() -> None:
    assert PostgresFailure("lost").lost
    assert PostgresFailure("terminated", "57P01").lost
    assert not PostgresFailure("canceled", "57014").lost
    assert not NoAnswer("no answer in time").lost


def test_what_libpq_tells_in_several_lines_is_told_in_one() -> None:
    text = "connection is bad: No such file or directory\n\tIs the server running locally?\n"
    error = translated(failure_of(psycopg.OperationalError(text), text))
    assert error.message == (
        "PostgreSQL cannot be reached (connection is bad: No such file or directory Is the server running locally?); "
        "nothing was applied"
    )
