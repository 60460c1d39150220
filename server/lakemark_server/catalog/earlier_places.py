"""Fills the registry of places from a store that an earlier build wrote: everybody keeps what they have.

Two that an earlier build let share a directory go on to share it: neither has its files deleted while the other is
there, and ``lakemark verify`` lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeAlias, cast

import structlog

from lakemark_core.errors import TableNotFound
from lakemark_proto.store.v1.store_pb2 import CatalogRecord, DatabaseRecord, Holder, TableEntry
from lakemark_proto.v1.catalog_pb2 import LAKE
from lakemark_server.catalog import catalogs, lake, partition_places, warehouse_records
from lakemark_server.catalog.table_places import base_of, holding_of
from lakemark_server.catalog.warehouse_records import HiveTable, InBatch, Partition
from lakemark_server.kv import Store, Transaction, keys_below
from lakemark_server.ownership import places
from lakemark_server.ownership.rules import Holding
from lakemark_server.store.keyspace import (
    CATALOGS,
    DATABASES,
    DROPPED,
    EARLIER_LOCATIONS,
    PLACES_KNOWN,
    TABLE_NAMES,
)

_AT_ONCE: Final = 200
_PAGE: Final = 2_000

_log = structlog.get_logger(__name__)


def fill(store: Store, roots: Iterable[str]) -> int:
    """Notes everybody's places unless that was done; how many it noted. Several processes may do it, and again.

    ``roots``: places that databases have and do not own.
    """
    if store.read(lambda tx: tx.get(PLACES_KNOWN)) is not None:
        return 0
    roots = frozenset(roots)
    every = who_is_where(store)
    count = 0
    while some := list(islice(every, _AT_ONCE)):
        store.transact(partial(_write, some, roots))
        count += len(some)

    def end(tx: Transaction) -> None:
        tx.clear_range(*EARLIER_LOCATIONS.range())
        tx.set(PLACES_KNOWN, b"")

    store.transact(end)
    if count:
        _log.info("noted who has which directory", directories=count)
    return count


def _write(some: Iterable[Here], roots: frozenset[str], tx: Transaction) -> None:
    for here in some:
        if isinstance(here, InTable):
            partition_places.note(tx, here.table, here.row)
        else:
            places.put(tx, replace(here, owns=here.owns and not (here.is_database and here.place in roots)))


class InTable(NamedTuple):
    """A partition whose directory does not follow from its name. ``settled``: no batch is changing it."""

    table: HiveTable
    row: Partition
    settled: bool


Here: TypeAlias = Holding | InTable


def who_is_where(store: Store) -> Iterator[Here]:
    """Everybody who has a directory, from their own records."""
    for _, value in keys_below(store, CATALOGS):
        yield catalogs.holding(CatalogRecord.FromString(value), owns=True)
    databases = {}
    for _, value in keys_below(store, DATABASES):
        database = DatabaseRecord.FromString(value)
        databases[database.database_id] = database
        if database.location:
            yield places.holding(database.location, Holder.DATABASE, database.database_id, database.name, owns=True)
    for items, value in keys_below(store, TABLE_NAMES):
        entry, owner = TableEntry.FromString(value), databases.get(cast(int, items[0]))
        if entry.kind == LAKE:
            yield from _lake_table(store, entry.table_id)
        elif owner is not None:
            yield from _table(store, owner, str(items[1]), entry)
    for items, _ in keys_below(store, DROPPED):
        yield from _lake_table(store, cast(int, items[-1]))


def _lake_table(store: Store, table_id: int) -> Iterator[Here]:
    with suppress(TableNotFound):
        yield lake.holding(store.read(partial(lake.get_record, table_id=table_id, or_dropped=True)))


def _table(store: Store, owner: DatabaseRecord, name: str, entry: TableEntry) -> Iterator[Here]:
    record = store.read(partial(warehouse_records.find_record, table_id=entry.table_id))
    if record is None or not record.location:
        return
    table = HiveTable(owner, name, entry, record)
    yield holding_of(table)
    base = base_of(table)
    if base is not None:
        yield base
    begin: bytes | None
    begin, end = warehouse_records.partition_range(table.table_id, ())
    while begin is not None and table.columns:
        page, begin = store.read(partial(warehouse_records.stored_page, table.table_id, begin, end, _PAGE))
        for stored in page:
            in_batch = isinstance(stored, InBatch)
            rows = (stored.before, stored.after) if isinstance(stored, InBatch) else (stored,)
            for row in filter(None, rows):
                if not partition_places.is_named(table.columns, row):
                    yield InTable(table, row, not in_batch)
