"""Our objects as an outside Metastore is to have them.

A warehouse table is what it is, except that it never owns its data there: a managed table is an external one. A lake
table is a plain external parquet table of the latest version of main, with a partition for each file slice, as the
facade shows it in its hidden tables (``lake.tables``): a last partition key makes the names of partitions unique.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from lakemark_core.errors import DatabaseNotFound, FunctionNotFound, NotFound, TableNotFound, VersionNotFound
from lakemark_core.storage import in_scheme
from lakemark_core.types import parse_partition_name, partition_name
from lakemark_hms.lake import tables
from lakemark_hms.lake.scans import is_plain, only_scan
from lakemark_hms.lake.slices import slices_of
from lakemark_hms.listener.decisions import EXTERNAL, VIEW
from lakemark_hms.objects import MANAGED, database_struct, is_true
from lakemark_hms.partition_objects import full_struct
from lakemark_hms.wire.codec import decode_struct
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE
from lakemark_server.catalog.functions import Functions
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_records import HiveTable, Values
from lakemark_server.file_index.parts.changes import added_between, removed_between
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.planning.merge_on_read import base_files, merged_on_read
from lakemark_server.snapshots.service import SnapshotReference, Snapshots, TableSnapshot
from lakemark_thrift.ttypes import Database, FieldSchema, Function, Partition, Table

PAGE: Final = 500
_MERGE_ON_READ: Final = (
    "version {version} has delta files, which a plain parquet table cannot merge: the outside table stays at its "
    "version; compact the table"
)
_SCHEMAS: Final = (
    "files of version {version} were written with other names or types of columns, which a plain parquet table cannot "
    "show: the outside table stays at its version; rewrite the files (compaction or clustering)"
)
_TRANSACTIONAL: Final = "it is a transactional table of Hive, which no external table can stand for"


@dataclass(frozen=True)
class WarehouseSide:
    """A warehouse table with its partitions. ``problem``: why it cannot be mirrored; "" if it can be."""

    table: Table
    table_id: int
    problem: str
    hive: HiveTable
    warehouse: Warehouse

    def some(self, values: Collection[Values]) -> dict[str, Partition]:
        """The partitions with these values that exist, by name."""
        rows = self.warehouse.partitions.named(self.hive, list(values))
        return {self.hive.partition_name(row.values): self._partition(full_struct(self.hive, row)) for row in rows}

    def pages(self) -> Iterator[dict[str, Partition]]:
        """All partitions, ``PAGE`` at a time, by name."""
        rows = self.warehouse.partitions.all(self.hive).rows if self.hive.columns else ()
        for at in range(0, len(rows), PAGE):
            yield {
                self.hive.partition_name(row.values): self._partition(full_struct(self.hive, row))
                for row in rows[at : at + PAGE]
            }

    def _partition(self, struct: bytes) -> Partition:
        partition = decode_struct(Partition, struct)
        partition.catName = partition.privileges = None
        return partition


@dataclass(frozen=True)
class LakeSide:
    """The latest version of main of a lake table."""

    latest: TableSnapshot
    location: str

    @property
    def table_id(self) -> int:
        return self.latest.table.table_id

    @property
    def version(self) -> int:
        return self.latest.snapshot.version

    @cached_property
    def problem(self) -> str:
        """Why this version cannot be a plain parquet table; "" if it can."""
        snapshot = self.latest.snapshot
        if merged_on_read(snapshot) is not None:
            return _MERGE_ON_READ.format(version=snapshot.version)
        if not is_plain(snapshot):
            return _SCHEMAS.format(version=snapshot.version)
        return ""

    @cached_property
    def table(self) -> Table:
        record, snapshot = self.latest.table.record, self.latest.snapshot
        table = tables.hidden(
            self.latest.table, record.name, self.location, only_scan(snapshot.schema), base_files(snapshot)
        )
        own = {name: value for name, value in record.properties.items() if not name.lower().startswith("lakemark.")}
        table.parameters = own | (table.parameters or {}) | ({"comment": record.comment} if record.comment else {})
        table.catName = None
        return table

    @property
    def _data_columns(self) -> list[FieldSchema] | None:
        return self.table.sd.cols if self.table.sd is not None else None

    @property
    def statistics(self) -> dict[str, str]:
        """Parameters that tell engines how large the version is."""
        return {name: value for name, value in (self.table.parameters or {}).items() if "statistics" in name}

    @property
    def columns(self) -> Sequence[str]:
        return [key.name or "" for key in self.table.partitionKeys or ()]

    def pages(self) -> Iterator[dict[str, Partition]]:
        """A partition for each file slice, ``PAGE`` at a time, by name."""
        return self._pages(self.latest.snapshot)

    def names(self, snapshot: Snapshot) -> Iterator[str]:
        """Names of the partitions of all file slices of a snapshot."""
        for part in base_files(snapshot).parts:
            for values, _ in slices_of(part):
                yield partition_name(self.columns, values)

    def changes(self, snapshots: Snapshots, since: int) -> tuple[Iterator[dict[str, Partition]], Iterator[str]] | None:
        """The partitions added since a version, and the names of those removed; None if that is not known any more."""
        try:
            older = snapshots.load_beside(self.latest, since)
        except VersionNotFound:
            return None
        newer = self.latest.snapshot
        return self._pages(added_between(older, newer)), self.names(removed_between(older, newer))

    def _pages(self, snapshot: Snapshot) -> Iterator[dict[str, Partition]]:
        page: dict[str, Partition] = {}
        for part in base_files(snapshot).parts:
            for values, directory in slices_of(part):
                page[partition_name(self.columns, values)] = self._partition(values, directory)
                if len(page) == PAGE:
                    yield page
                    page = {}
        if page:
            yield page

    def _partition(self, values: Values, directory: str) -> Partition:
        record = self.latest.table.record
        storage = tables.parquet_storage(self._data_columns, f"{self.location}/{directory}")
        return Partition(
            values=list(values),
            dbName=record.database,
            tableName=record.name,
            createTime=0,
            lastAccessTime=0,
            sd=storage,
            parameters={},
        )


class Ours:
    """Looks up what a catalog has, in the form for outside. ``engine_schemes``: see ``lakemark_hms.services``."""

    def __init__(
        self, catalog: Catalog, warehouse: Warehouse, snapshots: Snapshots, engine_schemes: Mapping[str, str], name: str
    ) -> None:
        self.catalog_name = name
        self.snapshots = snapshots
        self._catalog = catalog
        self._warehouse = warehouse
        self._functions: Functions = warehouse.functions
        self._schemes = engine_schemes

    def databases(self) -> Iterator[str]:
        """The names of all databases, in order."""
        after = ""
        while True:
            page = self._catalog.list_databases(self.catalog_name, after=after, limit=PAGE)
            yield from (record.name for record in page)
            if len(page) < PAGE:
                return
            after = page[-1].name

    def tables(self, database: str) -> Iterator[str]:
        """The names of a database's tables, in order; none if it was dropped."""
        after = ""
        while True:
            try:
                page = self._catalog.list_tables(self.catalog_name, database, after=after, limit=PAGE)
            except DatabaseNotFound:
                return
            yield from (name for name, _ in page)
            if len(page) < PAGE:
                return
            after = page[-1][0]

    def functions(self, database: str) -> list[str]:
        """The names of a database's functions; none if it was dropped."""
        try:
            return list(self._functions.listed(self.catalog_name, database, lambda _: True))
        except DatabaseNotFound:
            return []

    def database(self, name: str) -> Database | None:
        try:
            record: DatabaseRecord = self._catalog.get_database(self.catalog_name, name)
        except DatabaseNotFound:
            return None
        database = decode_struct(Database, database_struct(record, in_scheme(record.location, self._schemes)))
        database.catalogName = database.privileges = database.managedLocationUri = None
        return database

    def table(self, database: str, name: str) -> WarehouseSide | LakeSide | None:
        """None if there is no such table."""
        try:
            _, entry, hive = self._warehouse.tables.look_up(self.catalog_name, database, name)
            if entry is None:
                return None
            if entry.kind == WAREHOUSE:
                return None if hive is None else self._warehouse_table(hive)
            latest = self.snapshots.again(
                lambda: self.snapshots.snapshot(self.catalog_name, database, name, SnapshotReference())
            )
        except (DatabaseNotFound, TableNotFound):
            return None
        return LakeSide(latest, in_scheme(latest.table.record.location, self._schemes))

    def _warehouse_table(self, hive: HiveTable) -> WarehouseSide:
        table = decode_struct(Table, hive.record.hive)
        parameters = {
            name: value for name, value in (table.parameters or {}).items() if name.lower() != "external.table.purge"
        }
        problem = _TRANSACTIONAL if is_true(parameters, "transactional") else ""
        if (table.tableType or MANAGED) in (MANAGED, EXTERNAL):
            table.tableType = EXTERNAL
            parameters["EXTERNAL"] = "TRUE"
        table.parameters = parameters
        table.catName = table.privileges = table.temporary = None
        table.id = table.writeId = None  # they are those of this service
        return WarehouseSide(table, hive.table_id, problem, hive, self._warehouse)

    def function(self, database: str, name: str) -> Function | None:
        try:
            stored = self._functions.get(self.catalog_name, database, name)
        except (DatabaseNotFound, FunctionNotFound, NotFound):
            return None
        function = decode_struct(Function, stored)
        function.catName = None
        return function


def is_view(table: Table) -> bool:
    """Whether the table has no files of its own."""
    return table.tableType == VIEW


def values_of_partition(name: str) -> Values:
    """The values in ``month=1/origin=JFK``."""
    return tuple(value for _, value in parse_partition_name(name))
