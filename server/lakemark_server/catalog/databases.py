"""Databases, inside a transaction."""

from __future__ import annotations

from lakemark_core.errors import DatabaseNotFound
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.catalog.names import NAME_CHARS_MAX, catalog_name
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import DATABASES


def find(tx: ReadTransaction, catalog: str, name: str) -> DatabaseRecord | None:
    """The database, or None."""
    if len(name) > NAME_CHARS_MAX or len(catalog) > NAME_CHARS_MAX:  # nothing has such a name
        return None
    stored = tx.get(DATABASES.key(catalog_name(catalog), name.lower()))
    return None if stored is None else DatabaseRecord.FromString(stored)


def get(tx: ReadTransaction, catalog: str, name: str) -> DatabaseRecord:
    """Raises DatabaseNotFound."""
    record = find(tx, catalog, name)
    if record is None:
        raise DatabaseNotFound(f"there is no database {name!r}", database=name)
    return record


def put(tx: Transaction, record: DatabaseRecord) -> None:
    """Writes the record, under the name and the catalog in it."""
    tx.set(DATABASES.key(record.catalog, record.name), record.SerializeToString())


def clear(tx: Transaction, record: DatabaseRecord) -> None:
    """Removes the record; what the database has stays."""
    tx.clear(DATABASES.key(record.catalog, record.name))


def listed(tx: ReadTransaction, catalog: str, *, after: str = "", limit: int = 0) -> list[DatabaseRecord]:
    """Databases in order of name, beginning behind ``after``."""
    begin, end = DATABASES.range(catalog_name(catalog))
    if after:
        begin = DATABASES.key(catalog_name(catalog), after) + b"\x00"
    return [DatabaseRecord.FromString(value) for _, value in tx.get_range(begin, end, limit=limit)]
