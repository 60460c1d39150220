"""Ends what its holder has left: locks and transactions without heartbeats, and forgets what nobody asks for any more.

Whoever is in the way of another is looked at then, too, so that nobody waits for a round of the sweeper.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lakemark_server.kv import Transaction
from lakemark_server.store.keyspace import TXNS_OPEN
from lakemark_server.store.mutations import Mutations
from lakemark_server.transactions import due, locks, txns
from lakemark_server.transactions.due import Look
from lakemark_server.transactions.limits import TransactionLimits

_LOOKED_AT_ONCE: Final = 100
_ROUND_MAX: Final = 20_000
_TRANSACTION_BYTES_AIM: Final = 500_000


class Swept(NamedTuple):
    """What one round has ended."""

    locks: int
    transactions: int


def end_silent_lock(tx: Transaction, lock_id: int, now_ms: int, limits: TransactionLimits) -> bool:
    """Frees the lock, which belongs to no transaction, if its holder is silent for too long.

    Returns whether it is gone.
    """
    record = locks.find(tx, lock_id)
    if record is None:
        return True
    if locks.last_beat_ms(tx, lock_id) + limits.timeout_ms > now_ms:
        return False
    locks.remove(tx, lock_id, record)
    return True


def end_silent_transaction(tx: Transaction, transaction_id: int, now_ms: int, limits: TransactionLimits) -> bool:
    """Aborts the transaction if its client is silent for too long. Returns whether it is not open any more."""
    record = txns.find(tx, TXNS_OPEN, transaction_id)
    if record is None:
        return True
    if txns.last_beat_ms(tx, transaction_id) + limits.timeout_ms > now_ms:
        return False
    txns.abort(tx, transaction_id, record, now_ms, limits.kept_ms)
    return True


def sweep(mutations: Mutations, limits: TransactionLimits) -> Swept:
    """One round: everything whose time has come, up to a number. Costs one small read if that is nothing."""
    ended = Swept(0, 0)
    for _ in range(_ROUND_MAX // _LOOKED_AT_ONCE):
        if not mutations.store.read(lambda tx: due.until(tx, mutations.clock(), 1)):
            break
        some = mutations.run(lambda mutation: _look(mutation.tx, mutation.now_ms, limits))
        ended = Swept(ended.locks + some.locks, ended.transactions + some.transactions)
    return ended


def _look(tx: Transaction, now_ms: int, limits: TransactionLimits) -> Swept:
    freed = aborted = 0
    for one in due.until(tx, now_ms, _LOOKED_AT_ONCE):
        if tx.size_bytes > _TRANSACTION_BYTES_AIM:
            break
        due.clear(tx, one)
        again_ms = 0
        if one.kind == due.LOCK:
            there = locks.find(tx, one.id) is not None
            if not end_silent_lock(tx, one.id, now_ms, limits):
                again_ms = locks.last_beat_ms(tx, one.id) + limits.timeout_ms
            freed += there and not again_ms
        elif one.kind == due.OPEN:
            there = txns.find(tx, TXNS_OPEN, one.id) is not None
            if not end_silent_transaction(tx, one.id, now_ms, limits):
                again_ms = txns.last_beat_ms(tx, one.id) + limits.timeout_ms
            aborted += there and not again_ms
        elif not _forgotten(tx, one):
            again_ms = now_ms + limits.kept_ms
        if again_ms:
            due.put(tx, again_ms, one.kind, one.id)
    return Swept(freed, aborted)


def _forgotten(tx: Transaction, one: Look) -> bool:
    if one.kind == due.COMMITTED:
        return txns.forget_committed(tx, one.id)
    return txns.forget_aborted(tx, one.id)
