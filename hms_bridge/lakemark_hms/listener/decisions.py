"""What to do about an object: from ours and theirs, the calls that bring theirs in line, and in words what differs.

Pure. A decision depends on the two objects alone, never on the event that drew attention to them: so it can be made
again at any time, and after its calls the next one has none.

* An object that no mark says to be the listener's is left alone, whatever it looks like.
* An object of the listener that somebody changed by hand is left alone, too, unless the listener is told to overwrite
  it.
* Nothing that is dropped there takes data with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lakemark_hms.listener import facts
from lakemark_hms.listener.facts import EPOCH_MARK, OWNER_MARK, TABLE_MARK, VERSION_MARK, WRITTEN_MARK, Facts
from lakemark_hms.outside import Call, copy_of
from lakemark_thrift.ttypes import (
    AddPartitionsRequest,
    Database,
    DropPartitionsRequest,
    EnvironmentContext,
    Function,
    Partition,
    RequestPartsSpec,
    Table,
)

EXTERNAL, VIEW = "EXTERNAL_TABLE", "VIRTUAL_VIEW"


@dataclass(frozen=True, slots=True)
class Owner:
    """The listener that decides.

    ``tag`` marks its objects. ``adopted``: objects of earlier listeners of the same name count as its own.
    """

    name: str
    listener_id: str
    adopted: bool = False

    @property
    def tag(self) -> str:
        return f"{self.name}:{self.listener_id}"

    def owns(self, parameters: Mapping[str, str] | None) -> bool:
        tag = (parameters or {}).get(OWNER_MARK, "")
        return tag == self.tag or (self.adopted and tag.partition(":")[0] == self.name)


@dataclass(frozen=True, slots=True)
class Decision:
    """``difference`` says in words what differs; "": nothing. ``left``: it stays so, for the reason that it gives.

    ``replaces``: the outside object is dropped; of a table all partitions with it. ``otherwise``: the calls to make
    instead if the Metastore refuses the first ones as impossible for an existing table.
    """

    difference: str = ""
    calls: tuple[Call, ...] = ()
    left: bool = False
    replaces: bool = False
    otherwise: tuple[Call, ...] = ()


EQUAL = Decision()


class Left(NamedTuple):
    """A partition that is not touched, and why."""

    name: str
    reason: str


@dataclass(slots=True)
class PartitionDecision:
    """What to do about some partitions of a table. ``drop`` has names; ``left`` those that stay as they are."""

    add: list[Partition] = field(default_factory=list)
    alter: list[Partition] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    @property
    def difference(self) -> str:
        """In words; "" if nothing is to be changed."""
        counts = (("missing there", self.add), ("different", self.alter), ("dropped here", self.drop))
        return ", ".join(
            f"{len(some)} partition{'' if len(some) == 1 else 's'} {what}" for what, some in counts if some
        )

    def calls(self, database: str, table: str) -> list[Call]:
        calls = []
        if self.add:
            request = AddPartitionsRequest(
                dbName=database, tblName=table, parts=self.add, ifNotExists=True, needResult=False
            )
            calls.append(Call("add_partitions_req", {"request": request}))
        if self.alter:
            calls.append(Call("alter_partitions", {"db_name": database, "tbl_name": table, "new_parts": self.alter}))
        if self.drop:
            dropped = DropPartitionsRequest(
                dbName=database,
                tblName=table,
                parts=RequestPartsSpec(names=self.drop),
                deleteData=False,
                ifExists=True,
                needResult=False,
            )
            calls.append(Call("drop_partitions_req", {"req": dropped}))
        return calls


def decide_database(ours: Database | None, theirs: Database | None, owner: Owner, *, overwrite: bool) -> Decision:
    """``ours``: without marks; None: there is none, or it is not mirrored."""
    if theirs is not None and not owner.owns(theirs.parameters):
        return EQUAL  # its tables are mirrored into it, and it stays as it is
    if ours is None:
        if theirs is None:
            return EQUAL
        changed = _changed_by_hand(facts.of_database(theirs), theirs.parameters)
        if changed and not overwrite:
            return _left("the database was dropped here, and changed by hand there: it stays")
        drop = Call("drop_database", {"name": theirs.name, "deleteData": False, "cascade": False})
        return Decision("the database was dropped here", (drop,), replaces=True)
    wanted = facts.of_database(ours)
    ours = copy_of(ours)
    ours.parameters = dict(ours.parameters or {}) | _marks(owner, wanted)
    if theirs is None:
        return Decision("the database is missing there", (Call("create_database", {"database": ours}),))
    return _altered(
        wanted,
        facts.of_database(theirs),
        theirs.parameters,
        owner,
        overwrite,
        (Call("alter_database", {"dbname": ours.name, "db": ours}),),
    )


def decide_table(
    ours: Table | None,
    theirs: Table | None,
    owner: Owner,
    *,
    table_id: int = 0,
    cascade: bool = False,
    overwrite: bool,
) -> Decision:
    """The definition alone. ``ours`` is without marks; ``table_id`` is its id. ``cascade``: its partitions have its
    columns, and no facts of their own about them (a lake table's)."""
    if theirs is not None and not owner.owns(theirs.parameters):
        return _left("there is a table of that name which this listener did not make") if ours else EQUAL
    there = None if theirs is None else facts.of_table(theirs)
    if ours is None:
        if theirs is None or there is None:
            return EQUAL
        if _changed_by_hand(there, theirs.parameters) and not overwrite:
            return _left("the table was dropped here, and changed by hand there: it stays")
        return Decision("the table was dropped here", (_drop(theirs),), replaces=True)
    wanted = facts.of_table(ours)
    ours = copy_of(ours)
    ours.parameters = dict(ours.parameters or {}) | _marks(owner, wanted) | {TABLE_MARK: str(table_id)}
    create = Call("create_table", {"tbl": ours})
    if theirs is None or there is None:
        return Decision("the table is missing there", (create,))
    known = theirs.parameters or {}
    # How far the partitions have come is told by another call, after them.
    ours.parameters |= {name: known[name] for name in (VERSION_MARK, EPOCH_MARK) if name in known}
    other = known.get(TABLE_MARK) != str(table_id)
    if there != wanted and _changed_by_hand(there, known) and not overwrite:
        return _left(_by_hand(there, wanted))
    if other or any(there[name] != wanted[name] for name in ("type", "partition columns")):
        why = "another table has the name now" if other else facts.differences(there, wanted)
        return Decision(why, (_drop(theirs), _as_new(create)), replaces=True)
    if there.get("columns") != wanted.get("columns"):
        # What Hive does not allow for an existing table is made anew.
        alter = Call(
            "alter_table_with_cascade",
            {"dbname": ours.dbName, "tbl_name": ours.tableName, "new_tbl": ours, "cascade": cascade},
        )
        return Decision(facts.differences(there, wanted), (alter,), otherwise=(_drop(theirs), _as_new(create)))
    return _altered(wanted, there, theirs.parameters, owner, overwrite, (altered_table(ours),))


def decide_rename(
    theirs_before: Table | None, theirs_after: Table | None, after: Table | None, table_id: int, owner: Owner
) -> Decision:
    """The call that gives the outside table its new name with all its partitions, where the name is free.

    ``after``: ours under the new name. Without a call the two names are looked at one by one.
    """
    if (
        theirs_before is None
        or theirs_after is not None
        or after is None
        or theirs_before.dbName != after.dbName
        or not owner.owns(theirs_before.parameters)
        or (theirs_before.parameters or {}).get(TABLE_MARK) != str(table_id)
        or _changed_by_hand(facts.of_table(theirs_before), theirs_before.parameters)
    ):
        return EQUAL
    renamed = copy_of(theirs_before)
    renamed.tableName = after.tableName
    return Decision("the table was renamed here", (altered_table(renamed, theirs_before.tableName),))


def decide_progress(theirs: Table, version: int, epoch: int, statistics: Mapping[str, str]) -> Decision:
    """What tells that the partitions of the lake table are those of this version now."""
    wanted = {VERSION_MARK: str(version), EPOCH_MARK: str(epoch)}
    known = theirs.parameters or {}
    if all(known.get(name) == value for name, value in wanted.items()):
        return EQUAL
    told = copy_of(theirs)
    kept = {name: value for name, value in known.items() if not facts.is_statistic(name) or name == "EXTERNAL"}
    told.parameters = kept | dict(statistics) | wanted
    return Decision(f"the version there is {known.get(VERSION_MARK, '0')}", (altered_table(told),))


def decide_partitions(
    ours: Mapping[str, Partition],
    theirs: Mapping[str, Partition],
    owner: Owner,
    *,
    columns: bool,
    overwrite: bool,
) -> PartitionDecision:
    """Of the partitions by these names on both sides. ``ours`` are without marks."""
    decision = PartitionDecision()
    for name in sorted(ours.keys() | theirs.keys()):
        here, there = ours.get(name), theirs.get(name)
        wanted = facts.of_partition(here, columns=columns) if here else {}
        if there is None:
            if here:
                decision.add.append(_marked(here, owner, wanted))
            continue
        present = facts.of_partition(there, columns=columns)
        if not owner.owns(there.parameters):
            if present != wanted:
                decision.left.append(Left(name, "this listener did not make the partition that is there"))
            continue
        changed = _changed_by_hand(present, there.parameters)
        if changed and present != wanted and not overwrite:
            reason = _by_hand(present, wanted) if here else "it was dropped here, and changed by hand there: it stays"
            decision.left.append(Left(name, reason))
        elif here is None:
            decision.drop.append(name)
        elif present != wanted or changed:
            decision.alter.append(_marked(here, owner, wanted))
    return decision


def decide_function(
    ours: Function | None, theirs: Function | None, written: str | None, *, overwrite: bool
) -> tuple[Decision, str | None]:
    """Functions have no parameters: ``written`` is the digest that the listener remembers; None: it made none.

    Returns what to remember before the calls, too.
    """
    wanted = None if ours is None else facts.of_function(ours)
    there = None if theirs is None else facts.of_function(theirs)
    if theirs is None or there is None:
        if ours is None or wanted is None:
            return EQUAL, None
        create = Call("create_function", {"func": ours})
        return Decision("the function is missing there", (create,)), facts.digest(wanted)
    if written is None:
        same = wanted is None or wanted == there
        return EQUAL if same else _left("there is a function of that name which this listener did not make"), None
    if wanted == there and wanted is not None:
        return EQUAL, facts.digest(wanted)
    if facts.digest(there) != written and not overwrite:
        if wanted is None:
            return _left("the function was dropped here, and changed by hand there: it stays"), written
        return _left(_by_hand(there, wanted)), written
    name = {"dbName": theirs.dbName, "funcName": theirs.functionName}
    if ours is None or wanted is None:
        return Decision("the function was dropped here", (Call("drop_function", name),), replaces=True), None
    alter = Call("alter_function", name | {"newFunc": ours})
    return Decision(facts.differences(there, wanted), (alter,)), facts.digest(wanted)


def altered_table(table: Table, name: str | None = None) -> Call:
    """The call that replaces the table ``name`` (None: of the same name) by ``table``. No file is looked at."""
    return Call(
        "alter_table_with_environment_context",
        {
            "dbname": table.dbName,
            "tbl_name": name or table.tableName,
            "new_tbl": table,
            "environment_context": EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"}),
        },
    )


def _altered(
    wanted: Facts,
    there: Facts,
    parameters: Mapping[str, str] | None,
    owner: Owner,
    overwrite: bool,
    calls: tuple[Call, ...],
) -> Decision:
    """For an object of the listener that exists on both sides."""
    marks = _marks(owner, wanted)
    if there == wanted and all((parameters or {}).get(name) == mark for name, mark in marks.items()):
        return EQUAL
    if there != wanted and _changed_by_hand(there, parameters) and not overwrite:
        return _left(_by_hand(there, wanted))
    return Decision(facts.differences(there, wanted) or "its marks are those of another time", calls)


def _changed_by_hand(there: Facts, parameters: Mapping[str, str] | None) -> bool:
    return facts.digest(there) != (parameters or {}).get(WRITTEN_MARK)


def _by_hand(there: Facts, wanted: Facts) -> str:
    return f"it was changed by hand there and is not mirrored any more: {facts.differences(there, wanted)}"


def _left(reason: str) -> Decision:
    return Decision(reason, left=True)


def _marks(owner: Owner, wanted: Facts) -> dict[str, str]:
    return {OWNER_MARK: owner.tag, WRITTEN_MARK: facts.digest(wanted)}


def _marked(partition: Partition, owner: Owner, wanted: Facts) -> Partition:
    partition.parameters = dict(partition.parameters or {}) | _marks(owner, wanted)
    return partition


def _drop(table: Table) -> Call:
    return Call("drop_table", {"dbname": table.dbName, "name": table.tableName, "deleteData": False})


def _as_new(create: Call) -> Call:
    """The creation of a table that has no partitions yet."""
    table: Any = copy_of(create.args["tbl"])
    for name in (VERSION_MARK, EPOCH_MARK):
        table.parameters.pop(name, None)
    return Call(create.method, {"tbl": table})
