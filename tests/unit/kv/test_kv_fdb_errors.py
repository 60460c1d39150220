"""Every error code of FoundationDB that a client may meet has a meaning."""

from __future__ import annotations

import pytest

from lakemark_core.errors import FailedPrecondition, Internal, StoreConflict, Unavailable, UnknownOutcome
from lakemark_server.kv import Conflict, KeyTooLarge, TransactionTooLarge, TransactionTooOld, TryAgain, ValueTooLarge
from lakemark_server.kv.fdb.errors import MEANINGS, commit_error, translated

CODES = {
    1007: TransactionTooOld,
    1009: TryAgain,
    1020: Conflict,
    1031: Unavailable,
    1037: TryAgain,
    1038: Unavailable,
    1042: TryAgain,
    1078: TryAgain,
    1213: TryAgain,
    1515: FailedPrecondition,
    2101: TransactionTooLarge,
    2102: KeyTooLarge,
    2103: ValueTooLarge,
    4100: Internal,
}
# Of these FoundationDB's client says that they can be tried again and that nothing was committed: that of 7.1, which
# tests/fault/test_kv_fdb.py asks, and later ones.
RETRYABLE = {1007, 1009, 1020, 1037, 1042, 1051, 1213} | {1078, 1223, 1235, 1242}


@pytest.mark.parametrize("code", CODES)
def test_meanings(code: int) -> None:
    error = translated(code, "words")
    assert type(error) is CODES[code]
    assert f"({code}: words); nothing was applied" in str(error)


def test_what_is_run_again_is_what_the_client_would_run_again() -> None:
    assert {code for code in MEANINGS if isinstance(translated(code, ""), StoreConflict)} == {*RETRYABLE, 1032}


@pytest.mark.parametrize("code", [1007, 1020, 1037, 1038, 1078, 2101])
def test_a_commit_that_was_refused_was_not_applied(code: int) -> None:
    assert type(commit_error(code, "")) is type(translated(code, ""))


@pytest.mark.parametrize("code", [1021, 1025, 1031, 1039, 1100, 4100])
def test_a_commit_without_a_clear_answer_has_an_unknown_outcome(code: int) -> None:
    assert isinstance(commit_error(code, ""), UnknownOutcome)
