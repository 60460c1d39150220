"""Runs a transaction's body until it commits, as FoundationDB's ``transactional`` does."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from lakemark_core.errors import InvalidArgument
from lakemark_server.context import deadline
from lakemark_server.metrics.process import STORE, STORE_REPEATS, STORE_TRANSACTIONS

from .api import Conflict, OpenTransaction, Transaction, TransactionTooOld, TryAgain

PAUSE_SECONDS_FIRST: Final = 0.000_5
PAUSE_SECONDS_MAX: Final = 0.1

T = TypeVar("T")


def pause_seconds(attempt: int) -> float:
    """Full jitter: a random pause up to a bound that doubles with each attempt (from 0), up to PAUSE_SECONDS_MAX."""
    bound = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_FIRST * 2 ** min(attempt, 16))
    return random.uniform(0, bound)  # noqa: S311 - spreads the retries; nothing secret depends on it


def run_transaction(
    begin: Callable[[], OpenTransaction],
    body: Callable[[Transaction], T],
    attempts_max: int,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """See ``Store.transact``; ``sleep`` takes seconds. No attempt begins when the current deadline is over."""
    if attempts_max < 1:
        raise InvalidArgument(f"attempts_max must be at least 1, and is {attempts_max}")
    for attempt in range(attempts_max):
        deadline.check()
        transaction = begin()
        STORE_TRANSACTIONS.add(1)
        try:
            result = body(transaction)
            since = time.perf_counter()
            transaction.commit()
            STORE.observe(time.perf_counter() - since, "commit")
        except (Conflict, TransactionTooOld, TryAgain):
            if attempt + 1 == attempts_max:
                raise
        else:
            return result
        finally:
            STORE_TRANSACTIONS.add(-1)
            transaction.cancel()
        STORE_REPEATS.add()
        sleep(min(pause_seconds(attempt), deadline.current().remaining_s()))
    raise AssertionError("unreachable: the last attempt returns or raises")
