"""Locks, transactions and write ids: what is kept twice agrees, and all that can end will be looked at."""

from __future__ import annotations

from collections import Counter
from typing import Final, cast

from lakemark_proto.store.v1.transactions_pb2 import LockComponentRecord, LockRecord, WriteIdsRecord
from lakemark_server.kv import Space, Store, keys_below
from lakemark_server.store.keyspace import (
    LOCK_BEATS,
    LOCK_PARTS,
    LOCK_QUEUES,
    LOCKS,
    TXN_BEATS,
    TXN_DUE,
    TXN_LOCKS,
    TXN_WRITE_IDS,
    TXNS_ABORTED,
    TXNS_COMMITTED,
    TXNS_OPEN,
    WRITE_ID_TABLES,
    WRITE_IDS,
)
from lakemark_server.transactions import counts, due, txns
from lakemark_server.verify.lake import Problems

_SHOWN_MAX: Final = 10
_STATES: Final = ((due.OPEN, TXNS_OPEN), (due.ABORTED, TXNS_ABORTED), (due.COMMITTED, TXNS_COMMITTED))


def check(store: Store) -> Problems:
    """A sentence for each violation."""
    locks = {cast(int, at[0]): LockRecord.FromString(value) for at, value in keys_below(store, LOCKS)}
    ids = {kind: _ids(store, space) for kind, space in _STATES}
    problems = _check_locks(store, locks, ids[due.OPEN])
    problems += _check_due(store, {i for i, lock in locks.items() if not lock.transaction_id}, ids)
    problems += _check_transactions(store, ids)
    tables = _check_write_ids(store, problems)
    components = sum(lock.components for lock in locks.values())
    counted = {
        counts.LOCKS: len(locks),
        counts.COMPONENTS: components,
        counts.OPEN: len(ids[due.OPEN]),
        counts.ABORTED: len(ids[due.ABORTED]),
        counts.TABLES: tables,
    }
    for what, number in counted.items():
        stored = store.read(lambda tx, what=what: counts.read(tx, what))  # type: ignore[misc]
        if stored != number:
            problems.append(f"the counter of {what} of locks and transactions is {stored}, and there are {number}")
    return problems


def _ids(store: Store, space: Space) -> set[int]:
    return {cast(int, at[0]) for at, _ in keys_below(store, space)}


def _check_locks(store: Store, locks: dict[int, LockRecord], open_ids: set[int]) -> Problems:
    parts: dict[tuple[object, ...], tuple[object, ...]] = {}
    for (lock_id, number), value in keys_below(store, LOCK_PARTS):
        part = LockComponentRecord.FromString(value)
        position = locks[lock_id].position if lock_id in locks else None
        parts[lock_id, number] = (part.catalog, part.database, part.table, part.partition, position)
    queued: dict[tuple[object, ...], tuple[object, ...]] = {at[5:]: at[:5] for at, _ in keys_below(store, LOCK_QUEUES)}
    wrong = [key for key in parts.keys() | queued.keys() if parts.get(key) != queued.get(key)]
    problems = [f"lock {key[0]} is on {parts.get(key)}, and is queued at {queued.get(key)}" for key in wrong]
    sizes = Counter(key[0] for key in parts)
    beats = _ids(store, LOCK_BEATS)
    of_transactions = {(at[0], at[1]) for at, _ in keys_below(store, TXN_LOCKS)}
    for lock_id, lock in locks.items():
        if sizes[lock_id] != lock.components:
            problems.append(f"lock {lock_id} says that it is on {lock.components} things, and is on {sizes[lock_id]}")
        if lock.transaction_id and lock.transaction_id not in open_ids:
            problems.append(f"lock {lock_id} belongs to transaction {lock.transaction_id}, which is not open")
        if not lock.transaction_id and lock_id not in beats:
            problems.append(f"nobody can say when the holder of lock {lock_id} was heard")
    expected = {(lock.transaction_id, lock_id) for lock_id, lock in locks.items() if lock.transaction_id}
    problems += [f"lock {lock} of transaction {txn} is not found from it" for txn, lock in expected - of_transactions]
    problems += [f"transaction {txn} has no lock {lock}" for txn, lock in of_transactions - expected]
    return sorted(problems)[:_SHOWN_MAX]


def _check_due(store: Store, locks: set[int], ids: dict[int, set[int]]) -> Problems:
    looked_at = {(kind, identifier) for (_, kind, identifier), _ in keys_below(store, TXN_DUE)}
    there = {(due.LOCK, lock_id) for lock_id in locks} | {(kind, one) for kind, of in ids.items() for one in of}
    words = {due.LOCK: "lock", due.OPEN: "open", due.ABORTED: "aborted", due.COMMITTED: "committed"}
    return [
        f"nobody will look whether the time of {words[kind]} {one} is over"
        for kind, one in sorted(there - looked_at)[:_SHOWN_MAX]
    ]


def _check_transactions(store: Store, ids: dict[int, set[int]]) -> Problems:
    last = store.read(txns.last_id)
    problems: Problems = []
    seen: set[int] = set()
    for of in ids.values():
        problems += [f"transaction {one} has ended and has not" for one in sorted(of & seen)]
        seen |= of
    problems += [f"transaction {one} was never opened: the last one is {last}" for one in sorted(seen) if one > last]
    silent = ids[due.OPEN] ^ _ids(store, TXN_BEATS)
    problems += [f"transaction {one} is open, or was heard, but not both" for one in sorted(silent)]
    return problems[:_SHOWN_MAX]


def _check_write_ids(store: Store, problems: Problems) -> int:
    """Returns the number of tables with write ids."""
    tables: dict[int, WriteIdsRecord] = {}
    names: dict[int, str] = {}
    for at, value in keys_below(store, WRITE_ID_TABLES):
        record = WriteIdsRecord.FromString(value)
        if record.number in tables:
            problems.append(f"{'.'.join(map(str, at))} has the write ids of {names[record.number]}")
        tables[record.number], names[record.number] = record, ".".join(map(str, at))
    allocated = {(cast(int, at[0]), cast(int, at[1])): value for at, value in keys_below(store, TXN_WRITE_IDS)}
    for (stored, write_id), value in keys_below(store, WRITE_IDS):
        number, transaction_id = cast(int, stored), int.from_bytes(value, "big")
        name = names.get(number, f"write ids {number}")
        if number not in tables:
            problems.append(f"{name}: there is no table that has them")
        elif cast(int, write_id) > tables[number].last:
            problems.append(f"{name}: write id {write_id} is above the last one, {tables[number].last}")
        if int.from_bytes(allocated.get((transaction_id, number), b""), "big") != write_id:
            problems.append(f"{name}: transaction {transaction_id} does not know of its write id {write_id}")
    return len(tables)
