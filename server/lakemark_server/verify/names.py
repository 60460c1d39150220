"""The names of all tables of a store, and what they refer to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry
from lakemark_server.kv import Store, keys_below
from lakemark_server.store.keyspace import DATABASES, TABLE_NAMES


@dataclass(frozen=True, slots=True)
class Name:
    """A table's name. ``owner`` is None if its database does not exist."""

    owner: DatabaseRecord | None
    database_id: int
    name: str
    entry: TableEntry

    @property
    def full(self) -> str:
        """``database.table``."""
        return f"{self.owner.name if self.owner else f'database {self.database_id}'}.{self.name}"


def names_of(store: Store) -> list[Name]:
    """All names, read page by page: in a store that is in use, pages come from different moments."""
    databases = {}
    for _, value in keys_below(store, DATABASES):
        record = DatabaseRecord.FromString(value)
        databases[record.database_id] = record
    names = []
    for (database_id, name), value in keys_below(store, TABLE_NAMES):
        number = cast(int, database_id)
        names.append(Name(databases.get(number), number, cast(str, name), TableEntry.FromString(value)))
    return names
