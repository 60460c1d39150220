"""Write ids, inside a transaction of the store: the writes to a table by transactions, counted without a gap.

They belong to a name: a table that is created anew under it begins with 1 again, and a statement that creates a table
and fills it has its write id before there is a table. Renaming a table moves one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from lakemark_core.errors import LimitExceeded, TransactionNotFound
from lakemark_proto.store.v1.transactions_pb2 import WriteIdsRecord
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import IDS, TXN_WRITE_IDS, WRITE_ID_TABLES, WRITE_IDS
from lakemark_server.transactions import counts, limits
from lakemark_server.transactions.conflicts import Place

_ID_BYTES: Final = 8
_NUMBERS: Final = IDS.key("write ids")


class TableKey(NamedTuple):
    """Names in lower case."""

    catalog: str
    database: str
    table: str


def find(tx: ReadTransaction, table: TableKey) -> WriteIdsRecord | None:
    """What is known of the table's write ids; None if there are none."""
    stored = tx.get(WRITE_ID_TABLES.key(*table))
    return None if stored is None else WriteIdsRecord.FromString(stored)


def new_number(tx: Transaction) -> int:
    """The number of the write ids of one more table."""
    number = int.from_bytes(tx.get(_NUMBERS) or b"", "little") + 1
    tx.set(_NUMBERS, number.to_bytes(_ID_BYTES, "little"))
    return number


def put(tx: Transaction, table: TableKey, record: WriteIdsRecord) -> None:
    """Writes what is known of them."""
    tx.set(WRITE_ID_TABLES.key(*table), record.SerializeToString())


def of_transactions(tx: ReadTransaction, transaction_ids: Sequence[int], number: int) -> dict[int, int]:
    """The write ids for the table of those transactions that have one."""
    keys = [TXN_WRITE_IDS.key(one, number) for one in transaction_ids]
    stored = zip(transaction_ids, tx.get_many(keys), strict=True)
    return {one: int.from_bytes(value, "big") for one, value in stored if value is not None}


def check_number(tx: ReadTransaction, transaction_ids: Sequence[int]) -> None:
    """Raises LimitExceeded if one of the transactions (ascending) may not write to one more table."""
    if not transaction_ids:
        return
    allowed = limits.TABLES_OF_TRANSACTION_MAX
    begin, end = TXN_WRITE_IDS.range(transaction_ids[0])[0], TXN_WRITE_IDS.range(transaction_ids[-1])[1]
    if len(tx.get_range(begin, end, limit=allowed)) < allowed:
        return  # all of them together write to fewer
    if len(transaction_ids) == 1:
        raise LimitExceeded(
            f"transaction {transaction_ids[0]} writes to {allowed:,} tables; commit it and open another"
        )
    middle = len(transaction_ids) // 2
    check_number(tx, transaction_ids[:middle])
    check_number(tx, transaction_ids[middle:])


def allocate(tx: Transaction, record: WriteIdsRecord, transaction_id: int) -> int:
    """The next write id, for a transaction that has none. ``put`` must follow."""
    record.last += 1
    tx.set(WRITE_IDS.key(record.number, record.last), transaction_id.to_bytes(_ID_BYTES, "big"))
    tx.set(TXN_WRITE_IDS.key(transaction_id, record.number), record.last.to_bytes(_ID_BYTES, "big"))
    return record.last


def kept(tx: ReadTransaction, number: int) -> list[tuple[int, int]]:
    """Write ids that may be invalid to somebody, ascending, each with its transaction."""
    pairs = tx.get_range(*WRITE_IDS.range(number))
    return [(cast(int, WRITE_IDS.unpack(key)[-1]), int.from_bytes(value, "big")) for key, value in pairs]


def transaction_of(tx: ReadTransaction, number: int, write_id: int) -> int:
    """Raises TransactionNotFound."""
    stored = tx.get(WRITE_IDS.key(number, write_id))
    if stored is None:
        raise TransactionNotFound(f"invalid write id {write_id}: no transaction that is remembered has it")
    return int.from_bytes(stored, "big")


def drop_table(tx: Transaction, table: TableKey) -> None:
    """A dropped table has no write ids any more."""
    record = find(tx, table)
    if record is not None:
        tx.clear(WRITE_ID_TABLES.key(*table))
        tx.clear_range(*WRITE_IDS.range(record.number))
        counts.add(tx, counts.TABLES, -1)


def rename_table(tx: Transaction, old: TableKey, new: TableKey) -> None:
    """The write ids stay with the table. Those of an earlier table of the new name are gone."""
    drop_table(tx, new)
    record = find(tx, old)
    if record is not None:
        tx.clear(WRITE_ID_TABLES.key(*old))
        put(tx, new, record)


def key_of(place: Place) -> TableKey:
    """The table of a place."""
    return TableKey(place.catalog, place.database, place.table)
