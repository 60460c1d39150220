"""When a lock or a transaction is looked at next: a queue by time, so that nobody searches all of them.

A heartbeat does not move its entry. Whoever looks puts a new one if the time is not over.
"""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import TXN_DUE

LOCK: Final = 0
OPEN: Final = 1
ABORTED: Final = 2
COMMITTED: Final = 3


class Look(NamedTuple):
    """``kind``: LOCK, or the state of the transaction ``id``."""

    ms: int
    kind: int
    id: int


def put(tx: Transaction, ms: int, kind: int, identifier: int) -> None:
    """It is looked at from that time on."""
    tx.set(TXN_DUE.key(ms, kind, identifier), b"")


def clear(tx: Transaction, one: Look) -> None:
    """It was looked at."""
    tx.clear(TXN_DUE.key(*one))


def until(tx: ReadTransaction, ms: int, limit: int) -> list[Look]:
    """The first ones whose time has come."""
    begin, _ = TXN_DUE.range()
    pairs = tx.get_range(begin, TXN_DUE.key(ms + 1), limit=limit, snapshot=True)
    return [Look(*cast(tuple[int, int, int], TXN_DUE.unpack(key))) for key, _ in pairs]
