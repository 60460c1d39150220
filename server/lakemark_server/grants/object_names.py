"""What becomes of privileges, which belong to names, when what they are on is renamed or dropped."""

from __future__ import annotations

from lakemark_server.grants import counts
from lakemark_server.kv import Transaction
from lakemark_server.store.keyspace import PRIVILEGES


def rename_table(tx: Transaction, old: tuple[str, str, str], new: tuple[str, str, str]) -> None:
    """Privileges stay with the table. Names: catalog, database, table."""
    for key, value in tx.get_range(*PRIVILEGES.range(*old)):
        tx.clear(key)
        tx.set(PRIVILEGES.key(*new, *PRIVILEGES.unpack(key)[3:]), value)


def drop(tx: Transaction, *names: str) -> None:
    """Privileges on the table (catalog, database, table), or on the database and all in it, are gone."""
    gone = len(tx.get_range(*PRIVILEGES.range(*names)))
    if gone:
        tx.clear_range(*PRIVILEGES.range(*names))
        counts.add(tx, counts.PRIVILEGES, -gone)
