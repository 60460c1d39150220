"""Which objects a listener mirrors, and which of them events make worth a look. Pure.

An event only says where to look. What is to be done there follows from the objects as they are when they are looked
at, so a look that comes late, or twice, does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lakemark_hms.wire.codec import decode_struct
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_server.catalog.warehouse_records import Values
from lakemark_server.events.filters import EventFilter, ObjectName, fits
from lakemark_thrift.ttypes import Table

_DATABASES: Final = frozenset({pb.DATABASE_CREATED, pb.DATABASE_ALTERED, pb.DATABASE_DROPPED})
_TABLES: Final = frozenset(
    {pb.TABLE_CREATED, pb.TABLE_ALTERED, pb.TABLE_RENAMED, pb.TABLE_DROPPED, pb.TABLE_UNDROPPED, pb.TABLE_PURGED}
)
_PARTITIONS: Final = frozenset({pb.PARTITIONS_ADDED, pb.PARTITIONS_ALTERED, pb.PARTITIONS_DROPPED})
_FUNCTIONS: Final = frozenset({pb.FUNCTION_CREATED, pb.FUNCTION_ALTERED, pb.FUNCTION_DROPPED})
_MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class Selection:
    """The databases and tables that fit the patterns of a listener."""

    filter: EventFilter

    def table(self, database: str, name: str) -> bool:
        return self._fits(ObjectName(database, name))

    def whole_database(self, name: str) -> bool:
        """Whether the database itself is mirrored, with its functions, even while it has no tables."""
        return self._fits(ObjectName(name, ""))

    def reaches_into(self, database: str) -> bool:
        """Whether tables of the database can be mirrored."""
        patterns = self.filter.patterns
        return not patterns or any(fits(pattern.database, database) for pattern in patterns)

    def _fits(self, name: ObjectName) -> bool:
        return not self.filter.patterns or any(pattern.fits(name) for pattern in self.filter.patterns)


class Rename(NamedTuple):
    """A table got another name. Names are a database and a table."""

    before: tuple[str, str]
    after: tuple[str, str]


@dataclass(slots=True)
class Looks:
    """Where to look.

    ``tables``: by database and table, the values of partitions to look at; None: all of them. ``everything``: the
    events do not tell.
    """

    databases: set[str] = field(default_factory=set)
    tables: dict[tuple[str, str], set[Values] | None] = field(default_factory=dict)
    functions: set[tuple[str, str]] = field(default_factory=set)
    renames: list[Rename] = field(default_factory=list)
    everything: bool = False

    def add(self, event: pb.Event) -> None:
        """Adds what the event makes worth a look."""
        kind = event.kind
        if kind in _DATABASES:
            self.databases.add(event.database)
        elif kind in _TABLES:
            self._table(event)
        elif kind in _PARTITIONS:
            self._partitions(event)
        elif kind == pb.SCHEMA_CHANGED or (kind == pb.COMMITTED and event.commit.branch in ("", _MAIN)):
            self._look((event.database, event.table), ())
        elif kind in _FUNCTIONS:
            change = event.function_change
            names = {change.name_before, change.name_after} - {""}
            self.functions |= {(event.database, name) for name in names}
        elif kind == pb.STORE_RESTORED:
            self.everything = True

    def _table(self, event: pb.Event) -> None:
        change = event.table_change
        names = [
            (state.name.database, state.name.table)
            for state, there in ((change.before, change.HasField("before")), (change.after, change.HasField("after")))
            if there
        ]
        for name in names or [(event.database, event.table)]:
            self._look(name, () if event.kind == pb.TABLE_ALTERED and not _reaches_partitions(change) else None)
        if event.kind == pb.TABLE_RENAMED and len(names) == 2:
            self.renames.append(Rename(names[0], names[1]))

    def _partitions(self, event: pb.Event) -> None:
        change = event.partitions_change
        table = (event.database, event.table)
        if len(change.partitions) != change.count:
            self._look(table, None)
            return
        self._look(table, [tuple(one.values) for one in change.partitions])
        self._look(table, [tuple(one.values_before) for one in change.partitions if one.values_before])

    def _look(self, table: tuple[str, str], values: Iterable[Values] | None) -> None:
        known = self.tables.get(table, set())
        self.tables[table] = None if values is None or known is None else known | set(values)


def _reaches_partitions(change: pb.TableChange) -> bool:
    """Whether partitions may have changed with their table, for which there are no events of their own."""
    if change.before.location != change.after.location:
        return True
    if not change.hive_before or not change.hive_after:
        return False
    before, after = decode_struct(Table, change.hive_before), decode_struct(Table, change.hive_after)
    return before.sd != after.sd


def looks_of(events: Iterable[pb.Event]) -> Looks:
    """Where several events make it worth to look, each place once."""
    looks = Looks()
    for event in events:
        looks.add(event)
    return looks
