"""The names of tables, lake and warehouse alike, inside a transaction."""

from __future__ import annotations

from lakemark_core.errors import TableNotFound
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry
from lakemark_server.catalog import databases
from lakemark_server.catalog.names import NAME_CHARS_MAX
from lakemark_server.kv import ReadTransaction, Transaction, strinc
from lakemark_server.store.keyspace import OF_TABLE, TABLE_NAMES


def find(tx: ReadTransaction, database_id: int, name: str) -> TableEntry | None:
    """The entry of the table with this name, or None."""
    if len(name) > NAME_CHARS_MAX:  # no table has such a name, and it would not fit into a key
        return None
    stored = tx.get(TABLE_NAMES.key(database_id, name.lower()))
    return None if stored is None else TableEntry.FromString(stored)


def get(tx: ReadTransaction, catalog: str, database: str, name: str) -> tuple[DatabaseRecord, TableEntry]:
    """Raises DatabaseNotFound, TableNotFound."""
    owner = databases.get(tx, catalog, database)
    entry = find(tx, owner.database_id, name)
    if entry is None:
        raise TableNotFound(f"there is no table {database}.{name}", database=database, table=name)
    return owner, entry


def put(tx: Transaction, database_id: int, name: str, entry: TableEntry) -> None:
    """Writes the entry of a table under a name in lower case."""
    tx.set(TABLE_NAMES.key(database_id, name), entry.SerializeToString())


def clear_name(tx: Transaction, database_id: int, name: str) -> None:
    """Frees a name, given in lower case."""
    tx.clear(TABLE_NAMES.key(database_id, name))


def clear_content(tx: Transaction, table_id: int) -> None:
    """Removes everything that the store has of the table, except its name."""
    for space in OF_TABLE:
        tx.clear_range(space.key(table_id), space.range(table_id)[1])  # its own key, and all below it


def listed(
    tx: ReadTransaction, database_id: int, *, prefix: str = "", after: str = "", limit: int = 0
) -> list[tuple[str, TableEntry]]:
    """Names with their entries, in order of name, beginning behind ``after``. ``prefix``: how they begin."""
    begin, end = TABLE_NAMES.range(database_id)
    if len(prefix) > NAME_CHARS_MAX:  # it would not fit into a key
        return []
    if prefix:
        # Without the end of the text, the key of the prefix is how the keys of all longer names begin.
        begin = TABLE_NAMES.key(database_id, prefix)[:-1]
        end = strinc(begin)
    if after:
        begin = max(begin, TABLE_NAMES.key(database_id, after) + b"\x00")
    return [
        (str(TABLE_NAMES.unpack(key)[-1]), TableEntry.FromString(value))
        for key, value in tx.get_range(begin, end, limit=limit)
    ]
