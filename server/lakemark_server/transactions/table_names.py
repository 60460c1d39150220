"""What becomes of locks and write ids, which belong to names, when a table is renamed or dropped. As in Hive."""

from __future__ import annotations

from lakemark_server.kv import Transaction
from lakemark_server.transactions import locks, write_ids
from lakemark_server.transactions.conflicts import Place


def rename(tx: Transaction, old: Place, new: Place) -> None:
    """Both stay with the table. Two locks that would exclude each other under one name are both kept."""
    locks.rename_table(tx, old, new)
    write_ids.rename_table(tx, write_ids.key_of(old), write_ids.key_of(new))


def drop(tx: Transaction, table: Place) -> None:
    """Write ids go with the table. Locks stay until they are freed: a table that comes under the name is locked."""
    write_ids.drop_table(tx, write_ids.key_of(table))
