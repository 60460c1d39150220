"""Looks at both sides of an object and carries out what was decided about it.

Nothing is remembered between two looks except the digests of functions, so a mirror may stop anywhere and another one
goes on. Partitions travel in pages; of one table at a time the names of its partitions there are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, TypeAlias, TypeVar

from lakemark_core.errors import LakemarkError, Unavailable
from lakemark_core.types import partition_name
from lakemark_hms.listener.decisions import (
    Decision,
    Owner,
    decide_database,
    decide_function,
    decide_partitions,
    decide_progress,
    decide_rename,
    decide_table,
)
from lakemark_hms.listener.facts import EPOCH_MARK, VERSION_MARK
from lakemark_hms.listener.ours import PAGE, LakeSide, Ours, WarehouseSide
from lakemark_hms.listener.selection import Looks, Rename, Selection
from lakemark_hms.outside import Metastore, OutsideRefused
from lakemark_hms.pages import in_pages
from lakemark_proto.v1 import listeners_pb2 as pb
from lakemark_server.catalog.warehouse_records import Values
from lakemark_thrift.ttypes import GetTableRequest, GetTablesRequest, InvalidOperationException, Partition, Table

T = TypeVar("T")
_Sides: TypeAlias = tuple[dict[str, Partition], dict[str, Partition]]

_TABLES_PAGE: Final = 100
_NAMES_TOLD_MAX: Final = 3


class _Outcome(Enum):
    """Of a decision. ``REPLACED``: the table was made anew, because it could not be altered."""

    DONE = "done"
    LEFT = "left"
    REPLACED = "replaced"


class FunctionDigests(Protocol):
    """What the listener wrote of functions, which have no place for a mark."""

    def get(self, database: str, name: str) -> str | None: ...

    def put(self, database: str, name: str, digest: str | None) -> None:
        """Remembers the digest; None: forgets it."""

    def names(self) -> Iterator[tuple[str, str]]:
        """All that are remembered, as database and name."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a mirror may do. ``applies``: whether it changes anything. ``overwrites``: names of objects ("*": all) whose
    changes by hand it overwrites. ``pulse`` is called between steps, and raises if the mirror has to stop."""

    applies: bool = True
    overwrites: Collection[str] = ()
    pulse: Callable[[], None] = field(default=lambda: None)

    def overwrites_in(self, label: str) -> bool:
        return "*" in self.overwrites or label in self.overwrites


class Mirror:
    """Of one listener, for one thread. ``epoch`` is that of our store.

    ``tell`` gets a difference for each object that was looked at and is not as it should be, and for each that is, one
    with ``DIFFERENCE_NONE``.
    """

    def __init__(
        self,
        metastore: Metastore,
        ours: Ours,
        owner: Owner,
        selection: Selection,
        digests: FunctionDigests,
        epoch: int,
        tell: Callable[[pb.ListenerDifference], None],
        orders: Orders | None = None,
    ) -> None:
        self._metastore = metastore
        self._ours = ours
        self._owner = owner
        self._selection = selection
        self._digests = digests
        self._epoch = epoch
        self._report = tell
        self._orders = orders or Orders()

    # -- what to look at ----------------------------------------------------------------------------------------------

    def look(self, looks: Looks) -> None:
        """Looks at these objects, in an order in which each finds what it needs. Raises OutsideUnavailable."""
        if looks.everything:
            self.everything()
            return
        chosen = self._selection
        databases = {name for name in looks.databases if chosen.reaches_into(name)}
        gone = {name for name in databases if self._ours.database(name) is None}
        for name in sorted(databases - gone):
            self.database(name)
        for rename in looks.renames:
            self.rename(rename)
        for (database, name), values in looks.tables.items():
            if chosen.table(database, name):
                self.table(database, name, values)
        for database, name in sorted(looks.functions):
            if chosen.whole_database(database):
                self.function(database, name)
        for name in sorted(gone):
            self.database(name)

    def everything(self) -> None:
        """Looks at all objects of both sides. Raises OutsideUnavailable."""
        for database in self._ours.databases():
            if not self._selection.reaches_into(database):
                continue
            self.database(database)
            for name in self._ours.tables(database):
                if self._selection.table(database, name):
                    self.table(database, name, None)
            if self._selection.whole_database(database):
                for name in self._ours.functions(database):
                    self.function(database, name)
        for database, name in list(self._digests.names()):
            if self._ours.function(database, name) is None:
                self.function(database, name)
        for database in self._metastore.call("get_all_databases"):
            if self._selection.reaches_into(database):
                for name in self._left_behind(database):
                    self.table(database, name, ())
                if self._ours.database(database) is None:
                    self.database(database)

    def _left_behind(self, database: str) -> Iterator[str]:
        """The listener's tables there that are not ours any more."""
        ours = set(self._ours.tables(database))
        names = [name for name in self._metastore.find("get_all_tables", db_name=database) or () if name not in ours]
        for page in in_pages(names, _TABLES_PAGE):
            request = GetTablesRequest(dbName=database, tblNames=page)
            for table in self._metastore.call("get_table_objects_by_name_req", req=request).tables or ():
                if self._owner.owns(table.parameters):
                    yield table.tableName

    # -- one object ---------------------------------------------------------------------------------------------------

    def database(self, name: str, *, needed: bool = False) -> None:
        """``needed``: a table is to be made in it."""

        def look() -> None:
            ours = self._ours.database(name) if self._selection.reaches_into(name) else None
            theirs = self._metastore.find("get_database", name=name)
            if theirs is None and not (needed or self._selection.whole_database(name)):
                self._tell("database", name)
                return
            overwrite = self._orders.overwrites_in(name)
            decision = decide_database(ours, theirs, self._owner, overwrite=overwrite)
            self._carry_out("database", name, decision)

        self._guarded("database", name, look)

    def function(self, database: str, name: str) -> None:
        """Brings a function in line."""
        label = f"{database}.{name}"

        def look() -> None:
            mirrored = self._selection.whole_database(database)
            ours = self._ours.function(database, name) if mirrored else None
            theirs = self._metastore.find("get_function", dbName=database, funcName=name)
            written = self._digests.get(database, name)
            decision, remembered = decide_function(ours, theirs, written, overwrite=self._orders.overwrites_in(label))
            # Before the call: a function that was made and not remembered would be taken for somebody else's.
            if self._orders.applies and remembered is not None and remembered != written:
                self._digests.put(database, name, remembered)
            self._carry_out("function", label, decision)
            if self._orders.applies and remembered is None and written is not None:
                self._digests.put(database, name, None)

        self._guarded("function", label, look)

    def rename(self, rename: Rename) -> None:
        """Gives the outside table its new name, if that is all there is to it."""
        (database, name), (new_database, new_name) = rename

        def look() -> None:
            if not (self._selection.table(new_database, new_name) and self._orders.applies):
                return
            after = self._ours.table(new_database, new_name)
            before = self._theirs(database, name) if self._ours.table(database, name) is None else None
            if after is None or before is None:
                return
            there = self._theirs(new_database, new_name)
            decision = decide_rename(before, there, after.table, after.table_id, self._owner)
            self._carry_out("table", f"{new_database}.{new_name}", decision)

        self._guarded("table", f"{new_database}.{new_name}", look)

    def table(self, database: str, name: str, values: Collection[Values] | None) -> None:
        """Brings a table in line, and its partitions with these values (None: all).

        Of a lake table the partitions that differ between the version there and the latest one are brought in line;
        with None, all are.
        """

        def look() -> None:
            self._ours.snapshots.again(lambda: self._table(database, name, values))

        self._guarded("table", f"{database}.{name}", look)

    def _table(self, database: str, name: str, values: Collection[Values] | None) -> None:
        label = f"{database}.{name}"
        side = self._ours.table(database, name) if self._selection.table(database, name) else None
        theirs = self._theirs(database, name)
        if side is not None and side.problem:
            self._tell("table", label, pb.DIFFERENCE_LEFT, side.problem)
            return
        decision = decide_table(
            side.table if side else None,
            theirs,
            self._owner,
            table_id=side.table_id if side else 0,
            cascade=isinstance(side, LakeSide),
            overwrite=self._orders.overwrites_in(label),
        )
        if decision.replaces:
            decision = self._unless_others(label, theirs, decision)
        if decision.difference and theirs is None and self._orders.applies:
            self.database(database, needed=True)
        fresh = theirs is None or decision.replaces
        outcome = self._carry_out("table", label, decision, theirs)
        if outcome is _Outcome.LEFT:
            return
        if side is None:
            self._tell("partition", label)
            return
        if decision.difference:
            theirs = self._theirs(database, name)
        if theirs is None or not theirs.partitionKeys:
            return
        fresh = fresh or outcome is _Outcome.REPLACED
        left = (
            self._lake_partitions(label, side, theirs, whole=values is None or fresh)
            if isinstance(side, LakeSide)
            else self._warehouse_partitions(label, side, theirs, None if fresh else values)
        )
        if left:
            self._tell("partition", label, pb.DIFFERENCE_LEFT, left)
        elif values is None or fresh:  # a look at some partitions says nothing of the others
            self._tell("partition", label)

    # -- partitions ---------------------------------------------------------------------------------------------------

    def _lake_partitions(self, label: str, side: LakeSide, theirs: Table, *, whole: bool) -> str:
        known = theirs.parameters or {}
        there = known.get(VERSION_MARK, "") if known.get(EPOCH_MARK) == str(self._epoch) else ""
        changes = None
        if not whole and there.isdecimal() and int(there) <= side.version:
            changes = side.changes(self._ours.snapshots, int(there))
        if changes is None:
            left = self._all_partitions(label, side, theirs)
        else:
            added, removed = changes
            left = self._page_by_page(label, theirs, ((page, {}) for page in added), columns=False)
            gone: Iterator[_Sides] = (({}, self._named(theirs, names)) for names in in_pages(removed, PAGE))
            left = left or self._page_by_page(label, theirs, gone, columns=False)
        progress = decide_progress(theirs, side.version, self._epoch, side.statistics)
        if progress.difference:
            self._carry_out("table", label, progress)
        return left

    def _warehouse_partitions(
        self, label: str, side: WarehouseSide, theirs: Table, values: Collection[Values] | None
    ) -> str:
        if values is None:
            return self._all_partitions(label, side, theirs)
        pages = (
            (side.some(page), self._named(theirs, [side.hive.partition_name(one) for one in page]))
            for page in in_pages(sorted(values), PAGE)
        )
        return self._page_by_page(label, theirs, pages, columns=True)

    def _all_partitions(self, label: str, side: LakeSide | WarehouseSide, theirs: Table) -> str:
        place = {"db_name": theirs.dbName, "tbl_name": theirs.tableName}
        names: set[str] = set(self._metastore.call("get_partition_names", **place, max_parts=-1))

        def pages() -> Iterator[_Sides]:
            for page in side.pages():
                yield page, self._named(theirs, [name for name in page if name in names])
                names.difference_update(page)
            for rest in in_pages(sorted(names), PAGE):
                yield {}, self._named(theirs, rest)

        return self._page_by_page(label, theirs, pages(), columns=isinstance(side, WarehouseSide))

    def _page_by_page(
        self,
        label: str,
        theirs: Table,
        pages: Iterable[_Sides],
        *,
        columns: bool,
    ) -> str:
        """Decides and carries out; returns in words what stays as it is."""
        left: list[str] = []
        count = 0
        for ours, there in pages:
            decision = decide_partitions(
                ours, there, self._owner, columns=columns, overwrite=self._orders.overwrites_in(label)
            )
            if decision.difference:
                calls = tuple(decision.calls(theirs.dbName or "", theirs.tableName or ""))
                self._carry_out("partition", label, Decision(decision.difference, calls))
            count += len(decision.left)
            left += [f"{name}: {reason}" for name, reason in decision.left[: _NAMES_TOLD_MAX - len(left)]]
            self._orders.pulse()
        more = f"; and {count - len(left)} partitions more" if count > len(left) else ""
        return "; ".join(left) + more

    def _unless_others(self, label: str, theirs: Table | None, decision: Decision) -> Decision:
        """The decision to drop a table, unless partitions of somebody else would go with it."""
        others = "" if theirs is None or self._orders.overwrites_in(label) else self._partitions_of_others(theirs)
        if not others:
            return decision
        return Decision(f"{decision.difference}, but it stays: it has {others}", left=True)

    def _partitions_of_others(self, theirs: Table) -> str:
        """In words, the partitions there that the listener did not make or that were changed by hand; "": none."""
        if not theirs.partitionKeys:
            return ""
        place = {"db_name": theirs.dbName, "tbl_name": theirs.tableName}
        # A table without the mark may be a lake table whose first partitions a runner had added when it was killed.
        kinds = (False,) if VERSION_MARK in (theirs.parameters or {}) else (True, False)
        for page in in_pages(self._metastore.call("get_partition_names", **place, max_parts=-1), PAGE):
            named = self._named(theirs, page)
            for columns in kinds:
                decision = decide_partitions({}, named, self._owner, columns=columns, overwrite=False)
                named = {one.name: named[one.name] for one in decision.left}
            if named:
                return f"the partition {min(named)}, which somebody else made or changed"
            self._orders.pulse()
        return ""

    # -- the other side -----------------------------------------------------------------------------------------------

    def _theirs(self, database: str, name: str) -> Table | None:
        answer = self._metastore.find("get_table_req", req=GetTableRequest(dbName=database, tblName=name))
        return None if answer is None else answer.table

    def _named(self, theirs: Table, names: Collection[str]) -> dict[str, Partition]:
        if not names:
            return {}
        place = {"db_name": theirs.dbName, "tbl_name": theirs.tableName}
        keys = [key.name or "" for key in theirs.partitionKeys or ()]
        partitions = self._metastore.call("get_partitions_by_names", **place, names=list(names))
        return {_name_of(keys, partition): partition for partition in partitions}

    def _carry_out(self, kind: str, label: str, decision: Decision, theirs: Table | None = None) -> _Outcome:
        """Raises OutsideUnavailable, OutsideRefused."""
        if decision.left:
            self._tell(kind, label, pb.DIFFERENCE_LEFT, decision.difference)
            return _Outcome.LEFT
        if not decision.difference:
            self._tell(kind, label)
            return _Outcome.DONE
        if not self._orders.applies:
            self._tell(kind, label, pb.DIFFERENCE_FOUND, decision.difference)
            return _Outcome.DONE
        outcome = _Outcome.DONE
        try:
            for call in decision.calls:
                self._metastore.run(call)
        except OutsideRefused as error:
            if not decision.otherwise or error.details["error"] != InvalidOperationException.__name__:
                raise
            instead = self._unless_others(label, theirs, Decision(decision.difference, decision.otherwise))
            if instead.left:
                return self._carry_out(kind, label, instead)
            for call in instead.calls:
                self._metastore.run(call)
            outcome = _Outcome.REPLACED
        self._tell(kind, label, pb.DIFFERENCE_REPAIRED, decision.difference)
        return outcome

    def _guarded(self, kind: str, label: str, look: Callable[[], None]) -> None:
        """What cannot be done for one object does not keep the others from being looked at."""
        self._orders.pulse()
        try:
            look()
        except Unavailable:
            raise
        except LakemarkError as error:
            self._tell(kind, label, pb.DIFFERENCE_FAILED, error.message)

    def _tell(
        self, kind: str, label: str, state: pb.DifferenceState.ValueType = pb.DIFFERENCE_NONE, reason: str = ""
    ) -> None:
        self._report(pb.ListenerDifference(kind=kind, name=label, state=state, reason=reason))


def _name_of(keys: Collection[str], partition: Partition) -> str:
    return partition_name(list(keys), partition.values or ())
