"""Transactions, inside a transaction of the store.

Ids are given in the order in which transactions are opened, by a counter that each opening reads: a reader that knows
the last id and all that are open or aborted knows of every other one that it is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, cast

from lakemark_core.errors import LimitExceeded, TransactionAborted, TransactionNotFound
from lakemark_proto.store.v1.transactions_pb2 import TransactionRecord
from lakemark_server.kv import ReadTransaction, Space, Transaction
from lakemark_server.store.keyspace import (
    LAST_TXN,
    TXN_BEATS,
    TXN_TARGETS,
    TXN_WRITE_IDS,
    TXNS_ABORTED,
    TXNS_COMMITTED,
    TXNS_OPEN,
    WRITE_IDS,
    WRITTEN,
)
from lakemark_server.transactions import counts, due, limits, locks
from lakemark_server.transactions.conflicts import Place

UPDATE: Final = 3
DELETE: Final = 4
_UNWRITTEN_SHARE: Final = 10
TARGETED: Final = frozenset({UPDATE, DELETE})
"""Operations that change rows: of two transactions that did so to the same ones, only the first may commit."""


def last_id(tx: ReadTransaction, *, snapshot: bool = False) -> int:
    """The transaction that was opened last; 0 if there was none."""
    return int.from_bytes(tx.get(LAST_TXN, snapshot=snapshot) or b"", "big")


def set_last_id(tx: Transaction, transaction_id: int) -> None:
    """The next one gets the id after this one."""
    tx.set(LAST_TXN, transaction_id.to_bytes(8, "big"))


def find(tx: ReadTransaction, space: Space, transaction_id: int) -> TransactionRecord | None:
    """The transaction if it is in that state, else None."""
    stored = tx.get(space.key(transaction_id)) if transaction_id > 0 else None
    return None if stored is None else TransactionRecord.FromString(stored)


def find_many(tx: ReadTransaction, space: Space, transaction_ids: Iterable[int]) -> dict[int, TransactionRecord]:
    """Those of the transactions that are in that state, read together."""
    ids = [one for one in transaction_ids if one > 0]
    stored = zip(ids, tx.get_many([space.key(one) for one in ids]), strict=True)
    return {one: TransactionRecord.FromString(value) for one, value in stored if value is not None}


def require_open(tx: ReadTransaction, transaction_id: int) -> TransactionRecord:
    """Raises TransactionAborted, TransactionNotFound."""
    record = find(tx, TXNS_OPEN, transaction_id)
    if record is None:
        raise not_open(tx, transaction_id)
    return record


def not_open(tx: ReadTransaction, transaction_id: int) -> TransactionAborted | TransactionNotFound:
    """The error that says what became of a transaction that is not open."""
    if find(tx, TXNS_ABORTED, transaction_id) is not None:
        return TransactionAborted(f"Transaction txnid:{transaction_id} is already aborted")
    if find(tx, TXNS_COMMITTED, transaction_id) is not None:
        return TransactionNotFound(f"Transaction txnid:{transaction_id} is already committed.")
    return TransactionNotFound(f"No such transaction txnid:{transaction_id}")


def all_in(
    tx: ReadTransaction, space: Space, *, limit: int = 0, snapshot: bool = False
) -> Iterator[tuple[int, TransactionRecord]]:
    """The transactions in that state, in order of id."""
    for key, value in tx.get_range(*space.range(), limit=limit, snapshot=snapshot):
        yield cast(int, space.unpack(key)[0]), TransactionRecord.FromString(value)


def last_beat_ms(tx: ReadTransaction, transaction_id: int) -> int:
    """When the client of an open transaction was heard last; 0 if it is not open."""
    return int.from_bytes(tx.get(TXN_BEATS.key(transaction_id)) or b"", "big")


def beat(tx: Transaction, transaction_id: int, now_ms: int) -> None:
    """Notes that its client lives."""
    tx.set(TXN_BEATS.key(transaction_id), now_ms.to_bytes(8, "big"))


def abort(tx: Transaction, transaction_id: int, record: TransactionRecord, now_ms: int, kept_ms: int) -> None:
    """Ends an open transaction and frees its locks. What it has written stays invalid for all readers.

    One that has no write id is forgotten soon: nothing of it is to be seen.
    """
    if not tx.get_range(*TXN_WRITE_IDS.range(transaction_id), limit=1):
        kept_ms //= _UNWRITTEN_SHARE
    _end(tx, transaction_id, record, now_ms)
    tx.set(TXNS_ABORTED.key(transaction_id), record.SerializeToString())
    counts.add(tx, counts.ABORTED, 1)
    due.put(tx, now_ms + kept_ms, due.ABORTED, transaction_id)


def commit(tx: Transaction, transaction_id: int, record: TransactionRecord, now_ms: int, kept_ms: int) -> None:
    """Ends an open transaction, frees its locks, and lets others know what it has changed."""
    targets = targets_of(tx, transaction_id)
    if targets:
        record.ended_at = last_id(tx)
        for place in targets:
            tx.set(_written_key(place, record.ended_at, transaction_id), b"")
    _end(tx, transaction_id, record, now_ms)
    tx.set(TXNS_COMMITTED.key(transaction_id), record.SerializeToString())
    due.put(tx, now_ms + kept_ms, due.COMMITTED, transaction_id)


def _end(tx: Transaction, transaction_id: int, record: TransactionRecord, now_ms: int) -> None:
    record.ended_ms = now_ms
    locks.remove_of_transaction(tx, transaction_id)
    tx.clear(TXNS_OPEN.key(transaction_id))
    tx.clear(TXN_BEATS.key(transaction_id))
    counts.add(tx, counts.OPEN, -1)


# -- what transactions change -----------------------------------------------------------------------------------------


def add_target(tx: Transaction, transaction_id: int, place: Place) -> None:
    """Notes that the transaction updates or deletes rows there."""
    tx.set(TXN_TARGETS.key(transaction_id, *place), b"")


def check_targets(tx: ReadTransaction, transaction_id: int, more: Iterable[Place]) -> None:
    """Raises LimitExceeded if the transaction would update or delete rows in too many places."""
    size_bytes = sum(place.size_bytes for place in {*targets_of(tx, transaction_id), *more})
    if size_bytes > limits.TARGET_BYTES_MAX:
        raise LimitExceeded(
            f"the names of all partitions that transaction {transaction_id} changes take {size_bytes:,} bytes; at most "
            f"{limits.TARGET_BYTES_MAX:,}: divide its work"
        )


def targets_of(tx: ReadTransaction, transaction_id: int) -> list[Place]:
    """Where the transaction updates or deletes rows."""
    keys = [TXN_TARGETS.unpack(key) for key, _ in tx.get_range(*TXN_TARGETS.range(transaction_id))]
    return [Place(*map(str, items[1:])) for items in keys]


def overtaken_by(tx: ReadTransaction, transaction_id: int) -> tuple[Place, int] | None:
    """The first commit since this transaction was opened that has changed rows where it changes some.

    Returns where, and the other transaction. First committer wins, as in Hive.
    """
    for place in targets_of(tx, transaction_id):
        begin = WRITTEN.key(*place[:3], transaction_id)
        for key, _ in tx.get_range(begin, WRITTEN.range(*place[:3])[1]):
            *_, other, partition = WRITTEN.unpack(key)
            if other != transaction_id and place.overlaps(place._replace(partition=str(partition))):
                return place, cast(int, other)
    return None


def _written_key(place: Place, ended_at: int, transaction_id: int) -> bytes:
    return WRITTEN.key(*place[:3], ended_at, transaction_id, place.partition)


# -- forgetting -------------------------------------------------------------------------------------------------------


def first_that_matters(tx: ReadTransaction) -> int:
    """Every reader that is still in a transaction, or will be, saw all earlier transactions as ended when it began.

    It only grows, so that a snapshot read is enough.
    """
    oldest = next(all_in(tx, TXNS_OPEN, limit=1, snapshot=True), None)
    return last_id(tx, snapshot=True) + 1 if oldest is None else oldest[1].first_open


def forget_committed(tx: Transaction, transaction_id: int) -> bool:
    """Removes what is known of a committed transaction, unless somebody may still have to know it."""
    record = find(tx, TXNS_COMMITTED, transaction_id)
    if record is None:
        return True
    if first_that_matters(tx) <= max(transaction_id, record.ended_at):
        return False
    for key, value in tx.get_range(*TXN_WRITE_IDS.range(transaction_id)):
        number = cast(int, TXN_WRITE_IDS.unpack(key)[-1])
        tx.clear(WRITE_IDS.key(number, int.from_bytes(value, "big")))
    for place in targets_of(tx, transaction_id):
        tx.clear(_written_key(place, record.ended_at, transaction_id))
    _forget(tx, TXNS_COMMITTED, transaction_id)
    return True


def forget_aborted(tx: Transaction, transaction_id: int) -> bool:
    """Removes what is known of an aborted transaction, unless there are tables to which it has written."""
    if find(tx, TXNS_ABORTED, transaction_id) is None:
        return True
    for key, value in tx.get_range(*TXN_WRITE_IDS.range(transaction_id)):
        number = cast(int, TXN_WRITE_IDS.unpack(key)[-1])
        if tx.get(WRITE_IDS.key(number, int.from_bytes(value, "big"))) is not None:
            return False
    _forget(tx, TXNS_ABORTED, transaction_id)
    counts.add(tx, counts.ABORTED, -1)
    return True


def _forget(tx: Transaction, space: Space, transaction_id: int) -> None:
    tx.clear(space.key(transaction_id))
    tx.clear_range(*TXN_WRITE_IDS.range(transaction_id))
    tx.clear_range(*TXN_TARGETS.range(transaction_id))
