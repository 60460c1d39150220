"""The warehouse: everything that a Hive Metastore keeps beside databases."""

from __future__ import annotations

from collections.abc import Callable

from lakemark_core import storage
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_proto.v1 import events_pb2
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE
from lakemark_server.catalog import databases, directories, events
from lakemark_server.catalog.catalog_definitions import CatalogDefinitions
from lakemark_server.catalog.client_notes import ClientNotes
from lakemark_server.catalog.column_statistics import ColumnStatistics
from lakemark_server.catalog.constraints import Constraints
from lakemark_server.catalog.data_connectors import DataConnectors
from lakemark_server.catalog.functions import Functions
from lakemark_server.catalog.partition_sets import CACHE_BYTES_MAX, PartitionSets
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse_partitions import WarehousePartitions
from lakemark_server.catalog.warehouse_tables import WarehouseTables
from lakemark_server.ownership import places
from lakemark_server.store.mutations import Mutation


class Warehouse:
    """Thread-safe. ``cache_bytes_max`` bounds the partitions held in memory; see ``PartitionSets``."""

    def __init__(self, catalog: Catalog, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        sets = PartitionSets(catalog.store, catalog.clock, cache_bytes_max)
        self.catalog = catalog
        self.partitions = WarehousePartitions(catalog, sets)
        self.tables = WarehouseTables(catalog, sets, self.partitions)
        self.catalogs = CatalogDefinitions(catalog)
        self.connectors = DataConnectors(catalog.mutations)
        self.functions = Functions(catalog.mutations)
        self.statistics = ColumnStatistics(catalog.mutations)
        self.constraints = Constraints(catalog.mutations)
        self.notes = ClientNotes(catalog.mutations)

    def alter_database(self, catalog: str, name: str, change: Callable[[DatabaseRecord], DatabaseRecord]) -> None:
        """Replaces a database by what ``change`` makes of it. Raises DatabaseNotFound.

        Name, id and time of creation stay. A new location is that of tables which are created later.
        """

        ownership = self.catalog.ownership

        def body(mutation: Mutation) -> None:
            old = databases.get(mutation.tx, catalog, name)
            new = DatabaseRecord()
            new.CopyFrom(old)
            new = change(new)
            new.database_id, new.catalog, new.name, new.created_ms = (
                old.database_id, old.catalog, old.name, old.created_ms,
            )  # fmt: skip
            new.location = storage.canonical_uri(new.location) if new.location else old.location
            if new.location != old.location:
                owns = ownership.may_own_database(places.place_of(new.location), was_empty=False)
                self.catalog.take_database_place(mutation.tx, new, owns=owns)
            databases.put(mutation.tx, new)
            mutation.tell(events.of_database(events_pb2.DATABASE_ALTERED, old, new))

        self.catalog.mutations.run(body)

    def drop_content(self, catalog: str, name: str, *, delete_data: bool) -> None:
        """Drops every function and table of a database: the first half of ``DROP DATABASE … CASCADE``."""
        for function in self.functions.listed(catalog, name, lambda _: True):
            self.functions.drop(catalog, name, function)
        for table, entry in self.catalog.list_tables(catalog, name):
            if entry.kind == WAREHOUSE:
                self.tables.drop(catalog, name, table, delete_data=delete_data)
            else:
                with directories.leaving_files():
                    self.catalog.dropped.drop(catalog, name, table, if_exists=True, delete_files=delete_data)
