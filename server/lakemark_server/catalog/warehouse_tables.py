"""Warehouse (Hive) tables: create, alter, rename, drop. Only the caller reads and makes their Thrift structs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

from lakemark_core import storage
from lakemark_core.errors import AlreadyExists, FailedPrecondition, PartitionNotFound, StoreConflict, TableNotFound
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry
from lakemark_proto.store.v1.warehouse_pb2 import HiveTableRecord
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE
from lakemark_server.admission import usage
from lakemark_server.catalog import databases, directories, events, tables, warehouse_records
from lakemark_server.catalog.names import legal_name
from lakemark_server.catalog.partition_sets import PartitionSets
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse_partitions import WarehousePartitions
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, inside
from lakemark_server.context import caller
from lakemark_server.kv import ReadTransaction
from lakemark_server.store.mutations import Mutation

_ALTER_ATTEMPTS: Final = 20

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What the service must know of a warehouse table, and its Thrift struct (``hive``), which it does not read.

    ``location`` is a URI, "" for a view. ``owns_data``: dropping the table deletes its data.
    """

    name: str
    hive: bytes
    hive_type: str
    location: str
    owns_data: bool
    partition_columns: Sequence[tuple[str, str]] = ()
    comment: str = ""

    def record(self, partition_base: str) -> HiveTableRecord:
        return HiveTableRecord(
            hive=self.hive,
            location=self.location,
            partition_base=partition_base,
            owns_data=self.owns_data,
            partition_columns=[name for name, _ in self.partition_columns],
            partition_types=[type_text for _, type_text in self.partition_columns],
            comment=self.comment,
        )


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a table becomes: its new ``database`` and definition.

    ``moves``: its directory is moved to the definition's location.
    """

    database: DatabaseRecord
    definition: TableDefinition
    moves: bool = False


Cascade: TypeAlias = Callable[[HiveTable, HiveTable], Callable[[Partition], Partition] | None]
"""Takes the table before and after a change. Returns what to make of each of its partitions; None: they stay."""


def default_location(database: DatabaseRecord, name: str) -> str:
    """Where Hive puts a table for which no location is given."""
    return storage.join(database.location, name.lower())


def moves_with_its_name(table: HiveTable) -> bool:
    """Whether a rename moves the directory, as in Hive: the table owns its data, and they are in the default place."""
    record = table.record
    return record.owns_data and storage.is_same_place(record.location, default_location(table.database, table.name))


class WarehouseTables:
    """Thread-safe. Every change is one store transaction; directories are made before and deleted after it."""

    def __init__(self, catalog: Catalog, sets: PartitionSets, partitions: WarehousePartitions) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._mutations = catalog.mutations
        self._sets = sets
        self._partitions = partitions

    def get(self, catalog: str, database: str, name: str) -> HiveTable:
        """Raises DatabaseNotFound, TableNotFound, UnsupportedOperation if it is a lake table."""
        return self._store.read(lambda tx: warehouse_records.load_table(tx, catalog, database, name))

    def look_up(
        self, catalog: str, database: str, name: str
    ) -> tuple[DatabaseRecord, TableEntry | None, HiveTable | None]:
        """The database, the entry of the table that has the name, and the table itself if it is a warehouse table.

        Raises DatabaseNotFound.
        """

        def body(tx: ReadTransaction) -> tuple[DatabaseRecord, TableEntry | None, HiveTable | None]:
            owner = databases.get(tx, catalog, database)
            entry = tables.find(tx, owner.database_id, name)
            if entry is None or entry.kind != WAREHOUSE:
                return owner, entry, None
            return owner, entry, warehouse_records.table_of_entry(tx, owner, name.lower(), entry)

        return self._store.read(body)

    def by_id(self, table_id: int, catalog: str, database: str, name: str) -> HiveTable | None:
        """The table as it is now, under a name that it has or had; None if it was dropped.

        Of its database only the name is known.
        """
        record = self._store.read(lambda tx: warehouse_records.find_record(tx, table_id))
        if record is None:
            return None
        owner = DatabaseRecord(catalog=catalog, name=database)
        return HiveTable(owner, name, TableEntry(table_id=table_id, kind=WAREHOUSE), record)

    def create(self, database: DatabaseRecord, definition: TableDefinition) -> HiveTable:
        """Makes the directory, too. Raises AlreadyExists, DatabaseNotFound, InvalidName, Unavailable."""
        name = legal_name("table", definition.name)
        table_id = self._catalog.table_ids.next()
        entry = TableEntry(table_id=table_id, kind=WAREHOUSE, hive_type=definition.hive_type)
        record = definition.record(definition.location)

        def body(mutation: Mutation) -> HiveTable:
            tx = mutation.tx
            owner = databases.get(tx, database.catalog, database.name)
            if tables.find(tx, owner.database_id, name) is not None:
                raise AlreadyExists(f"Table {owner.name}.{name} already exists", table=name)
            self._catalog.quotas.take(tx, owner.catalog, usage.TABLES)
            tables.put(tx, owner.database_id, name, entry)
            warehouse_records.put_table(tx, table_id, record)
            table = HiveTable(owner, name, entry, record)
            mutation.tell(events.of_warehouse_table(pb.TABLE_CREATED, after=table))
            return table

        return directories.with_directories([definition.location], lambda: self._mutations.run(body))

    def alter(
        self,
        catalog: str,
        database: str,
        name: str,
        change: Callable[[HiveTable], TableChange],
        cascade: Cascade | None = None,
    ) -> None:
        """Replaces the table by what ``change`` makes of it, which is called again if the table changes meanwhile.

        ``cascade`` says what becomes of the table's partitions (None: they stay).

        Raises what ``change`` raises, DatabaseNotFound, TableNotFound, UnsupportedOperation for a lake table,
        AlreadyExists if the new name or directory is taken, InvalidName, Unavailable.
        """
        for _ in range(_ALTER_ATTEMPTS):
            old = self.get(catalog, database, name)
            planned = change(old)
            new_name = legal_name("table", planned.definition.name)
            try:
                if planned.moves and planned.definition.location != old.record.location:
                    directories.with_moved_directory(
                        old.record.location,
                        planned.definition.location,
                        lambda: self._apply(old, planned, new_name, cascade),  # noqa: B023 - called at once
                    )
                else:
                    directories.with_directories(
                        [planned.definition.location] if planned.definition.location != old.record.location else [],
                        lambda: self._apply(old, planned, new_name, cascade),  # noqa: B023
                    )
            except (_ChangedMeanwhileError, PartitionNotFound):  # or one of those that it cascades to was dropped
                continue
            return
        raise StoreConflict(f"table {database}.{name} is being changed by others all the time; try again")

    def _apply(self, old: HiveTable, planned: TableChange, new_name: str, cascade: Cascade | None) -> None:
        definition = planned.definition
        base = definition.location if planned.moves or not old.record.partition_base else old.record.partition_base
        record = definition.record(base)
        entry = TableEntry(table_id=old.table_id, kind=WAREHOUSE, hive_type=definition.hive_type)

        def body(mutation: Mutation) -> None:
            tx = mutation.tx
            now = warehouse_records.load_table(tx, old.database.catalog, old.database.name, old.name)
            if now.table_id != old.table_id or now.record != old.record:
                raise _ChangedMeanwhileError("the table was changed meanwhile")
            owner = databases.get(tx, planned.database.catalog, planned.database.name)
            renamed = (owner.database_id, new_name) != (old.database.database_id, old.name)
            if renamed:
                if tables.find(tx, owner.database_id, new_name) is not None:
                    raise AlreadyExists(f"new table {owner.name}.{new_name} already exists", table=new_name)
                tables.clear_name(tx, old.database.database_id, old.name)
                if owner.catalog != old.database.catalog:
                    self._catalog.quotas.take(tx, owner.catalog, usage.TABLES)
                    usage.add(tx, old.database.catalog, usage.TABLES, -1)
            tables.put(tx, owner.database_id, new_name, entry)
            warehouse_records.put_table(tx, old.table_id, record)
            kind = pb.TABLE_RENAMED if renamed else pb.TABLE_ALTERED
            mutation.tell(events.of_warehouse_table(kind, now, HiveTable(owner, new_name, entry, record)))

        new = HiveTable(planned.database, new_name, entry, record)
        of_partitions = cascade(old, new) if cascade and record.partition_columns else None
        if of_partitions:
            self._partitions.alter_all(old, of_partitions, body, record.ByteSize())
        else:
            self._mutations.run(body)

    def drop(self, catalog: str, database: str, name: str, *, delete_data: bool) -> HiveTable:
        """With ``delete_data``, deletes the data of a table that owns them, also partitions outside its directory.

        Raises DatabaseNotFound, TableNotFound, UnsupportedOperation for a lake table.
        """
        table = self.get(catalog, database, name)
        outside: list[str] = []
        if delete_data and table.record.owns_data and table.record.partition_columns:
            rows = self._sets.get(table.table_id).rows
            outside = [row.location for row in rows if row.located and not row.relative]

        def body(mutation: Mutation) -> HiveTable:
            tx = mutation.tx
            current = warehouse_records.load_table(tx, catalog, database, name)
            if current.table_id != table.table_id:
                raise TableNotFound(f"table {current.label} was dropped and created again meanwhile")
            tables.clear_name(tx, current.database.database_id, current.name)
            usage.add(tx, current.database.catalog, usage.TABLES, -1)
            tables.clear_content(tx, current.table_id)
            kept = not (delete_data and current.record.owns_data)
            mutation.tell(events.of_warehouse_table(pb.TABLE_DROPPED, current, files_kept=kept))
            return current

        dropped = self._mutations.run(body)
        self._sets.forget(dropped.table_id)
        deletes = delete_data and dropped.record.owns_data
        _log.info(
            "dropped a warehouse table",
            table=dropped.label,
            location=dropped.record.location,
            files="deleted" if deletes else "kept",
            by=caller.current(),
        )
        if deletes:
            for location in [*outside, dropped.record.location]:
                kept = (self._catalog.warehouse, dropped.database.location)
                directories.delete_unless_shared(location, kept, self._catalog.has_lake_table)
        return dropped

    def truncate(self, table: HiveTable, partitions: Sequence[Partition] | None = None) -> None:
        """Deletes the files of these partitions, or of a table without partitions (None), and keeps the directories.

        The table must own its data, and no lake table may have files there. Its event is told when the files are gone:
        whoever is told finds none. Raises FailedPrecondition, TableNotFound, Unavailable.
        """
        if not table.record.owns_data:
            raise FailedPrecondition(f"{table.label} is an external table: its data are not deleted")
        base = table.record.partition_base
        locations = [table.record.location]
        if partitions is not None:
            locations = [partition.full_location(base) for partition in partitions if partition.located]
        for location in locations:
            if self._catalog.has_lake_table(location):
                raise FailedPrecondition(
                    f"{table.label}: {location} has files of a lake table, too; they are not deleted", location=location
                )
        for location in locations:
            if not inside(table.database.location, location):
                storage.empty_directory(location)
        if partitions is None:
            self._mutations.run(lambda mutation: self._tell_truncated(mutation, table))
        else:
            self._partitions.tell_truncated(table, partitions)

    def _tell_truncated(self, mutation: Mutation, table: HiveTable) -> None:
        database = table.database
        now = warehouse_records.load_table(mutation.tx, database.catalog, database.name, table.name)
        if now.table_id != table.table_id:
            raise TableNotFound(f"table {table.label} was dropped and created again meanwhile")
        mutation.tell(events.of_warehouse_table(pb.TABLE_TRUNCATED, now, now))


class _ChangedMeanwhileError(StoreConflict):
    """The table changed between the decision on a change and its transaction."""

    code = "table_changed_meanwhile"
