"""Allocating write ids, and telling which of them a reader sees. Every change is one mutation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lakemark_core.errors import AlreadyExists, InvalidArgument
from lakemark_proto.store.v1.transactions_pb2 import WriteIdsRecord
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import TXNS_OPEN
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.transactions import counts, limits, txns, visibility, write_ids
from lakemark_server.transactions.conflicts import Place
from lakemark_server.transactions.limits import TransactionLimits
from lakemark_server.transactions.requests import check_number, check_place, check_seed
from lakemark_server.transactions.transaction_manager import open_transactions
from lakemark_server.transactions.visibility import ValidTransactions, ValidWriteIds
from lakemark_server.transactions.write_ids import TableKey

READ_ONLY: Final = 2
"""The type of transactions that write nothing."""


class WriteIdManager:
    """Thread-safe, and correct with any number of processes on the store."""

    def __init__(self, mutations: Mutations, given: TransactionLimits) -> None:
        self._mutations = mutations
        self._store = mutations.store
        self._limits = given

    def allocate(self, table: TableKey, transaction_ids: Iterable[int]) -> list[tuple[int, int]]:
        """A write id of the table for each transaction, or the one that it has: (transaction, write id), ascending.

        The table need not exist yet. Raises InvalidArgument, LimitExceeded, TransactionAborted, TransactionNotFound.
        """
        ids = sorted(set(transaction_ids))
        check_number("transactions", len(ids), limits.TRANSACTIONS_OF_REQUEST_MAX)
        check_place(Place(*table))

        def body(mutation: Mutation) -> list[tuple[int, int]]:
            tx = mutation.tx
            is_open = txns.find_many(tx, TXNS_OPEN, ids)
            for one in ids:
                if one not in is_open:
                    raise txns.not_open(tx, one)
                if is_open[one].type == READ_ONLY:
                    raise InvalidArgument(
                        f"Write ID allocation failed on {table.database}.{table.table}: transaction {one} is read-only"
                    )
            record = write_ids.find(tx, table) or self._new_table(tx)
            before = record.last
            known = write_ids.of_transactions(tx, ids, record.number)
            write_ids.check_number(tx, [one for one in ids if one not in known])
            pairs = [(one, known.get(one) or write_ids.allocate(tx, record, one)) for one in ids]
            if record.last != before:
                write_ids.put(tx, table, record)
            return pairs

        return self._mutations.run(body) if ids else []

    def _new_table(self, tx: Transaction) -> WriteIdsRecord:
        counts.check(tx, counts.TABLES, 1, self._limits.tables)
        counts.add(tx, counts.TABLES, 1)
        return WriteIdsRecord(number=write_ids.new_number(tx))

    def last(self, table: TableKey) -> int:
        """The last write id that was allocated; 0: none."""
        record = self._store.read(lambda tx: write_ids.find(tx, table))
        return record.last if record else 0

    def seed(self, table: TableKey, last: int) -> None:
        """A table that becomes transactional: its next write id is the one after ``last``.

        Raises AlreadyExists if it has write ids, InvalidArgument, LimitExceeded.
        """
        check_place(Place(*table))
        check_seed(last)

        def body(mutation: Mutation) -> None:
            if write_ids.find(mutation.tx, table) is not None:
                raise AlreadyExists(f"{table.database}.{table.table} has write ids already: the first cannot be set")
            record = self._new_table(mutation.tx)
            record.last = last
            write_ids.put(mutation.tx, table, record)

        self._mutations.run(body)

    def valid(
        self, tables: Sequence[TableKey], transactions: ValidTransactions | None = None, write_id: int = 0
    ) -> list[ValidWriteIds]:
        """What is valid of each table to whoever sees ``transactions``; None: to one who begins to read now, in the
        transaction that has this write id of the first table (0: in none).

        Raises LimitExceeded, TransactionNotFound.
        """
        check_number("tables", len(tables), limits.TABLES_OF_REQUEST_MAX)

        def body(tx: ReadTransaction) -> list[ValidWriteIds]:
            seen = transactions or _seen_now(tx, tables, write_id)
            return [_valid(tx, table, seen) for table in tables]

        return self._store.read(body)


def _seen_now(tx: ReadTransaction, tables: Sequence[TableKey], write_id: int) -> ValidTransactions:
    reader = 0
    if write_id and tables:
        record = write_ids.find(tx, tables[0]) or WriteIdsRecord()
        reader = write_ids.transaction_of(tx, record.number, write_id)
    now = open_transactions(tx, (READ_ONLY,), beats=False)
    return visibility.seen_by(
        [one.id for one in now.transactions if not one.aborted],
        [one.id for one in now.transactions if one.aborted],
        now.high_water_mark,
        reader,
    )


def _valid(tx: ReadTransaction, table: TableKey, seen: ValidTransactions) -> ValidWriteIds:
    record = write_ids.find(tx, table)
    if record is None:
        return ValidWriteIds(0, [], [])
    return visibility.valid_write_ids(seen, record.last, write_ids.kept(tx, record.number))
