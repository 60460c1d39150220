"""The catalog: databases, and the definitions of lake tables. Warehouse tables are ``catalog.warehouse``."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

import structlog

from lakemark_core import storage
from lakemark_core.errors import (
    AlreadyExists,
    DatabaseNotFound,
    FilesLeft,
    InvalidArgument,
    LakemarkError,
    NotEmpty,
    StoreConflict,
    TableNotFound,
    UnknownOutcome,
)
from lakemark_core.table_kind import check_change, kind_of
from lakemark_core.types import Schema, assign_ids
from lakemark_proto.store.v1.store_pb2 import CatalogRecord, DatabaseRecord, Holder, LakeTableRecord, TableEntry
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_proto.v1 import events_pb2
from lakemark_server.admission import usage
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog import (
    catalogs,
    clean_schedule,
    databases,
    definitions,
    directories,
    engine_names,
    events,
    lake,
    named_content,
    schemas,
    search,
    tables,
)
from lakemark_server.catalog.column_ids import without_ids
from lakemark_server.catalog.dropped_tables import RETAIN_MS_DEFAULT, DroppedTables, Measure
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.named_content import TableName
from lakemark_server.catalog.names import DEFAULT_CATALOG, catalog_name, legal_name
from lakemark_server.catalog.schemas import SchemaVersion
from lakemark_server.catalog.search import TableMatches, TablePlace
from lakemark_server.context import caller
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.grants.objects import PUBLIC
from lakemark_server.kv import ReadMemo, ReadTransaction, Store, Transaction
from lakemark_server.ownership import Ownership, places
from lakemark_server.store.ids import IdSource
from lakemark_server.store.keyspace import FUNCTIONS, MOUNTS
from lakemark_server.store.mutations import Mutation, Mutations

T = TypeVar("T")

_log = structlog.get_logger(__name__)

DEFAULT_DATABASE: Final = "default"
LAKE_TABLES_KEPT: Final = 1_000


class Catalog:
    """Thread-safe. ``warehouse`` is the URI below which databases get their directories.

    The attribute ``dropped`` drops lake tables and brings them back, for ``dropped_retain_ms`` after the drop.
    ``measure`` tells how large a lake table is. ``ownership``: by default, directories in the warehouse are owned.
    ``client_catalogs``: whether clients make catalogs, also by the first database of one.
    """

    def __init__(
        self,
        store: Store,
        warehouse: str,
        clock: ClockMs = now_ms,
        quotas: Quotas | None = None,
        dropped_retain_ms: int = RETAIN_MS_DEFAULT,
        measure: Measure | None = None,
        ownership: Ownership | None = None,
        *,
        client_catalogs: bool = True,
    ) -> None:
        self.store = store
        self.quotas = quotas or Quotas(store)
        self.warehouse = storage.canonical_uri(warehouse)
        self.client_catalogs = client_catalogs
        self.clock = clock
        self.mutations = Mutations(store, clock)
        self.ownership = ownership or Ownership([self.warehouse])
        self.dropped = DroppedTables(
            self.mutations, self.quotas, self.ownership, self.warehouse, dropped_retain_ms, measure
        )
        self.database_ids = IdSource(store, "database")
        self.table_ids = IdSource(store, "table")
        self._lake_tables: ReadMemo[tuple[str, str, str], LakeTable] = ReadMemo(
            lambda tx, name: lake.get(tx, *name), entries_max=LAKE_TABLES_KEPT
        )

    def ensure_default_database(self) -> None:
        """Every metastore has a database ``default``, whose directory is the warehouse itself."""
        record = DatabaseRecord(
            catalog=DEFAULT_CATALOG,
            name=DEFAULT_DATABASE,
            description="Default Hive database",
            location=self.warehouse,
            owner=PUBLIC,
        )
        self.create_database(record, if_not_exists=True)

    # -- databases ----------------------------------------------------------------------------------------------------

    def create_database(
        self,
        record: DatabaseRecord,
        *,
        if_not_exists: bool = False,
        may_make_catalog: bool = True,
        request_id: str = "",
    ) -> DatabaseRecord:
        """Fills in id, time and (if empty) location, and makes the directory.

        ``may_make_catalog``: the database may be what makes its catalog, if clients may make catalogs at all.

        Raises AlreadyExists, InvalidName, NotFound for the catalog, QuotaExceeded.
        """
        new = DatabaseRecord()
        new.CopyFrom(record)
        new.catalog = catalog_name(record.catalog)
        new.name = legal_name("database", record.name)

        may_make = may_make_catalog and self.client_catalogs

        def look(tx: ReadTransaction) -> CatalogRecord | None:
            catalogs.require(tx, new.catalog, or_may_be_made=may_make)
            return catalogs.find(tx, new.catalog)

        defined = self.store.read(look)
        new.location = self._database_location(new, defined)
        if if_not_exists:
            existing = self.store.read(lambda tx: databases.find(tx, new.catalog, new.name))
            if existing is not None:
                return existing
        new.database_id = self.database_ids.next()
        owns = self.may_own_new(new.location) and (defined is None or new.location != defined.directory)

        def create(mutation: Mutation) -> DatabaseRecord:
            existing = databases.find(mutation.tx, new.catalog, new.name)
            if existing is not None and if_not_exists:
                return existing
            if look(mutation.tx) != defined:
                raise StoreConflict(f"catalog {new.catalog!r} is being changed by others; try again")
            self.add_database(mutation, new, owns=owns, request_id=request_id)
            return new

        kind = f"CreateDatabase {new.name}"
        return self.with_directory(
            new.location, lambda: self.mutations.once(request_id, kind, DatabaseRecord, create).answer
        )

    def may_own_new(self, location: str) -> bool:
        """Whether a new database or catalog owns its directory. Elsewhere it depends on what lies there."""
        place = places.place_of(location)
        if self.ownership.may_own_database(place, was_empty=False):
            return True
        return self.ownership.may_own_database(place, was_empty=storage.is_empty(location))

    def add_database(self, mutation: Mutation, new: DatabaseRecord, *, owns: bool, request_id: str = "") -> None:
        """Writes a new database, which has its id and location. Raises AlreadyExists, QuotaExceeded, LocationTaken."""
        if databases.find(mutation.tx, new.catalog, new.name) is not None:
            raise AlreadyExists(f"database {new.name!r} exists already", database=new.name)
        if mutation.tx.get(MOUNTS.key(new.catalog, new.name)) is not None:
            raise AlreadyExists(
                f"a database of an outside Metastore is mounted under the name {new.name!r}", database=new.name
            )
        self.quotas.take(mutation.tx, new.catalog, usage.DATABASES)
        self.take_database_place(mutation.tx, new, owns=owns)
        new.created_ms = mutation.now_ms
        databases.put(mutation.tx, new)
        mutation.tell(events.of_database(events_pb2.DATABASE_CREATED, after=new, request_id=request_id))

    def _database_location(self, record: DatabaseRecord, defined: CatalogRecord | None) -> str:
        if record.location:
            return storage.canonical_uri(record.location)
        above = self.catalog_location(record.catalog, defined)
        if defined is not None and record.name == DEFAULT_DATABASE:
            return above
        return storage.stored_uri(storage.join(above, f"{record.name}.db"))

    def catalog_location(self, catalog: str, defined: CatalogRecord | None) -> str:
        """Where databases of a catalog are made; ``defined``: what was defined of it."""
        if defined is not None:
            return defined.location
        return self.warehouse if catalog == DEFAULT_CATALOG else storage.join(self.warehouse, f"{catalog}.catalog")

    def take_database_place(self, tx: Transaction, record: DatabaseRecord, *, owns: bool) -> None:
        """Raises LocationTaken."""
        claim = places.holding(record.location, Holder.DATABASE, record.database_id, record.name, owns=owns)
        self.ownership.take(tx, claim)

    def get_database(self, catalog: str, name: str) -> DatabaseRecord:
        return self.store.read(lambda tx: databases.get(tx, catalog, name))

    def list_databases(self, catalog: str, *, after: str = "", limit: int = 0) -> list[DatabaseRecord]:
        return self.store.read(lambda tx: databases.listed(tx, catalog, after=after, limit=limit))

    def drop_database(
        self, catalog: str, name: str, *, if_exists: bool = False, delete_data: bool = True, request_id: str = ""
    ) -> None:
        """Drops a database that is empty, and with ``delete_data`` also its directory.

        The directory stays if the database does not own it, or if somebody else has files in it, as a table that was
        renamed into another database, or one that was dropped and can be brought back. Raises DatabaseNotFound,
        NotEmpty; FilesLeft if the database is dropped but its directory is not deleted.
        """
        require_droppable(catalog, name)

        def drop(mutation: Mutation) -> DatabaseRecord:
            record = databases.find(mutation.tx, catalog, name)
            if record is None:
                if if_exists:
                    return DatabaseRecord()
                raise DatabaseNotFound(f"there is no database {name!r}", database=name)
            self.remove_database(mutation, record, delete_data=delete_data, request_id=request_id)
            return record

        record, repeated = self.mutations.once(request_id, f"DropDatabase {name}", DatabaseRecord, drop)
        if record.database_id and not repeated:
            _log.info("dropped a database", database=record.name, location=record.location, by=caller.current())
        if delete_data and record.location:
            try:
                directories.finish_deletion(self.store, record.location, self.mutations.clock())
            except LakemarkError as error:  # it says that nothing was applied, which holds for the files only
                raise FilesLeft(
                    f"database {name!r} is dropped, but not its directory: {error.message}; ask again with the same "
                    "request id, or it is done within minutes",
                    location=record.location,
                ) from error

    def remove_database(
        self, mutation: Mutation, record: DatabaseRecord, *, delete_data: bool, request_id: str = ""
    ) -> None:
        """Drops an empty database. Its directory is closed, to be deleted after the commit. Raises NotEmpty."""
        tx = mutation.tx
        _check_empty(tx, record)
        databases.clear(tx, record)
        named_content.drop_database(tx, record.catalog, record.name)
        usage.add(tx, record.catalog, usage.DATABASES, -1)
        for holding in self.ownership.leave(tx, Holder.DATABASE, record.database_id):
            if delete_data and holding.owns and not self.ownership.what_keeps(tx, holding):
                directories.begin_deletion(tx, record.location, mutation.now_ms, aside=True)
        mutation.tell(events.of_database(events_pb2.DATABASE_DROPPED, before=record, request_id=request_id))

    # -- lake tables --------------------------------------------------------------------------------------------------

    def create_lake_table(
        self, record: LakeTableRecord, schema: Schema, *, if_not_exists: bool = False, request_id: str = ""
    ) -> LakeTable:
        """Fills in ids, time and (if empty) location; the rest of ``record`` is taken as it is given.

        Raises AlreadyExists, DatabaseNotFound, InvalidName, InvalidSchema, InvalidArgument.
        """
        new = LakeTableRecord()
        new.CopyFrom(record)
        new.catalog = catalog_name(record.catalog)
        new.name = legal_name("table", record.name)
        new.database = record.database.lower()
        engine_names.check_set(new.properties)
        lake.check_properties(new.properties)
        new.properties[lake.TYPE_PROPERTY] = "lake"
        # Ids chosen by a client would collide with those that statistics refer to.
        first, new.last_column_id = assign_ids(without_ids(schema))
        first = replace(first, schema_id=1)
        kind_of(new.properties).check(first)
        lake.check_columns(new.properties, first)
        engine_names.check_columns(first)
        new.schema_id = 1
        database = self.get_database(new.catalog, new.database)
        new.external = bool(record.location)
        new.location = storage.canonical_uri(record.location) if record.location else _own_directory(database, new.name)
        new.table_id = self.table_ids.next()

        def create(mutation: Mutation) -> LakeTableRecord:
            tx = mutation.tx
            owner = databases.get(tx, new.catalog, new.database)
            entry = tables.find(tx, owner.database_id, new.name)
            if entry is not None and if_not_exists and entry.kind == pb.LAKE:
                return lake.get_record(tx, entry.table_id)
            if entry is not None:
                raise AlreadyExists(f"table {new.database}.{new.name} exists already", table=new.name)
            self.quotas.take(tx, new.catalog, usage.TABLES)
            new.created_ms = mutation.now_ms
            self.ownership.take(tx, lake.holding(new), database_id=owner.database_id, chosen=not new.external)
            entry = TableEntry(table_id=new.table_id, kind=pb.LAKE, hive_type="VIRTUAL_VIEW")
            tables.put(tx, owner.database_id, new.name, entry)
            lake.put(tx, new)
            clean_schedule.follow(tx, new, mutation.now_ms)
            lake.put_schema(tx, new.table_id, first)
            made = definitions.lake_table(LakeTable(new, first))
            mutation.tell(events.of_lake_table(events_pb2.TABLE_CREATED, after=made, request_id=request_id))
            return new

        kind = f"CreateTable {new.database}.{new.name}"
        table = self.with_directory(new.location, lambda: self._change(request_id, kind, create), own=not new.external)
        if table.record.location != new.location:  # it was there before
            storage.remove_if_empty(new.location)
        return table

    def get_lake_table(self, catalog: str, database: str, name: str) -> LakeTable:
        """A table that is shared with other callers, who must not change it.

        Raises DatabaseNotFound, TableNotFound, UnsupportedOperation for a warehouse table.
        """
        return self.store.read(lambda tx: self._lake_tables.get(tx, (catalog, database, name)))

    def lake_table_by_id(self, table_id: int, schema_id: int) -> LakeTable | None:
        """The table with one of its schemas; also if it was dropped but can be brought back. None: there is none."""

        def body(tx: ReadTransaction) -> LakeTable | None:
            try:
                record = lake.get_record(tx, table_id, or_dropped=True)
            except TableNotFound:
                return None
            return LakeTable(record, lake.get_schema(tx, table_id, schema_id))

        return self.store.read(body)

    def lake_record(self, table_id: int) -> LakeTableRecord:
        """The definition of a lake table. Raises TableNotFound if it was dropped."""
        return self.store.read(lambda tx: lake.get_record(tx, table_id))

    def schemas(self, table: LakeTable) -> list[SchemaVersion]:
        """All schemas that the table has had, the latest one last. Raises TableNotFound if it was dropped."""

        def body(tx: ReadTransaction) -> list[SchemaVersion]:
            lake.get_record(tx, table.table_id)
            return schemas.all_of(tx, table)

        return self.store.read(body)

    def set_properties(
        self,
        catalog: str,
        database: str,
        name: str,
        set_: Mapping[str, str],
        remove: Iterable[str] = (),
        *,
        request_id: str = "",
    ) -> LakeTable:
        """Sets and removes properties of a lake table; the property ``comment`` is the table's comment, as in Hive.

        Raises InvalidArgument for an unknown ``lakemark.`` property, an illegal value, or a change of a property that
        a table keeps.
        """
        removed = set(remove)
        engine_names.check_set(set_)

        def change(mutation: Mutation) -> LakeTableRecord:
            table = lake.get(mutation.tx, catalog, database, name)
            record, before = table.record, definitions.lake_table(table)
            properties = {key: value for key, value in record.properties.items() if key not in removed} | dict(set_)
            if properties.get(lake.TYPE_PROPERTY) != "lake":
                raise InvalidArgument(f"{lake.TYPE_PROPERTY} of a table cannot be changed")
            check_change(record.properties, properties)
            lake.check_properties(properties)
            lake.check_columns(properties, table.schema)
            if "comment" in removed or "comment" in properties:
                record.comment = properties.pop("comment", "")
            record.properties.clear()
            record.properties.update(properties)
            lake.put(mutation.tx, record)
            clean_schedule.follow(mutation.tx, record, mutation.now_ms)
            after = definitions.lake_table(table)
            mutation.tell(events.of_lake_table(events_pb2.TABLE_ALTERED, before, after, request_id=request_id))
            return record

        return self._change(request_id, f"SetTableProperties {database}.{name}", change)

    def rename_lake_table(
        self, catalog: str, database: str, name: str, new_database: str, new_name: str, *, request_id: str = ""
    ) -> LakeTable:
        """Changes the table's name and database. Its directory stays where it is."""
        target = legal_name("table", new_name)

        def rename(mutation: Mutation) -> LakeTableRecord:
            tx = mutation.tx
            owner, entry = tables.get(tx, catalog, database, name)
            lake.require_lake(entry, database, name)
            new_owner = databases.get(tx, catalog, new_database or database)
            if tables.find(tx, new_owner.database_id, target) is not None:
                raise AlreadyExists(f"table {new_owner.name}.{target} exists already", table=target)
            table = lake.load(tx, entry.table_id)
            record, before = table.record, definitions.lake_table(table)
            record.database, record.name = new_owner.name, target
            tables.clear_name(tx, owner.database_id, name.lower())
            tables.put(tx, new_owner.database_id, target, entry)
            here = TableName(owner.catalog, owner.name, name.lower())
            named_content.rename(tx, here, TableName(new_owner.catalog, new_owner.name, target))
            lake.put(tx, record)
            self.ownership.rename(tx, Holder.LAKE_TABLE, record.table_id, f"{record.database}.{record.name}")
            after = definitions.lake_table(table)
            mutation.tell(events.of_lake_table(events_pb2.TABLE_RENAMED, before, after, request_id=request_id))
            return record

        return self._change(request_id, f"RenameTable {database}.{name} to {new_database}.{target}", rename)

    def _change(self, request_id: str, kind: str, change: Callable[[Mutation], LakeTableRecord]) -> LakeTable:
        """Changes a lake table once. Raises TableNotFound if the table of a repeated request was dropped since."""

        def body(mutation: Mutation) -> LakeTable:
            record = mutation.once(request_id, kind, LakeTableRecord, change).answer
            lake.get_record(mutation.tx, record.table_id)
            return LakeTable(record, lake.get_schema(mutation.tx, record.table_id, record.schema_id))

        return self.mutations.run(body)

    # -- both kinds ---------------------------------------------------------------------------------------------------

    def list_tables(
        self, catalog: str, database: str, *, prefix: str = "", after: str = "", limit: int = 0
    ) -> list[tuple[str, TableEntry]]:
        """Names and entries of lake and warehouse tables, in order of name, beginning behind ``after``.

        ``prefix``: only those whose names begin so, in lower case.
        """

        def body(tx: ReadTransaction) -> list[tuple[str, TableEntry]]:
            owner = databases.get(tx, catalog, database)
            return tables.listed(tx, owner.database_id, prefix=prefix, after=after, limit=limit)

        return self.store.read(body)

    def find_tables(
        self, catalog: str, text: str = "", after: TablePlace = search.BEGINNING, *, limit: int
    ) -> TableMatches:
        """Lake and warehouse tables of all databases whose name contains ``text``, in order, behind ``after``."""
        return self.store.read(lambda tx: search.find_tables(tx, catalog, text, after, limit=limit))

    def list_catalogs(self) -> list[str]:
        """The names of all catalogs that are visible, in order."""
        return self.store.read(catalogs.visible)

    def with_directory(self, location: str, create: Callable[[], T], *, own: bool = False) -> T:
        """Makes the directory, then runs ``create``; if that fails, a directory that was made is removed again.

        ``own``: nobody else can have chosen this directory.
        """
        made = storage.make_directory(location)
        try:
            return create()
        except LakemarkError as error:
            # A creation that was first, or one of unknown outcome, may be using the directory by now.
            in_use = UnknownOutcome if own else AlreadyExists | UnknownOutcome
            if made and not isinstance(error, in_use):
                storage.remove_if_empty(location)
            raise


def require_droppable(catalog: str, name: str) -> None:
    """Raises InvalidArgument for the one database that every metastore has."""
    if (catalog_name(catalog), name.lower()) == (DEFAULT_CATALOG, DEFAULT_DATABASE):
        raise InvalidArgument("the database 'default' of the catalog 'hive' cannot be dropped: empty it instead")


def _own_directory(database: DatabaseRecord, name: str) -> str:
    """A directory that no other table ever has: a dropped table keeps its own when another one takes its name."""
    return storage.stored_uri(storage.join(database.location, f"{name}-{secrets.token_hex(4)}"))


def _check_empty(tx: Transaction, record: DatabaseRecord) -> None:
    names = [name for name, _ in tables.listed(tx, record.database_id, limit=4)]
    if names:
        raise NotEmpty(
            f"database {record.name!r} is not empty: it has the tables {', '.join(names[:3])}"
            + (" and more" if len(names) > 3 else ""),
            database=record.name,
        )
    if tx.get_range(*FUNCTIONS.range(record.database_id), limit=1):
        raise NotEmpty(f"database {record.name!r} is not empty: it has functions", database=record.name)
