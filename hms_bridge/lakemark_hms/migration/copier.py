"""Brings one object after the other of a Metastore in line with the one that it is copied from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from lakemark_core.errors import InvalidArgument
from lakemark_core.types.partitions import DEFAULT_PARTITION, parse_partition_name
from lakemark_hms.lake_intent import is_lake
from lakemark_hms.listener.decisions import altered_table
from lakemark_hms.migration.sameness import differences, plain
from lakemark_hms.migration.sides import ConstraintKind, Side
from lakemark_hms.objects import MATERIALIZED, VIEW
from lakemark_hms.outside import OutsideRefused, copy_of
from lakemark_hms.pages import in_pages
from lakemark_server.catalog.service import DEFAULT_DATABASE
from lakemark_server.catalog.warehouse_records import Values
from lakemark_server.grants.objects import PUBLIC
from lakemark_thrift import ttypes as t
from lakemark_thrift.ttypes import Database, Partition, Table

PARTITIONS_AT_ONCE: Final = 500
STATISTICS_AT_ONCE: Final = 100
_NAMES_TOLD: Final = 3


class What(Enum):
    """What became of an object. ``DIFFERENT``: it was only looked at. ``LEFT``: it cannot be copied."""

    EQUAL = "equal"
    MADE = "made"
    ALTERED = "altered"
    DROPPED = "dropped"
    DIFFERENT = "different"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``count`` objects of one kind, ``name`` is one of them or what they belong to. ``reason``: in words, of what is
    not equal."""

    kind: str
    name: str
    what: What
    reason: str = ""
    count: int = 1


