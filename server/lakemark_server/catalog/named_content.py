"""What belongs to the name of a table, not to its id: locks, write ids, privileges. Inside a transaction."""

from __future__ import annotations

from typing import NamedTuple

from lakemark_server.catalog import databases, tables
from lakemark_server.grants import object_names
from lakemark_server.grants.objects import GrantObject
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.transactions import table_names
from lakemark_server.transactions.conflicts import Place


class TableName(NamedTuple):
    """In lower case."""

    catalog: str
    database: str
    table: str


def rename(tx: Transaction, old: TableName, new: TableName) -> None:
    """All of it stays with the table."""
    table_names.rename(tx, Place(*old), Place(*new))
    object_names.rename_table(tx, old, new)


def drop(tx: Transaction, name: TableName) -> None:
    """The table is gone; only its locks stay until they are freed."""
    table_names.drop(tx, Place(*name))
    object_names.drop(tx, *name)


def drop_database(tx: Transaction, catalog: str, database: str) -> None:
    """A database without tables is gone."""
    object_names.drop(tx, catalog, database)


def require(tx: ReadTransaction, at: GrantObject) -> None:
    """There is such a database or table; of its partitions and columns nobody asks.

    Raises DatabaseNotFound, TableNotFound.
    """
    if at.table:
        tables.get(tx, at.catalog, at.database, at.table)
    elif at.database:
        databases.get(tx, at.catalog, at.database)
