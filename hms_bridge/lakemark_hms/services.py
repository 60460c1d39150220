"""What all handlers share: the domains, and how a name becomes a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakemark_core import storage
from lakemark_core.errors import TableNotFound
from lakemark_hms.facet import LakeFacet, is_hidden, lake_write_error
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.names import DatabaseName
from lakemark_hms.partition_objects import view_of
from lakemark_hms.partition_view import PartitionView
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_server.timeline.service import Timeline


@dataclass(frozen=True, slots=True)
class Found:
    """What a name leads to: a warehouse table (``hive``), or else something of the lake."""

    database: DatabaseRecord
    name: str
    entry: TableEntry | None
    hive: HiveTable | None


@dataclass(frozen=True, slots=True)
class Services:
    """``lake`` is None where lake tables cannot be read; ``config`` answers ``get_config_value``.

    ``engine_schemes``: in which schemes engines read the locations of databases and of what is of the lake, by the
    schemes that these have. The locations of warehouse tables are answered as they were sent.
    """

    catalog: Catalog
    warehouse: Warehouse
    timeline: Timeline
    lake: LakeFacet | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    engine_schemes: Mapping[str, str] = field(default_factory=dict)

    def for_engines(self, location: str) -> str:
        """A location in the scheme that engines read."""
        return storage.in_scheme(location, self.engine_schemes)

    def now(self) -> int:
        """In seconds, as Hive counts."""
        return self.catalog.clock() // 1000

    def find(self, database: DatabaseName, table: str | None) -> Found:
        """Raises DatabaseNotFound, and TableNotFound unless the name may be one that only the lake facet knows."""
        name = (table or "").lower()
        owner, entry, hive = self.warehouse.tables.look_up(*database, name)
        if entry is None and not is_hidden(name):
            raise TableNotFound(f"{owner.name}.{name} table not found", table=f"{owner.name}.{name}")
        return Found(owner, name, entry, hive)

    def hive_table(self, database: DatabaseName, table: str | None) -> HiveTable:
        """For changes. Raises DatabaseNotFound, TableNotFound, and UnsupportedOperation for what is of the lake."""
        found = self.find(database, table)
        if found.hive is None:
            raise lake_write_error(found.database.name, found.name)
        return found.hive

    def table_struct(self, found: Found) -> bytes:
        """The serialized Thrift Table. Raises TableNotFound."""
        if found.hive is not None:
            return found.hive.record.hive
        struct = None
        if self.lake is not None:
            struct = self.lake.get_table(found.database, found.name)
        if struct is None:
            raise _not_found(found)
        return struct

    def partitions(self, found: Found) -> PartitionView:
        """All partitions. Raises TableNotFound."""
        if found.hive is not None:
            return view_of(found.hive, self.warehouse.partitions.all(found.hive))
        return self._lake_partitions(found, PartitionFilter(""))

    def filtered(self, found: Found, filter_text: str) -> tuple[PartitionView, Sequence[int]]:
        """Partitions, and where those that the filter selects stand among them. Raises TableNotFound."""
        selection = PartitionFilter(filter_text)
        if found.hive is not None:
            view = self.partitions(found)
            return view, view.matching(selection)
        view = self._lake_partitions(found, selection)
        return view, range(len(view))

    def _lake_partitions(self, found: Found, selection: PartitionFilter) -> PartitionView:
        view = None
        if self.lake is not None:
            view = self.lake.partitions(found.database, found.name, selection)
        if view is None:
            raise _not_found(found)
        return view


def _not_found(found: Found) -> TableNotFound:
    label = f"{found.database.name}.{found.name}"
    return TableNotFound(f"{label} table not found", table=label)
