"""Asking for locks, and freeing them. Every change is one mutation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final, cast

from lakemark_core.errors import TransactionOpen
from lakemark_proto.store.v1.transactions_pb2 import LockRecord
from lakemark_server.kv import ReadTransaction, Transaction, keys_below, pairs_between
from lakemark_server.store.ids import IdSource
from lakemark_server.store.keyspace import LOCK_QUEUES, LOCKS
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.transactions import counts, due, expiry, heartbeats, locks, txns
from lakemark_server.transactions.conflicts import (
    Asked,
    Block,
    Component,
    LockType,
    Place,
    Queued,
    Queues,
    next_position,
)
from lakemark_server.transactions.limits import TransactionLimits
from lakemark_server.transactions.locks import queued_of
from lakemark_server.transactions.requests import (
    LockAnswer,
    LockRequest,
    LockState,
    ShownLock,
    check_components,
    check_size,
)

_FREED_AT_ONCE_MAX: Final = 100
"""Locks of silent holders that one request frees."""
_FREED_BYTES_MAX: Final = 500_000
_SHOWN_AT_ONCE: Final = 100


class LockManager:
    """Thread-safe, and correct with any number of processes on the store."""

    def __init__(self, mutations: Mutations, limits: TransactionLimits) -> None:
        self._mutations = mutations
        self._store = mutations.store
        self._limits = limits
        self._ids = IdSource(mutations.store, "lock")

    def lock(self, request: LockRequest) -> LockAnswer:
        """Asks for a lock, which waits if it cannot be had: ask ``check`` then.

        Raises InvalidArgument, LimitExceeded, TransactionAborted, TransactionNotFound.
        """
        components = list(dict.fromkeys(request.components))
        check_components(components)
        lock_id, client = self._ids.next(), request.client.cut()

        def body(mutation: Mutation) -> LockAnswer:
            tx, now_ms = mutation.tx, mutation.now_ms
            if request.transaction_id:
                heartbeats.hear_transaction(tx, request.transaction_id, now_ms)
                check_size(
                    "locks of the transaction", locks.bytes_of_transaction(tx, request.transaction_id), components
                )
                if request.targets:
                    txns.check_targets(tx, request.transaction_id, request.targets)
            counts.check(tx, counts.LOCKS, 1, self._limits.locks)
            counts.check(tx, counts.COMPONENTS, len(components), self._limits.components)
            queued = list(locks.overlapping(tx, (component.place for component in components)))
            position = next_position(queued)
            asked = Asked(components, request.transaction_id)
            block = self._first_living(tx, asked.blocks(position, lock_id, queued), now_ms)
            if block is not None and not _waits(request, components[block.number]):
                return LockAnswer(lock_id, LockState.NOT_ACQUIRED, block)
            record = LockRecord(
                position=position,
                transaction_id=request.transaction_id,
                user=client.user,
                host=client.host,
                agent=client.agent,
                asked_ms=now_ms,
                acquired_ms=0 if block else now_ms,
                components=len(components),
            )
            locks.enqueue(tx, lock_id, record, components)
            for place in request.targets:
                txns.add_target(tx, request.transaction_id, place)
            if not request.transaction_id:
                locks.beat(tx, lock_id, now_ms)
                due.put(tx, now_ms + self._limits.timeout_ms, due.LOCK, lock_id)
            return LockAnswer(lock_id, LockState.WAITING if block else LockState.ACQUIRED, block)

        return self._mutations.run(body)

    def check(self, lock_id: int) -> LockAnswer:
        """Acquires the lock if nothing is in its way any more. It counts as a heartbeat.

        Raises LockNotFound, TransactionAborted, TransactionNotFound.
        """

        def body(mutation: Mutation) -> LockAnswer:
            tx, now_ms = mutation.tx, mutation.now_ms
            record = locks.get(tx, lock_id)
            heartbeats.hear_holder(tx, lock_id, record, now_ms, self._limits.timeout_ms)
            if record.acquired_ms:
                return LockAnswer(lock_id, LockState.ACQUIRED)
            components = locks.components_of(tx, lock_id)
            # What is in its way was there before it, and can only go: no conflict is possible here.
            queued = locks.overlapping(tx, (component.place for component in components), snapshot=True)
            asked = Asked(components, record.transaction_id)
            block = self._first_living(tx, asked.blocks(record.position, lock_id, queued), now_ms)
            if block is not None:
                return LockAnswer(lock_id, LockState.WAITING, block)
            record.acquired_ms = now_ms
            locks.put(tx, lock_id, record)
            return LockAnswer(lock_id, LockState.ACQUIRED)

        return self._mutations.run(body)

    def unlock(self, lock_id: int) -> None:
        """Frees a lock, or gives up waiting. Nothing happens if there is no such lock, as in Hive.

        Raises TransactionOpen if it is acquired and belongs to a transaction.
        """

        def body(mutation: Mutation) -> None:
            record = locks.find(mutation.tx, lock_id)
            if record is None:
                return
            if record.transaction_id and record.acquired_ms:
                raise TransactionOpen(
                    f"lock {lock_id} belongs to transaction {record.transaction_id}: it is freed when that is "
                    "committed or aborted"
                )
            locks.remove(mutation.tx, lock_id, record)

        self._mutations.run(body)

    def heartbeat(self, lock_id: int, transaction_id: int) -> None:
        """The holder of the lock and the client of the transaction live; 0: none.

        Raises LockNotFound, TransactionAborted, TransactionNotFound.
        """

        def body(mutation: Mutation) -> None:
            tx, now_ms = mutation.tx, mutation.now_ms
            if lock_id:
                record = locks.get(tx, lock_id)
                if record.transaction_id:
                    heartbeats.hear_transaction(tx, record.transaction_id, now_ms)
                else:
                    locks.beat(tx, lock_id, now_ms)
            if transaction_id:
                heartbeats.hear_transaction(tx, transaction_id, now_ms)

        self._mutations.run(body)

    def shown(self, place: Place | None = None, transaction_id: int = 0) -> Iterator[ShownLock]:
        """Locks at the place and inside it (None: all), or those of one transaction, in order of id.

        Pages are of different moments.
        """
        ids = iter(self._ids_at(place))
        while page := list(islice(ids, _SHOWN_AT_ONCE)):
            yield from self._store.read(partial(_shown, lock_ids=page, place=place, transaction_id=transaction_id))

    def _ids_at(self, place: Place | None) -> Iterable[int]:
        """The ids of all locks, or of those of the table or the database, in order."""
        if place is None:
            return (cast(int, at[0]) for at, _ in keys_below(self._store, LOCKS))
        above = place[:3] if place.table else place[:2]
        return sorted({queued_of(*pair).lock_id for pair in pairs_between(self._store, *LOCK_QUEUES.range(*above))})

    def _first_living(self, tx: Transaction, blocks: Iterable[Block], now_ms: int) -> Block | None:
        """The first of these locks whose holder is not silent for too long. The others are freed, up to a number."""
        for freed, block in enumerate(blocks):
            if (
                freed == _FREED_AT_ONCE_MAX
                or tx.size_bytes > _FREED_BYTES_MAX
                or not self._free_if_silent(tx, block, now_ms)
            ):
                return block
        return None

    def _free_if_silent(self, tx: Transaction, block: Block, now_ms: int) -> bool:
        by = block.by
        if by.transaction_id:
            return expiry.end_silent_transaction(tx, by.transaction_id, now_ms, self._limits)
        return expiry.end_silent_lock(tx, by.lock_id, now_ms, self._limits)


def _waits(request: LockRequest, component: Component) -> bool:
    if not request.transaction_id:
        return True
    return request.writes_wait and (request.reads_wait or component.type is not LockType.SHARED_READ)


def _is_within(place: Place, around: Place) -> bool:
    """``around`` may name a catalog alone, too."""
    named = [name for name in around if name]
    return list(place[: len(named)]) == named


def _shown(tx: ReadTransaction, lock_ids: Iterable[int], place: Place | None, transaction_id: int) -> list[ShownLock]:
    shown: list[tuple[LockRecord, Queued]] = []
    for lock_id in lock_ids:
        record = locks.find(tx, lock_id)
        if record is None or (transaction_id and record.transaction_id != transaction_id):
            continue
        shown += [
            (record, Queued(component, record.position, lock_id, number, record.transaction_id))
            for number, component in enumerate(locks.components_of(tx, lock_id))
            if place is None or _is_within(component.place, place)
        ]
    waiting = (one.component.place for record, one in shown if not record.acquired_ms)
    queues = Queues(locks.overlapping(tx, waiting, snapshot=True))
    beats_ms = {lock_id: locks.last_beat_ms(tx, lock_id) for lock_id in {one.lock_id for _, one in shown}}
    blocks = (None if record.acquired_ms else queues.first_in_the_way(one) for record, one in shown)
    return [
        ShownLock(one.lock_id, one.number, one.component, record, beats_ms[one.lock_id], block)
        for (record, one), block in zip(shown, blocks, strict=True)
    ]