def told_if_refused(kind: str, name: str, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """The outcomes, up to a read that one of the two refuses: then that the object is left, in its words."""
    try:
        yield from outcomes
    except OutsideRefused as error:
        yield Outcome(kind, name, What.LEFT, error.message)


class Copier:
    """Copies between two sides, for one thread.

    ``applies``: whether it changes the copy, or only compares. ``drops``: what the source does not have any more goes;
    files never do. ``statistics``: those of columns, too. Methods yield what became of the objects, and raise
    OutsideUnavailable; OutsideRefused, if a read is refused.
    """

    def __init__(
        self,
        source: Side,
        copy: Side,
        *,
        applies: bool,
        drops: bool,
        statistics: bool,
    ) -> None:
        self._source, self._copy = source, copy
        self._applies, self._drops, self._statistics = applies, drops, statistics

    # -- databases and functions --------------------------------------------------------------------------------------

    def database(self, name: str) -> Iterator[Outcome]:
        source, copy = self._source.database(name), self._copy.database(name)
        if source is None:
            return
        if copy is None:
            yield self._made("database", name, "create_database", database=_new_database(source))
            return
        wanted = copy_of(source)
        if name == DEFAULT_DATABASE:  # every Metastore has its own
            wanted.locationUri, wanted.description = copy.locationUri, copy.description
            wanted.managedLocationUri = copy.managedLocationUri
        reason = differences(wanted, copy)
        if not reason:
            yield Outcome("database", name, What.EQUAL)
            return
        yield self._altered("database", name, reason, lambda: self._alter_database(name, wanted))

    def _alter_database(self, name: str, wanted: Database) -> None:
        self._copy.metastore.call("alter_database", dbname=name, db=wanted)

    def surplus_databases(self, names: Sequence[str]) -> Iterator[Outcome]:
        """Databases that only the copy has; ``names`` are those of the source. None is ever dropped."""
        for name in sorted(set(self._copy.databases()) - {*names, DEFAULT_DATABASE}):
            yield self._uncopied("database", name, "only the copy has it, and databases are not dropped")

    def functions(self, database: str) -> Iterator[Outcome]:
        names, there = self._source.function_names(database), self._copy.function_names(database)
        for name in sorted(set(there) - set(names)):
            drop = self._call("drop_function", dbName=database, funcName=name)
            yield self._only_there("function", f"{database}.{name}", drop)
        for name in names:
            yield from told_if_refused("function", f"{database}.{name}", self._function(database, name))

    def _function(self, database: str, name: str) -> Iterator[Outcome]:
        source, copy = self._source.function(database, name), self._copy.function(database, name)
        label = f"{database}.{name}"
        if source is None:
            return
        source = copy_of(source)
        if copy is None:
            yield self._made("function", label, "create_function", func=source)
            return
        reason = differences(source, copy)
        if not reason:
            yield Outcome("function", label, What.EQUAL)
            return
        arguments = {"dbName": database, "funcName": name, "newFunc": source}
        yield self._altered("function", label, reason, self._call("alter_function", **arguments))

    def surplus(self, database: str, tables: Sequence[str]) -> Iterator[Outcome]:
        """Tables that only the copy has; ``tables`` are those that the source lists. Lake tables of the copy are its
        own: no import has made them."""
        for name in sorted(set(self._copy.table_names(database)) - set(tables)):
            yield from told_if_refused("table", f"{database}.{name}", self._surplus_table(database, name))

    def _surplus_table(self, database: str, name: str) -> Iterator[Outcome]:
        copy = self._copy.table(database, name)
        if copy is None or is_lake(copy):
            return
        if self._drops and self._source.table(database, name) is not None:  # made meanwhile, or not listed
            return
        drop = self._call("drop_table", dbname=database, name=name, deleteData=False)
        yield self._only_there("table", f"{database}.{name}", drop)

    # -- tables -------------------------------------------------------------------------------------------------------

    def table(self, database: str, name: str) -> Iterator[Outcome]:
        """The table with its partitions and statistics, but without constraints."""
        source, copy = self._source.table(database, name), self._copy.table(database, name)
        label = f"{database}.{name}"
        if source is None:
            return
        reason = _apart(source, copy)
        if reason:
            yield Outcome("table", label, What.LEFT, reason)
            return
        if copy is None:
            outcome = self._made("table", label, "create_table", tbl=_new_table(source))
        else:
            outcome = self._table(label, source, copy)
        yield outcome
        if outcome.what is What.LEFT or (copy is None and not self._applies):
            return
        if source.partitionKeys:
            yield from self._partitions(database, name, source)
        if self._statistics and source.tableType != VIEW:
            yield from self._table_statistics(database, name, _columns(source))

    def _table(self, label: str, source: Table, copy: Table) -> Outcome:
        reason = differences(source, copy)
        if not reason:
            return Outcome("table", label, What.EQUAL)
        wanted = _new_table(source)
        return self._altered("table", label, reason, lambda: self._copy.metastore.run(altered_table(wanted)))

    def _partitions(self, database: str, name: str, table: Table) -> Iterator[Outcome]:
        names = self._source.partition_names(database, name)
        there = _by_values(self._copy.partition_names(database, name))
        pairs = [(one, there.get(_values(one))) for one in names]
        for page in in_pages([one for one, known in pairs if known is None], PARTITIONS_AT_ONCE):
            yield from self._add(database, name, page)
        for both in in_pages([(one, known) for one, known in pairs if known is not None], PARTITIONS_AT_ONCE):
            yield from self._compare(database, name, dict(both))
        wanted = _by_values(names)
        surplus = sorted(known for values, known in there.items() if values not in wanted)
        for page in in_pages(surplus, PARTITIONS_AT_ONCE):
            yield self._surplus_partitions(database, name, page)
        if self._statistics:
            columns = _columns(table)
            for both in in_pages([(one, known or one) for one, known in pairs], STATISTICS_AT_ONCE):
                yield from self._partition_statistics(database, name, dict(both), columns)

    def _add(self, database: str, table: str, names: Sequence[str]) -> Iterator[Outcome]:
        label = f"{database}.{table}"
        if not self._applies:
            yield Outcome("partition", label, What.DIFFERENT, _missing(names), len(names))
            return
        source = self._partitions_of(self._source, database, table, names)
        yield from self._left_out(label, names, source, "source")
        if source:
            request = t.AddPartitionsRequest(
                dbName=database,
                tblName=table,
                parts=[_new_partition(one) for one in source.values()],
                ifNotExists=True,
                needResult=False,
            )
            call = self._call("add_partitions_req", request=request)
            yield self._changed("partition", label, _missing(names), call, What.MADE, len(source))

    def _compare(self, database: str, name: str, names: dict[str, str]) -> Iterator[Outcome]:
        """``names``: those of the source, and those by which the copy has the same partitions."""
        label = f"{database}.{name}"
        source = self._partitions_of(self._source, database, name, list(names))
        copy = self._partitions_of(self._copy, database, name, list(names.values()))
        yield from self._left_out(label, list(names), source, "source")
        comparable = [known for one, known in names.items() if _values(one) in source]
        yield from self._left_out(label, comparable, copy, "copy")
        both = [values for values in source if values in copy]
        differing = {values: reason for values in both if (reason := differences(source[values], copy[values]))}
        if len(both) > len(differing):
            yield Outcome("partition", label, What.EQUAL, count=len(both) - len(differing))
        if differing:
            values, reason = next(iter(differing.items()))
            words = f"{len(differing)} differ, the first is {'/'.join(values)}: {reason}"
            parts = [_new_partition(source[one]) for one in differing]
            call = self._call("alter_partitions", db_name=database, tbl_name=name, new_parts=parts)
            yield self._changed("partition", label, words, call, What.ALTERED, len(differing))

    @staticmethod
    def _partitions_of(side: Side, database: str, table: str, names: Sequence[str]) -> dict[Values, Partition]:
        """Those of the names that the side gives, by their values."""
        wanted = _by_values(names)
        given = {_filled(one.values or ()): one for one in side.partitions(database, table, names)}
        return {values: one for values, one in given.items() if values in wanted}

    def _left_out(
        self, label: str, names: Sequence[str], given: Mapping[Values, Partition], side: str
    ) -> Iterator[Outcome]:
        """Of names that a side lists without giving the partitions, as when they were dropped meanwhile."""
        missing = [name for name in names if _values(name) not in given]
        if missing:
            reason = f"the {side} lists them, but does not give them: {_first(missing)}; run it again"
            yield self._uncopied("partition", label, reason, len(missing))

    def _surplus_partitions(self, database: str, table: str, names: Sequence[str]) -> Outcome:
        label = f"{database}.{table}"
        request = t.DropPartitionsRequest(
            dbName=database,
            tblName=table,
            parts=t.RequestPartsSpec(names=list(names)),
            deleteData=False,
            ifExists=True,
            needResult=False,
        )
        drop = self._call("drop_partitions_req", req=request)
        return self._only_there("partition", label, drop, len(names), _first(names))

    # -- statistics of columns ----------------------------------------------------------------------------------------

    def _table_statistics(self, database: str, table: str, columns: Sequence[str]) -> Iterator[Outcome]:
        source = self._source.statistics(database, table, columns)
        copy = self._copy.statistics(database, table, columns)
        yield from self._compare_statistics(database, table, {"": source}, {"": copy})

    def _partition_statistics(
        self, database: str, table: str, names: dict[str, str], columns: Sequence[str]
    ) -> Iterator[Outcome]:
        """``names``: those of the source, and those by which the copy has the same partitions."""
        told = self._source.partition_statistics(database, table, list(names), columns)
        source = {known: told[name] for name, known in names.items() if name in told}
        copy = self._copy.partition_statistics(database, table, list(names.values()), columns)
        yield from self._compare_statistics(database, table, source, copy)

    def _compare_statistics(
        self, database: str, table: str, source: dict[str, list[Any]], copy: dict[str, list[Any]]
    ) -> Iterator[Outcome]:
        """By name of the partition; "": of the table."""
        known = {name: _by_column(columns) for name, columns in copy.items()}
        wanted = {name: _by_column(columns) for name, columns in source.items()}
        differing = [
            name
            for name, columns in wanted.items()
            if any(known.get(name, {}).get(column) != told for column, told in columns.items())
        ]
        equal = sum(len(columns) for name, columns in wanted.items() if name not in set(differing))
        if equal:
            yield Outcome("column statistics", f"{database}.{table}", What.EQUAL, count=equal)
        if differing:
            yield self._set_statistics(database, table, {name: source[name] for name in differing})
        surplus = [
            (name, column)
            for name, columns in known.items()
            for column in columns
            if column not in wanted.get(name, {})
        ]
        if surplus:
            yield self._surplus_statistics(database, table, surplus)

    def _set_statistics(self, database: str, table: str, source: dict[str, list[Any]]) -> Outcome:
        told = [
            t.ColumnStatistics(
                statsDesc=t.ColumnStatisticsDesc(
                    isTblLevel=not name, dbName=database, tableName=table, partName=name or None
                ),
                statsObj=columns,
                engine="hive",
            )
            for name, columns in source.items()
        ]
        count = sum(len(columns) for columns in source.values())
        request = t.SetPartitionsStatsRequest(colStats=told, needMerge=False, engine="hive")
        call = self._call("set_aggr_stats_for", request=request)
        reason = "missing or different" if "" in source else f"missing or different: {_first(list(source))}"
        return self._changed("column statistics", f"{database}.{table}", reason, call, What.ALTERED, count)

    def _surplus_statistics(self, database: str, table: str, surplus: Sequence[tuple[str, str]]) -> Outcome:
        """Of columns that the source knows nothing about: they may be those of rows that are not there any more."""

        def delete() -> None:
            for name, column in surplus:
                of = {"db_name": database, "tbl_name": table, "col_name": column, "engine": "hive"}
                if name:
                    self._copy.metastore.call("delete_partition_column_statistics", part_name=name, **of)
                else:
                    self._copy.metastore.call("delete_table_column_statistics", **of)

        names = _first([f"{name}/{column}" if name else column for name, column in surplus])
        return self._only_there("column statistics", f"{database}.{table}", delete, len(surplus), names)

    # -- constraints --------------------------------------------------------------------------------------------------

    def constraints(self, kind: ConstraintKind, database: str, table: str) -> Iterator[Outcome]:
        """Of one table. Those of foreign keys need the primary keys of the other tables."""
        here, there = (side.constraints(kind, database, table) for side in (self._source, self._copy))
        label = f"{database}.{table}"
        if here is None:  # whether there are such is not known
            return
        source = _by_name(here, kind)
        if there is None:
            if source:
                reason = "the other Metastore has no such constraints"
                yield Outcome(kind.words, label, What.LEFT, reason, len(source))
            return
        copy = _by_name(there, kind)
        if source.keys() != copy.keys() and self._is_apart(database, table):
            return  # told with the table itself
        for name in sorted(copy.keys() - source.keys()):
            request = t.DropConstraintRequest(dbname=database, tablename=table, constraintname=name)
            yield self._only_there(kind.words, f"{label}: {name}", self._call("drop_constraint", req=request))
        for name, columns in source.items():
            if _constraint(columns, kind) == _constraint(copy.get(name, ()), kind):
                yield Outcome(kind.words, f"{label}: {name}", What.EQUAL)
            elif name in copy:
                yield Outcome(kind.words, f"{label}: {name}", What.LEFT, "another constraint has the name")
            else:
                add = self._call(kind.add, req=kind.adds([copy_of(column) for column in columns]))
                yield self._changed(kind.words, f"{label}: {name}", "it is missing", add, What.MADE)

    def _is_apart(self, database: str, name: str) -> bool:
        source = self._source.table(database, name)
        return source is None or bool(_apart(source, self._copy.table(database, name)))

    # -- roles and privileges -----------------------------------------------------------------------------------------

    def roles(self) -> Iterator[Outcome]:
        """Roles and who has them. ``admin`` and ``public`` are everywhere."""
        names = self._source.role_names()
        if not names:
            return
        there = self._copy.role_names()
        if there is None:
            yield Outcome("role", ", ".join(names), What.LEFT, "the other Metastore has no roles", len(names))
            return
        for name in names:
            if name in there:
                yield Outcome("role", name, What.EQUAL)
            else:
                yield self._made("role", name, "create_role", role=t.Role(roleName=name, createTime=0, ownerName=""))
        for name in names:  # roles are members of roles
            if name != PUBLIC:
                yield from self._members(name, there)

    def _members(self, role: str, there: Sequence[str]) -> Iterator[Outcome]:
        known = {_member(one) for one in self._copy.members(role)} if self._applies or role in there else set()
        for one in self._source.members(role):
            label = f"{one.principalName} in {role}"
            if _member(one) in known:
                yield Outcome("role member", label, What.EQUAL)
                continue
            grant = self._call(
                "grant_role",
                role_name=role,
                principal_name=one.principalName,
                principal_type=one.principalType,
                grantor=one.grantorName,
                grantorType=one.grantorPrincipalType,
                grant_option=one.grantOption,
            )
            yield self._changed("role member", label, "it is missing", grant, What.MADE)

    def privileges(self, database: str, table: str = "") -> Iterator[Outcome]:
        """On a database, or on a table itself; those on partitions and columns are not copied."""
        label = f"{database}.{table}" if table else database
        kind = t.HiveObjectType.TABLE if table else t.HiveObjectType.DATABASE
        on = t.HiveObjectRef(objectType=kind, dbName=database, objectName=table or None)
        source = self._source.privileges(on)
        if not source:
            return
        there = self._copy.privileges(on)
        if there is None:
            yield Outcome("privilege", label, What.LEFT, "the other Metastore has no privileges", len(source))
            return
        known = {_privilege(one) for one in there}
        missing = [one for one in source if _privilege(one) not in known]
        if len(source) > len(missing):
            yield Outcome("privilege", label, What.EQUAL, count=len(source) - len(missing))
        if missing:
            grants = [
                t.HiveObjectPrivilege(
                    hiveObject=on,
                    principalName=one.principalName,
                    principalType=one.principalType,
                    grantInfo=one.grantInfo,
                    authorizer=one.authorizer,
                )
                for one in missing
            ]
            words = ", ".join(f"{_privilege(one)[2]} of {one.principalName}" for one in missing[:_NAMES_TOLD])
            call = self._call("grant_privileges", privileges=t.PrivilegeBag(privileges=grants))
            yield self._changed("privilege", label, f"missing: {words}", call, What.MADE, len(missing))

    # -- changes ------------------------------------------------------------------------------------------------------

    def _call(self, method: str, **arguments: Any) -> Callable[[], object]:
        return lambda: self._copy.metastore.call(method, **arguments)

    def _made(self, kind: str, name: str, method: str, **arguments: Any) -> Outcome:
        return self._changed(kind, name, "it is missing", self._call(method, **arguments), What.MADE)

    def _altered(self, kind: str, name: str, reason: str, change: Callable[[], object]) -> Outcome:
        return self._changed(kind, name, reason, change, What.ALTERED)

    def _only_there(
        self, kind: str, name: str, drop: Callable[[], object], count: int = 1, names: str = "it"
    ) -> Outcome:
        """Of what only the copy has: it goes if that is wanted."""
        reason = f"only the copy has {names}"
        if not self._drops:
            return self._uncopied(kind, name, reason, count)
        return self._changed(kind, name, reason, drop, What.DROPPED, count)

    def _uncopied(self, kind: str, name: str, reason: str, count: int = 1) -> Outcome:
        """Of what is not the same and is not changed."""
        return Outcome(kind, name, What.LEFT if self._applies else What.DIFFERENT, reason, count)

    def _changed(
        self, kind: str, name: str, reason: str, change: Callable[[], object], what: What, count: int = 1
    ) -> Outcome:
        if not self._applies:
            return Outcome(kind, name, What.DIFFERENT, reason, count)
        try:
            change()
        except OutsideRefused as error:
            return Outcome(kind, name, What.LEFT, error.message, count)
        return Outcome(kind, name, what, reason, count)


_LAKE: Final = "a lake table is kept up to date by a listener (lakemark listeners create), or its rows are written anew"


def _apart(source: Table, copy: Table | None) -> str:
    """Why the two have nothing to do with each other; "": they do."""
    if is_lake(source) or (copy is not None and is_lake(copy)):
        return _LAKE
    if copy is None:
        return ""
    if plain(source.partitionKeys) != plain(copy.partitionKeys) or _is_view(source) != _is_view(copy):
        return f"another table has the name: {differences(source, copy)}; drop or rename one of them"
    return ""


def _is_view(table: Table) -> bool:
    return table.tableType in {VIEW, MATERIALIZED}


def _new_database(source: Database) -> Database:
    database: Database = copy_of(source)
    database.privileges = database.catalogName = None
    return database


def _new_table(source: Table) -> Table:
    table: Table = copy_of(source)
    table.privileges = table.id = table.catName = table.writeId = table.colStats = None
    return table


def _new_partition(source: Partition) -> Partition:
    partition: Partition = copy_of(source)
    partition.privileges = partition.catName = partition.writeId = partition.colStats = None
    return partition


def _columns(table: Table) -> list[str]:
    return [str(column.name) for column in (table.sd.cols if table.sd else None) or ()]


def _values(name: str) -> Values:
    """What the name of a partition says, whichever characters it escapes."""
    try:
        return tuple(text for _, text in parse_partition_name(name))
    except InvalidArgument:  # matches the same name only
        return (name,)


def _filled(values: Sequence[str]) -> Values:
    return tuple(one or DEFAULT_PARTITION for one in values)


def _by_values(names: Sequence[str]) -> dict[Values, str]:
    return {_values(name): name for name in names}


def _by_column(columns: Sequence[Any]) -> dict[str, Any]:
    return {one.colName.lower(): plain(one.statsData) for one in columns}


def _member(one: Any) -> tuple[Any, ...]:
    return one.principalName, one.principalType, bool(one.grantOption)


def _privilege(one: Any) -> tuple[Any, ...]:
    info = one.grantInfo
    return one.principalName, one.principalType, (info.privilege or "").lower(), bool(info.grantOption)


def _by_name(columns: Sequence[Any] | None, kind: ConstraintKind) -> dict[str, list[Any]]:
    named: defaultdict[str, list[Any]] = defaultdict(list)
    for column in columns or ():
        named[getattr(column, kind.name).lower()].append(column)
    return dict(named)


def _constraint(columns: Sequence[Any], kind: ConstraintKind) -> list[Any]:
    """Without the name, which some Metastores keep in lower case."""
    fields = (plain(column) for column in columns)
    return sorted(({name: value for name, value in one.items() if name != kind.name} for one in fields), key=str)


def _missing(names: Sequence[str]) -> str:
    return f"missing: {_first(names)}"


def _first(names: Sequence[str]) -> str:
    told = ", ".join(names[:_NAMES_TOLD])
    return told if len(names) <= _NAMES_TOLD else f"{told} and {len(names) - _NAMES_TOLD} more"
