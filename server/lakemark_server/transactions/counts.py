"""How many locks and transactions a store has, by counters that conflict with nothing.

A limit is checked with a snapshot read, so it may be exceeded by what is asked for at the same moment.
"""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import LimitExceeded
from lakemark_server.kv import ReadTransaction, Transaction, counter
from lakemark_server.store.keyspace import TXN_COUNTS

LOCKS: Final = "locks"
COMPONENTS: Final = "components"
OPEN: Final = "open"
ABORTED: Final = "aborted"
TABLES: Final = "tables"

_WORDS: Final = {
    LOCKS: ("locks", "locks are freed by unlock, or when their holders are silent for too long"),
    COMPONENTS: ("things locked", "locks are freed by unlock, or when their holders are silent for too long"),
    OPEN: ("open transactions", "commit some or abort them"),
    ABORTED: ("aborted transactions that have written", "drop the tables that they have written to"),
    TABLES: ("tables with write ids", "drop some"),
}


def add(tx: Transaction, what: str, amount: int) -> None:
    """Changes a counter."""
    if amount:
        tx.add(TXN_COUNTS.key(what), amount)


def read(tx: ReadTransaction, what: str) -> int:
    """The value of a counter, by a snapshot read."""
    return counter(tx.get(TXN_COUNTS.key(what), snapshot=True))


def check(tx: ReadTransaction, what: str, amount: int, allowed: int) -> None:
    """Raises LimitExceeded if ``amount`` more are too many."""
    used = read(tx, what)
    if used + amount > allowed:
        words, advice = _WORDS[what]
        raise LimitExceeded(
            f"there are {used:,} {words}, {amount:,} more were asked for, and there may be {allowed:,}: {advice}"
        )
