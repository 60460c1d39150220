"""Locks, inside a transaction of the store.

A lock is queued at each place that it is on. Its position is greater than that of every lock that overlaps with it and
was there before: those that ask for one thing at the same moment conflict in the store, and one of them asks again. So
what a lock waits for is known when it is asked for, and can only become less.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from lakemark_core.errors import LockNotFound
from lakemark_proto.store.v1.transactions_pb2 import LockComponentRecord, LockRecord
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import LOCK_BEATS, LOCK_PARTS, LOCK_QUEUES, LOCKS, TXN_LOCKS
from lakemark_server.transactions import counts
from lakemark_server.transactions.conflicts import Component, LockType, Place, Queued

_QUEUED: Final = struct.Struct(">BQ")  # type, transaction id


def find(tx: ReadTransaction, lock_id: int) -> LockRecord | None:
    """The lock, or None."""
    stored = tx.get(LOCKS.key(lock_id)) if lock_id > 0 else None
    return None if stored is None else LockRecord.FromString(stored)


def get(tx: ReadTransaction, lock_id: int) -> LockRecord:
    """Raises LockNotFound."""
    record = find(tx, lock_id)
    if record is None:
        raise LockNotFound(
            f"No such lock lockid:{lock_id}: it was freed, or nobody sent a heartbeat for too long; ask for a new one"
        )
    return record


def put(tx: Transaction, lock_id: int, record: LockRecord) -> None:
    """Writes the record."""
    tx.set(LOCKS.key(lock_id), record.SerializeToString())


def components_of(tx: ReadTransaction, lock_id: int) -> list[Component]:
    """What the lock is on, in the order of the request."""
    parts = [LockComponentRecord.FromString(value) for _, value in tx.get_range(*LOCK_PARTS.range(lock_id))]
    return [_component(part) for part in parts]


def enqueue(tx: Transaction, lock_id: int, record: LockRecord, components: Sequence[Component]) -> None:
    """Writes a new lock."""
    put(tx, lock_id, record)
    for number, component in enumerate(components):
        _put_part(tx, lock_id, number, component, record)
    if record.transaction_id:
        size_bytes = sum(place.size_bytes for place, _ in components)
        tx.set(TXN_LOCKS.key(record.transaction_id, lock_id), size_bytes.to_bytes(8, "big"))
    counts.add(tx, counts.LOCKS, 1)
    counts.add(tx, counts.COMPONENTS, len(components))


def remove(tx: Transaction, lock_id: int, record: LockRecord) -> None:
    """Frees a lock, or takes one that waits out of the queue."""
    for number, (place, _) in enumerate(components_of(tx, lock_id)):
        tx.clear(LOCK_QUEUES.key(*place, record.position, lock_id, number))
    tx.clear_range(*LOCK_PARTS.range(lock_id))
    tx.clear(LOCKS.key(lock_id))
    tx.clear(LOCK_BEATS.key(lock_id))
    if record.transaction_id:
        tx.clear(TXN_LOCKS.key(record.transaction_id, lock_id))
    counts.add(tx, counts.LOCKS, -1)
    counts.add(tx, counts.COMPONENTS, -record.components)


def bytes_of_transaction(tx: ReadTransaction, transaction_id: int) -> int:
    """About the size of all that the transaction has locked."""
    return sum(int.from_bytes(value, "big") for _, value in tx.get_range(*TXN_LOCKS.range(transaction_id)))


def remove_of_transaction(tx: Transaction, transaction_id: int) -> None:
    """Frees all locks of a transaction."""
    for key, _ in tx.get_range(*TXN_LOCKS.range(transaction_id)):
        lock_id = cast(int, TXN_LOCKS.unpack(key)[-1])
        record = find(tx, lock_id)
        if record is not None:
            remove(tx, lock_id, record)


def last_beat_ms(tx: ReadTransaction, lock_id: int) -> int:
    """When the holder of a lock without a transaction was heard last; 0 if there is no such lock."""
    return int.from_bytes(tx.get(LOCK_BEATS.key(lock_id)) or b"", "big")


def beat(tx: Transaction, lock_id: int, now_ms: int) -> None:
    """Notes that the holder lives."""
    tx.set(LOCK_BEATS.key(lock_id), now_ms.to_bytes(8, "big"))


def overlapping(tx: ReadTransaction, places: Iterable[Place], *, snapshot: bool = False) -> Iterator[Queued]:
    """All queued components that overlap with one of the places, and perhaps others of the same tables.

    Reads what lies at each database itself and everything of each table; for a place that is a database all of it.
    """
    tables: dict[tuple[str, str], set[str]] = {}
    for place in places:
        tables.setdefault((place.catalog, place.database), set()).add(place.table)
    for database, names in sorted(tables.items()):
        ranges = [LOCK_QUEUES.range(*database)]
        if "" not in names:
            ranges = [LOCK_QUEUES.range(*database, name) for name in ("", *sorted(names))]
        for begin, end in ranges:
            for key, value in tx.get_range(begin, end, snapshot=snapshot):
                yield queued_of(key, value)


def queued_of(key: bytes, value: bytes) -> Queued:
    """What an entry of a queue says."""
    catalog, database, table, partition, position, lock_id, number = LOCK_QUEUES.unpack(key)
    lock_type, transaction_id = _QUEUED.unpack(value)
    place = Place(str(catalog), str(database), str(table), str(partition))
    component = Component(place, LockType(lock_type))
    return Queued(component, cast(int, position), cast(int, lock_id), cast(int, number), transaction_id)


def rename_table(tx: Transaction, old: Place, new: Place) -> None:
    """Locks on a table and its partitions stay with it when it is renamed, as in Hive."""
    for key, value in tx.get_range(*LOCK_QUEUES.range(*old[:3])):
        queued = queued_of(key, value)
        record = find(tx, queued.lock_id)
        tx.clear(key)
        if record is not None:
            place = new._replace(partition=queued.component.place.partition)
            _put_part(tx, queued.lock_id, queued.number, queued.component._replace(place=place), record)


def _put_part(tx: Transaction, lock_id: int, number: int, component: Component, record: LockRecord) -> None:
    place = component.place
    part = LockComponentRecord(
        catalog=place.catalog,
        database=place.database,
        table=place.table,
        partition=place.partition,
        type=component.type,
    )
    tx.set(LOCK_PARTS.key(lock_id, number), part.SerializeToString())
    key = LOCK_QUEUES.key(*place, record.position, lock_id, number)
    tx.set(key, _QUEUED.pack(component.type, record.transaction_id))


def _component(part: LockComponentRecord) -> Component:
    place = Place(part.catalog, part.database, part.table, part.partition)
    return Component(place, LockType(part.type))
