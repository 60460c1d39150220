"""Notes of the holders of locks and of the clients of transactions: they live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lakemark_proto.store.v1.transactions_pb2 import LockRecord
from lakemark_server.kv import Transaction
from lakemark_server.store.keyspace import TXNS_ABORTED, TXNS_OPEN
from lakemark_server.transactions import locks, txns

_SILENT_SHARE: Final = 10
"""Who polls is heard if a tenth of the time-out has passed since it was heard last: polling writes little."""


def hear_holder(tx: Transaction, lock_id: int, record: LockRecord, now_ms: int, timeout_ms: int) -> None:
    """A client polls for its lock. Raises TransactionAborted, TransactionNotFound."""
    if record.transaction_id:
        txns.require_open(tx, record.transaction_id)
        if _is_worth_a_note(txns.last_beat_ms(tx, record.transaction_id), now_ms, timeout_ms):
            txns.beat(tx, record.transaction_id, now_ms)
    elif _is_worth_a_note(locks.last_beat_ms(tx, lock_id), now_ms, timeout_ms):
        locks.beat(tx, lock_id, now_ms)


def hear_transaction(tx: Transaction, transaction_id: int, now_ms: int) -> None:
    """Raises TransactionAborted, TransactionNotFound."""
    txns.require_open(tx, transaction_id)
    txns.beat(tx, transaction_id, now_ms)


def hear_transactions(tx: Transaction, transaction_ids: Iterable[int], now_ms: int) -> tuple[set[int], set[int]]:
    """Hears those that are open. Returns those that are aborted, and those that are neither."""
    ids = set(transaction_ids)
    is_open = txns.find_many(tx, TXNS_OPEN, ids).keys()
    for one in is_open:
        txns.beat(tx, one, now_ms)
    aborted = set(txns.find_many(tx, TXNS_ABORTED, ids - is_open))
    return aborted, ids - is_open - aborted


def _is_worth_a_note(last_ms: int, now_ms: int, timeout_ms: int) -> bool:
    return now_ms - last_ms >= timeout_ms // _SILENT_SHARE
