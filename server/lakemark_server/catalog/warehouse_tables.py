"""Warehouse (Hive) tables: create, alter, rename, drop. Only the caller reads and makes their Thrift structs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import structlog

from lakemark_core import storage
from lakemark_core.errors import (
    AlreadyExists,
    FailedPrecondition,
    LakemarkError,
    PartitionNotFound,
    StoreConflict,
    TableNotFound,
)
from lakemark_proto.store.v1.store_pb2 import ClosedRecord, DatabaseRecord, Holder, TableEntry
from lakemark_proto.store.v1.warehouse_pb2 import HiveTableRecord
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE
from lakemark_server.admission import usage
from lakemark_server.catalog import (
    constraints,
    databases,
    directories,
    events,
    named_content,
    partition_departures,
    tables,
    warehouse_records,
)
from lakemark_server.catalog.constraints import Decision, Surroundings
from lakemark_server.catalog.named_content import TableName
from lakemark_server.catalog.names import legal_name
from lakemark_server.catalog.partition_sets import PartitionSets
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.table_places import BASE, base_of, holding_of
from lakemark_server.catalog.warehouse_partitions import WarehousePartitions
from lakemark_server.catalog.warehouse_records import HiveTable, Partition
from lakemark_server.context import caller, deadline
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.ownership import places
from lakemark_server.store.mutations import Mutation

_ALTER_ATTEMPTS: Final = 20
_EMPTIED_AT_ONCE: Final = 200
_READ_AT_ONCE: Final = 200

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
    """Whether a rename moves the directory, as in Hive: the table owns its data, and they are in the default place.

    Where partitions start from another directory, nothing is moved.
    """
    record = table.record
    if base_of(table) is not None:
        return False
    return record.owns_data and storage.is_same_place(record.location, default_location(table.database, table.name))


def with_struct(table: HiveTable, hive: bytes) -> TableDefinition:
    """The table with another Thrift struct, from which nothing follows that the service must know."""
    record = table.record
    return TableDefinition(
        name=table.name,
        hive=hive,
        hive_type=table.entry.hive_type,
        location=record.location,
        owns_data=record.owns_data,
        partition_columns=list(zip(record.partition_columns, record.partition_types, strict=True)),
        comment=record.comment,
    )


class WarehouseTables:
    """Thread-safe. Every change is one store transaction; directories are made before and deleted after it."""

    def __init__(self, catalog: Catalog, sets: PartitionSets, partitions: WarehousePartitions) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._mutations = catalog.mutations
        self._ownership = catalog.ownership
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

    def comments(self, table_ids: Sequence[int]) -> dict[int, str]:
        """The comments of those of the tables that still exist, by id."""
        known: dict[int, str] = {}
        for begin in range(0, len(table_ids), _READ_AT_ONCE):
            some = table_ids[begin : begin + _READ_AT_ONCE]
            records = self._store.read(partial(warehouse_records.find_records, some))
            known |= {
                table_id: record.comment for table_id, record in zip(some, records, strict=True) if record is not None
            }
        return known

    def by_id(self, table_id: int, catalog: str, database: str, name: str) -> HiveTable | None:
        """The table as it is now, under a name that it has or had; None if it was dropped.

        Of its database only the name is known.
        """
        record = self._store.read(lambda tx: warehouse_records.find_record(tx, table_id))
        if record is None:
            return None
        owner = DatabaseRecord(catalog=catalog, name=database)
        return HiveTable(owner, name, TableEntry(table_id=table_id, kind=WAREHOUSE), record)

    def create(
        self,
        database: DatabaseRecord,
        definition: TableDefinition,
        table_id: int = 0,
        decide: Decision | None = None,
    ) -> HiveTable:
        """Makes the directory, too. ``table_id``: one of ``Catalog.table_ids``; 0 takes the next one.

        ``decide`` makes the table's constraints, which are added with it. Raises AlreadyExists, DatabaseNotFound,
        InvalidName, Unavailable, and for constraints what ``Constraints.add`` raises.
        """
        name = legal_name("table", definition.name)
        table_id = table_id or self._catalog.table_ids.next()
        entry = TableEntry(table_id=table_id, kind=WAREHOUSE, hive_type=definition.hive_type)
        record = definition.record(definition.location)

        def body(mutation: Mutation) -> HiveTable:
            tx = mutation.tx
            owner = databases.get(tx, database.catalog, database.name)
            if tables.find(tx, owner.database_id, name) is not None:
                raise AlreadyExists(f"Table {owner.name}.{name} already exists", table=name)
            self._catalog.quotas.take(tx, owner.catalog, usage.TABLES)
            table = self._with_place(tx, HiveTable(owner, name, entry, record))
            tables.put(tx, owner.database_id, name, entry)
            warehouse_records.put_table(tx, table)
            mutation.tell(events.of_warehouse_table(pb.TABLE_CREATED, after=table))
            if decide:
                constraints.put_new(mutation, table, decide(Surroundings(tx, owner.catalog), table))
            return table

        return directories.with_directories([definition.location], lambda: self._mutations.run(body))

    def _what_keeps_in_place(self, tx: Transaction, table: HiveTable) -> str:
        """Why the table's directory must not be moved, as the end of a sentence."""
        own = holding_of(table)
        for one in places.around_and_inside(tx, own.place, [own]):
            if one.kind == Holder.PARTITION and one.id == table.table_id and storage.is_within(one.place, own.place):
                return f"{one.name} has its directory there by another name, {one.location}"
        return self._ownership.what_keeps(tx, own)

    def _with_place(self, tx: Transaction, table: HiveTable, closed: Sequence[ClosedRecord] = ()) -> HiveTable:
        """The table, which has its place now, and owns its data only if it lies where tables own theirs.

        Raises LocationTaken.
        """
        if not table.record.location:
            return table
        taken = self._ownership.take(tx, holding_of(table), database_id=table.database.database_id, closed=closed)
        record = HiveTableRecord()
        record.CopyFrom(table.record)
        record.owns_data = taken.owns
        return replace(table, record=record)

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
            apply = partial(self._apply, old, planned, new_name, cascade)
            elsewhere = planned.definition.location != old.record.location
            try:
                if planned.moves and elsewhere:
                    move = ClosedRecord(
                        since_ms=self._mutations.clock(),
                        why=ClosedRecord.MOVED,
                        location=old.record.location,
                        target=planned.definition.location,
                        table_id=old.table_id,
                    )
                    keeps = partial(self._what_keeps_in_place, table=old)
                    directories.with_moved_directories(self._store, [move], keeps, apply)
                else:
                    directories.with_directories([planned.definition.location] if elsewhere else [], apply)
            except (_ChangedMeanwhileError, PartitionNotFound):  # or one of those that it cascades to was dropped
                continue
            return
        raise StoreConflict(f"table {database}.{name} is being changed by others all the time; try again")

    def _apply(
        self,
        old: HiveTable,
        planned: TableChange,
        new_name: str,
        cascade: Cascade | None,
        closed: Sequence[ClosedRecord] = (),
    ) -> None:
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
                here = TableName(old.database.catalog, old.database.name, old.name)
                named_content.rename(tx, here, TableName(owner.catalog, owner.name, new_name))
                if owner.catalog != old.database.catalog:
                    self._catalog.quotas.take(tx, owner.catalog, usage.TABLES)
                    usage.add(tx, old.database.catalog, usage.TABLES, -1)
            table = self._altered(tx, now, HiveTable(owner, new_name, entry, record), closed)
            tables.put(tx, owner.database_id, new_name, entry)
            warehouse_records.put_table(tx, table)
            kind = pb.TABLE_RENAMED if renamed else pb.TABLE_ALTERED
            mutation.tell(events.of_warehouse_table(kind, now, table))

        new = HiveTable(planned.database, new_name, entry, record)
        of_partitions = cascade(old, new) if cascade and record.partition_columns else None
        if of_partitions:
            self._partitions.alter_all(old, of_partitions, body, record.ByteSize())
        else:
            self._mutations.run(body)

    def _altered(self, tx: Transaction, old: HiveTable, new: HiveTable, closed: Sequence[ClosedRecord]) -> HiveTable:
        """The new table with its place. Partitions that start from another directory keep that held, too."""
        base = new.record.partition_base
        if (old.label, old.record.location, old.record.partition_base) != (new.label, new.record.location, base):
            reads = base_of(new)
            if reads is not None:
                self._ownership.take(tx, reads, closed=closed)
            else:
                self._ownership.leave(tx, Holder.WAREHOUSE_TABLE, new.table_id, BASE)
        elif old.record.owns_data == new.record.owns_data:
            return new
        return self._with_place(tx, new, closed)

    def drop(self, catalog: str, database: str, name: str, *, delete_data: bool) -> HiveTable:
        """With ``delete_data``, deletes the data of a table that owns them, also partitions outside its directory.

        A directory stays in which others have files. Raises DatabaseNotFound, TableNotFound, UnsupportedOperation for
        a lake table.
        """

        def body(mutation: Mutation) -> tuple[HiveTable, str]:
            tx = mutation.tx
            table = warehouse_records.load_table(tx, catalog, database, name)
            tables.clear_name(tx, table.database.database_id, table.name)
            usage.add(tx, table.database.catalog, usage.TABLES, -1)
            kept = self._leave(mutation, table, delete_data=delete_data)
            constraints.leave(mutation, table)
            tables.clear_content(tx, table.table_id)
            named_content.drop(tx, TableName(table.database.catalog, table.database.name, table.name))
            mutation.tell(events.of_warehouse_table(pb.TABLE_DROPPED, table, files_kept=bool(kept)))
            return table, kept

        dropped, kept = self._mutations.run(body)
        self._sets.forget(dropped.table_id)
        _log.info(
            "dropped a warehouse table",
            table=dropped.label,
            location=dropped.record.location,
            files=f"kept: {kept}" if kept else "deleted",
            by=caller.current(),
        )
        with deadline.within(deadline.NEVER):  # data are deleted by whoever dropped them
            self._let_partitions_leave(dropped)
            if not kept:
                directories.try_to_delete(self._store, dropped.record.location, self._mutations.clock())
        return dropped

    def _let_partitions_leave(self, dropped: HiveTable) -> None:
        try:
            partition_departures.leave_all(self._mutations, self._ownership, dropped.table_id)
        except LakemarkError as error:
            _log.warning("files of partitions are deleted later", table=dropped.label, reason=error.message)

    def _leave(self, mutation: Mutation, table: HiveTable, *, delete_data: bool) -> str:
        """The table has no place any more. Returns why its directory stays; "": it is going to be deleted."""
        tx, location = mutation.tx, table.record.location
        left = self._ownership.leave(tx, Holder.WAREHOUSE_TABLE, table.table_id, None)
        deletes = delete_data and table.record.owns_data and bool(location)
        partition_departures.begin(tx, table.table_id, deletes=deletes)
        if not delete_data:
            return "nobody asked for their deletion"
        if not deletes:
            return "the table does not own them"
        for holding in left:
            reason = "" if holding.part == BASE else self._ownership.what_keeps(tx, holding)
            if reason:
                return reason
        directories.begin_deletion(tx, location, mutation.now_ms, aside=True)
        return ""

    def truncate(self, table: HiveTable, partitions: Sequence[Partition] | None = None) -> None:
        """Deletes the files of these partitions, or of a table without partitions (None), and keeps the directories.

        The table must own its data, and nobody else may have files there. Its event is told when the files are gone:
        whoever is told finds none. Raises FailedPrecondition, TableNotFound, Unavailable.
        """
        if not table.record.owns_data:
            raise FailedPrecondition(
                f"{table.label} is an external table, or lies outside of the directories in which tables own their "
                "data: its data are not deleted"
            )

        def check(some: Sequence[Partition], tx: ReadTransaction) -> int:
            warehouse_records.require_table(tx, table)
            if partitions is None:
                reason = self._ownership.what_keeps(tx, holding_of(table))
            else:
                reason = self._partitions.what_keeps(tx, table, some)
            if reason:
                raise FailedPrecondition(f"{table.label} cannot be truncated: {reason}", table=table.label)
            return self._mutations.clock()

        located = [row for row in partitions or () if row.located]
        chunks = [located[at : at + _EMPTIED_AT_ONCE] for at in range(0, len(located), _EMPTIED_AT_ONCE)]
        if partitions is None:
            chunks = [[]]
        for chunk in chunks[1:]:  # before anything is emptied; the first one is checked when its turn comes
            self._store.read(partial(check, chunk))
        base = table.record.partition_base
        for chunk in chunks:
            locations = [row.full_location(base) for row in chunk] or [table.record.location]
            with directories.emptying(self._store, locations, partial(check, chunk)) as tenure:
                for location in locations:
                    storage.empty_directory(location, tenure.may_go_on)
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
