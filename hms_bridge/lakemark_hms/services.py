"""What all handlers share: the domains, and the look-up of tables by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakemark_core import storage
from lakemark_core.errors import InvalidPartition, TableNotFound
from lakemark_core.types import format_type
from lakemark_hms.doors.facade import DoorFacade, NamedDoor, door_error
from lakemark_hms.facet import LakeFacet, is_hidden, lake_write_error
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.given import table_of_partitions
from lakemark_hms.names import DatabaseName
from lakemark_hms.notifications.formats import JSON, MessageFormat
from lakemark_hms.partition_objects import view_of
from lakemark_hms.partition_view import PartitionView, Values
from lakemark_hms.tokens import TokenDesk
from lakemark_hms.wire.dispatch import Session
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_server.grants.service import Grants
from lakemark_server.kv import lasts
from lakemark_server.timeline.service import Timeline
from lakemark_server.transactions.service import Transactions


@dataclass(frozen=True, slots=True)
class NamedTable:
    """What a name stands for: a warehouse table (``hive``), a ``door``, or else a lake table or a view of one."""

    database: DatabaseRecord
    name: str
    entry: TableEntry | None
    hive: HiveTable | None
    door: NamedDoor | None = None


@dataclass(frozen=True, slots=True)
class Services:
    """The domains. ``lake`` is None if lake tables cannot be read; ``config`` answers ``get_config_value``.

    ``engine_schemes`` says in which scheme engines read the locations of databases and lake tables, by the scheme that
    these have. The locations of warehouse tables are answered as they were sent. ``notification_format``: in which form
    the messages of notifications are. ``partitions_max``: of partitions in one answer; a request for more is refused
    (0: none is). ``doors``: None if rows cannot come into lake tables through this protocol. ``tokens``: None if
    clients cannot log in with delegation tokens.
    """

    catalog: Catalog
    warehouse: Warehouse
    timeline: Timeline
    transactions: Transactions
    grants: Grants
    lake: LakeFacet | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    engine_schemes: Mapping[str, str] = field(default_factory=dict)
    notification_format: MessageFormat = JSON
    partitions_max: int = 0
    doors: DoorFacade | None = None
    tokens: TokenDesk | None = None

    def for_engines(self, location: str) -> str:
        """A location in the scheme that engines read."""
        return storage.in_scheme(location, self.engine_schemes)

    def now(self) -> int:
        """The time in seconds, as Hive counts it."""
        return self.catalog.clock() // 1000

    def find(self, database: DatabaseName, table: str | None) -> NamedTable:
        """Looks a table up. Raises DatabaseNotFound, and TableNotFound unless only the lake facet can know the name."""
        name = (table or "").lower()
        owner, entry, hive = self.warehouse.tables.look_up(*database, name)
        door = None
        if entry is None and not is_hidden(name):
            door = self.doors.find(owner, name) if self.doors is not None else None
            if door is None:
                raise TableNotFound(f"{owner.name}.{name} table not found", table=f"{owner.name}.{name}")
        return NamedTable(owner, name, entry, hive, door)

    def find_partitioned(self, database: str | None, table: str | None, catalog: str | None = None) -> NamedTable:
        """Like ``find``, of names as clients send them. Raises InvalidPartition for those that were not sent."""
        return self.find(*table_of_partitions(database, table, catalog))

    def check_number(self, partitions: int) -> None:
        """Raises InvalidPartition if an answer would have more partitions than one may have."""
        if 0 < self.partitions_max < partitions:
            raise InvalidPartition(
                f"the answer would have {partitions} partitions; at most {self.partitions_max} are given at once "
                "(hms_partitions_max): ask for fewer, by names or a filter"
            )

    def hive_table(self, database: DatabaseName, table: str | None) -> HiveTable:
        """The warehouse table. Raises DatabaseNotFound, TableNotFound, UnsupportedOperation for a lake table."""
        return self.require_hive(self.find(database, table))

    def require_hive(self, named: NamedTable) -> HiveTable:
        """The warehouse table. Raises UnsupportedOperation for any other one."""
        if named.door is not None:
            raise door_error(named.door)
        if named.hive is None:
            raise lake_write_error(named.database.name, named.name)
        return named.hive

    def table_struct(self, named: NamedTable, session: Session | None = None) -> bytes:
        """The serialized Thrift Table. Raises TableNotFound. A door is given to the client of the ``session``."""
        if named.hive is not None:
            lasts()
            return named.hive.record.hive
        if named.door is not None and self.doors is not None:
            return self.doors.table(named.door, session)
        struct = None
        if self.lake is not None:
            struct = self.lake.get_table(named.database, named.name)
        if struct is None:
            raise _not_found(named)
        return struct

    def partitions(self, named: NamedTable) -> PartitionView:
        """All partitions. Raises TableNotFound."""
        if named.hive is not None:
            return view_of(named.hive, self.warehouse.partitions.all(named.hive))
        return self._lake_partitions(named, PartitionFilter(""))

    def filtered(
        self, named: NamedTable, filter_text: str, *, exact: bool = False
    ) -> tuple[PartitionView, Sequence[int]]:
        """Partitions, and where those that the filter selects stand among them. Raises TableNotFound.

        Of a filter that is not understood all are selected, unless the answer must be ``exact``: then InvalidPredicate
        is raised. A filter by what is no partition column is an error, too.
        """
        selection = PartitionFilter(filter_text, exact=exact)
        if named.hive is not None:
            lasts()  # the counter of the table's changes of partitions is read with them
            view = self.partitions(named)
            return view, view.matching(selection)
        view = self._lake_partitions(named, selection)
        return view, range(len(view))

    def named_slices(self, named: NamedTable, view: PartitionView, wanted: Sequence[Values]) -> PartitionView:
        """The wanted partitions of a lake table among those of ``view``, and those replaced since a client listed them.

        ``view`` has all partitions of the latest version.
        """
        missing = [values for values in wanted if not view.at(values)]
        present = view.only([at for values in wanted for at in view.at(values)])
        older = self.lake.replaced(named.database, named.name, missing) if missing and self.lake is not None else None
        return present if older is None else present.followed_by(older)

    def table_type(self, entry: TableEntry) -> str:
        """Hive's word for what a table is to the clients of this port."""
        return self.lake.table_type if entry.kind != WAREHOUSE and self.lake is not None else entry.hive_type

    def _lake_partitions(self, named: NamedTable, selection: PartitionFilter) -> PartitionView:
        if named.door is not None:
            fields = named.door.table.schema.partition_fields
            return PartitionView(
                [one.name.lower() for one in fields], [format_type(one.type) for one in fields], [], []
            )
        view = None
        if self.lake is not None:
            view = self.lake.partitions(named.database, named.name, selection)
        if view is None:
            raise _not_found(named)
        return view


def _not_found(named: NamedTable) -> TableNotFound:
    label = f"{named.database.name}.{named.name}"
    return TableNotFound(f"{label} table not found", table=label)
