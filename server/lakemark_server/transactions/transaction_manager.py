"""Opening and ending transactions. Every change is one mutation."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final

from lakemark_core.errors import InvalidArgument, TransactionAborted
from lakemark_proto.store.v1.transactions_pb2 import TransactionRecord
from lakemark_server.kv import ReadTransaction
from lakemark_server.store.keyspace import TXN_BEATS, TXNS_ABORTED, TXNS_COMMITTED, TXNS_OPEN
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.transactions import counts, due, heartbeats, limits, txns
from lakemark_server.transactions.conflicts import Place
from lakemark_server.transactions.limits import TransactionLimits
from lakemark_server.transactions.requests import (
    Client,
    OpenTransactions,
    ShownTransaction,
    check_number,
    check_place,
    check_seed,
)

_ABORTED_AT_ONCE: Final = 200
_HEARD_AT_ONCE: Final = 1_000
_TRANSACTION_BYTES_AIM: Final = 500_000


class TransactionManager:
    """Thread-safe, and correct with any number of processes on the store."""

    def __init__(self, mutations: Mutations, given: TransactionLimits) -> None:
        self._mutations = mutations
        self._store = mutations.store
        self._limits = given
        # All openings change one counter. In one process they take turns instead of conflicting in the store.
        self._opening = threading.Lock()

    def open(self, number: int, client: Client, transaction_type: int = 0) -> list[int]:
        """Opens as many transactions, at most ``OPENED_AT_ONCE_MAX``. Returns their ids, ascending.

        Raises InvalidArgument, LimitExceeded.
        """
        if number <= 0:
            raise InvalidArgument(f"{number} transactions were asked for; ask for at least one")
        number, client = min(number, limits.OPENED_AT_ONCE_MAX), client.cut()

        def body(mutation: Mutation) -> list[int]:
            tx, now_ms = mutation.tx, mutation.now_ms
            counts.check(tx, counts.OPEN, number, self._limits.open)
            counts.check(tx, counts.ABORTED, 1, self._limits.aborted)
            last = txns.last_id(tx)
            ids = list(range(last + 1, last + 1 + number))
            oldest = next(txns.all_in(tx, TXNS_OPEN, limit=1, snapshot=True), None)
            record = TransactionRecord(
                type=transaction_type,
                user=client.user,
                host=client.host,
                agent=client.agent,
                started_ms=now_ms,
                first_open=oldest[0] if oldest else ids[0],
            )
            for one in ids:
                tx.set(TXNS_OPEN.key(one), record.SerializeToString())
                txns.beat(tx, one, now_ms)
                due.put(tx, now_ms + self._limits.timeout_ms, due.OPEN, one)
            txns.set_last_id(tx, ids[-1])
            counts.add(tx, counts.OPEN, number)
            return ids

        with self._opening:
            return self._mutations.run(body)

    def commit(self, transaction_id: int, *, first_committer_wins: bool) -> None:
        """Ends the transaction and frees its locks. Nothing happens if it is committed already.

        ``first_committer_wins``: it is aborted if another one has changed the same rows since it was opened. Raises
        TransactionAborted, TransactionNotFound.
        """

        def body(mutation: Mutation) -> TransactionAborted | None:
            tx, now_ms = mutation.tx, mutation.now_ms
            record = txns.find(tx, TXNS_OPEN, transaction_id)
            if record is None:
                if txns.find(tx, TXNS_COMMITTED, transaction_id) is not None:
                    return None
                raise txns.not_open(tx, transaction_id)
            overtaken = txns.overtaken_by(tx, transaction_id) if first_committer_wins else None
            if overtaken is not None:
                place, other = overtaken
                txns.abort(tx, transaction_id, record, now_ms, self._limits.kept_ms)
                return TransactionAborted(
                    f"Aborting txnid:{transaction_id} due to a write conflict on {'/'.join(filter(None, place[1:]))} "
                    f"committed by txnid:{other}: run the statement again"
                )
            txns.commit(tx, transaction_id, record, now_ms, self._limits.kept_ms)
            return None

        refusal = self._mutations.run(body)
        if refusal is not None:
            raise refusal

    def abort(self, transaction_id: int) -> None:
        """Ends the transaction and frees its locks. Nothing happens if it is aborted already.

        Raises TransactionNotFound, also if it is committed.
        """

        def body(mutation: Mutation) -> None:
            tx = mutation.tx
            record = txns.find(tx, TXNS_OPEN, transaction_id)
            if record is not None:
                txns.abort(tx, transaction_id, record, mutation.now_ms, self._limits.kept_ms)
            elif txns.find(tx, TXNS_ABORTED, transaction_id) is None:
                raise txns.not_open(tx, transaction_id)

        self._mutations.run(body)

    def abort_all(self, transaction_ids: Iterable[int]) -> None:
        """Aborts those of them that are open, some at a time. Raises LimitExceeded."""
        ids = sorted(set(transaction_ids))
        check_number("transactions", len(ids), limits.TRANSACTIONS_OF_REQUEST_MAX)
        while ids:
            ids = ids[self._mutations.run(partial(self._abort_some, ids)) :]

    def _abort_some(self, ids: Sequence[int], mutation: Mutation) -> int:
        """Returns how many it has looked at."""
        for number, one in enumerate(ids):
            if number == _ABORTED_AT_ONCE or mutation.tx.size_bytes > _TRANSACTION_BYTES_AIM:
                return number
            record = txns.find(mutation.tx, TXNS_OPEN, one)
            if record is not None:
                txns.abort(mutation.tx, one, record, mutation.now_ms, self._limits.kept_ms)
        return len(ids)

    def heartbeat_range(self, first: int, last: int) -> tuple[set[int], set[int]]:
        """Hears the open transactions from ``first`` to ``last``, some at a time. Returns those that are aborted, and
        those that are neither. Raises LimitExceeded."""
        check_number("transactions", last - first + 1, limits.TRANSACTIONS_OF_REQUEST_MAX)
        aborted: set[int] = set()
        missing: set[int] = set()
        for at in range(first, last + 1, _HEARD_AT_ONCE):
            ids = range(at, min(at + _HEARD_AT_ONCE, last + 1))
            some_aborted, some_missing = self._mutations.run(partial(_hear, ids))
            aborted |= some_aborted
            missing |= some_missing
        return aborted, missing

    def open_transactions(self, excluded_types: Collection[int] = (), *, beats: bool = False) -> OpenTransactions:
        """Those that are open or aborted. ``beats``: with the time of their last heartbeats."""
        return self._store.read(lambda tx: open_transactions(tx, excluded_types, beats=beats))

    def seed_transaction_ids(self, transaction_id: int) -> None:
        """The next transaction gets this id. Raises InvalidArgument if that was given already."""

        def body(mutation: Mutation) -> None:
            last = txns.last_id(mutation.tx)
            if transaction_id <= last:
                raise InvalidArgument(f"Invalid txnId seed {transaction_id}, the highWaterMark is {last}")
            check_seed(transaction_id)
            txns.set_last_id(mutation.tx, transaction_id - 1)

        with self._opening:
            self._mutations.run(body)

    def add_targets(self, transaction_id: int, places: Collection[Place]) -> None:
        """The transaction updates or deletes rows in these partitions; it has found out only now.

        Raises InvalidArgument, LimitExceeded, TransactionAborted, TransactionNotFound.
        """
        check_number("partitions", len(places), limits.PARTITIONS_OF_REQUEST_MAX)
        for place in places:
            check_place(place)

        def body(mutation: Mutation) -> None:
            txns.require_open(mutation.tx, transaction_id)
            txns.check_targets(mutation.tx, transaction_id, places)
            for place in places:
                txns.add_target(mutation.tx, transaction_id, place)

        self._mutations.run(body)


def _hear(ids: Iterable[int], mutation: Mutation) -> tuple[set[int], set[int]]:
    return heartbeats.hear_transactions(mutation.tx, ids, mutation.now_ms)


def open_transactions(tx: ReadTransaction, excluded_types: Collection[int], *, beats: bool) -> OpenTransactions:
    """Those that are open or aborted, but for some types."""
    shown = []
    for space, aborted in ((TXNS_OPEN, False), (TXNS_ABORTED, True)):
        for one, record in txns.all_in(tx, space):
            if record.type not in excluded_types:
                shown.append(ShownTransaction(one, aborted, record, 0))
    if beats:
        stored = dict(tx.get_range(*TXN_BEATS.range()))
        at = [int.from_bytes(stored.get(TXN_BEATS.key(one.id), b""), "big") for one in shown]
        shown = [one._replace(beat_ms=beat_ms) for one, beat_ms in zip(shown, at, strict=True)]
    return OpenTransactions(txns.last_id(tx), sorted(shown))
