"""Finding tables by a part of their name, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry
from lakemark_server.catalog import databases, tables
from lakemark_server.kv import ReadTransaction

LOOKED_AT_MAX: Final = 20_000
"""Names that one search looks at."""

_PAGE: Final = 1_000
_DATABASES: Final = 100


class TablePlace(NamedTuple):
    """A table's name; of the tables of a catalog in order of database and name. ("", ""): before the first one."""

    database: str
    table: str


BEGINNING: Final = TablePlace("", "")


class TableMatches(NamedTuple):
    """Tables in order of their places. ``behind``: where to go on; None: there are no more.

    A search that looked at ``LOOKED_AT_MAX`` names ends there, with fewer matches than were asked for.
    """

    tables: list[tuple[TablePlace, TableEntry]]
    behind: TablePlace | None


def find_tables(
    tx: ReadTransaction, catalog: str, text: str = "", after: TablePlace = BEGINNING, *, limit: int
) -> TableMatches:
    """Lake and warehouse tables whose name with its database ("sales.orders") contains ``text`` in any case."""
    wanted = text.strip().lower()
    matches: list[tuple[TablePlace, TableEntry]] = []
    looked_at = 0
    for database in _databases(tx, catalog, after):
        name = after.table if database.name == after.database else ""
        while True:
            # Without a text every table is a match, so no more are read than are asked for.
            size = _PAGE if wanted else min(_PAGE, limit + 1 - len(matches))
            page = tables.listed(tx, database.database_id, after=name, limit=size)
            for name, entry in page:
                place = TablePlace(database.name, name)
                if wanted in f"{database.name}.{name}":
                    if len(matches) == limit:
                        return TableMatches(matches, matches[-1][0])
                    matches.append((place, entry))
                looked_at += 1
                if looked_at == LOOKED_AT_MAX:
                    return TableMatches(matches, place)
            if len(page) < size:
                break
    return TableMatches(matches, None)


def _databases(tx: ReadTransaction, catalog: str, after: TablePlace) -> Iterator[DatabaseRecord]:
    """From the one in which the search goes on, read as they are needed."""
    first = databases.find(tx, catalog, after.database) if after.database else None
    if first is not None:
        yield first
    name = after.database
    while page := databases.listed(tx, catalog, after=name, limit=_DATABASES):
        yield from page
        name = page[-1].name
