"""The event type of Hive that each event is told as. Pure; docs/hms.md has the table and its reasons."""

from __future__ import annotations

from typing import Final

from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.catalog.client_notes import INSERTED, REFRESHED, WRITTEN

INSERT: Final = "INSERT"
ACID_WRITE: Final = "ACID_WRITE_EVENT"
RELOAD: Final = "RELOAD"
ALTER_PARTITION: Final = "ALTER_PARTITION"

OWN_PREFIX: Final = "LAKEMARK_"
"""Before the kind of an event for which Hive has no type. Hive's readers skip types that they do not know."""

_MAIN: Final = "main"

_TYPES: Final = {
    pb.DATABASE_CREATED: "CREATE_DATABASE",
    pb.DATABASE_ALTERED: "ALTER_DATABASE",
    pb.DATABASE_DROPPED: "DROP_DATABASE",
    pb.TABLE_CREATED: "CREATE_TABLE",
    pb.TABLE_ALTERED: "ALTER_TABLE",
    pb.TABLE_RENAMED: "ALTER_TABLE",
    pb.TABLE_DROPPED: "DROP_TABLE",
    pb.TABLE_UNDROPPED: "CREATE_TABLE",
    pb.SCHEMA_CHANGED: "ALTER_TABLE",
    pb.TABLE_TRUNCATED: "ALTER_TABLE",
    pb.PARTITIONS_ADDED: "ADD_PARTITION",
    pb.PARTITIONS_ALTERED: ALTER_PARTITION,
    pb.PARTITIONS_TRUNCATED: ALTER_PARTITION,
    pb.PARTITIONS_DROPPED: "DROP_PARTITION",
    pb.CONSTRAINT_DROPPED: "DROP_CONSTRAINT",
    pb.FUNCTION_CREATED: "CREATE_FUNCTION",
    pb.FUNCTION_DROPPED: "DROP_FUNCTION",
}
OF_CONSTRAINTS: Final = {
    "PRIMARY_KEY": "ADD_PRIMARYKEY",
    "FOREIGN_KEY": "ADD_FOREIGNKEY",
    "UNIQUE": "ADD_UNIQUECONSTRAINT",
    "NOT_NULL": "ADD_NOTNULLCONSTRAINT",
    "DEFAULT": "ADD_DEFAULTCONSTRAINT",
    "CHECK": "ADD_CHECKCONSTRAINT",
}
"""By the type of constraints that were added."""

_OF_PARTITIONS: Final = frozenset(
    {pb.PARTITIONS_ADDED, pb.PARTITIONS_ALTERED, pb.PARTITIONS_TRUNCATED, pb.PARTITIONS_DROPPED}
)
_NOTES: Final = {INSERTED: INSERT, WRITTEN: ACID_WRITE, REFRESHED: RELOAD}


def event_type(event: Event) -> str:
    """The type of the event's notification."""
    kind = event.kind
    if kind == pb.COMMITTED and event.commit.branch == _MAIN:
        return INSERT
    if kind in _OF_PARTITIONS:
        return INSERT if _is_too_much(event) else _TYPES[kind]
    if kind == pb.STATISTICS_CHANGED:
        change = event.statistics_change
        what = "DELETE" if change.deleted else "UPDATE"
        return f"{what}_PART_COL_STAT_EVENT" if change.partition else f"{what}_TBL_COL_STAT_EVENT"
    if kind == pb.CONSTRAINTS_ADDED:
        added = event.constraints_change.constraints
        return OF_CONSTRAINTS.get(added[0].type if added else "") or own_type(kind)
    if kind == pb.CONSTRAINT_DROPPED and event.constraints_change.with_parent:
        return own_type(kind)  # Hive tells only of the parent
    if kind == pb.CLIENT_NOTED and event.note.what in _NOTES:
        return _NOTES[event.note.what]
    return _TYPES.get(kind) or own_type(kind)


def own_type(kind: pb.EventKind.ValueType) -> str:
    """The type of an event of which Hive knows nothing."""
    try:
        return OWN_PREFIX + pb.EventKind.Name(kind)
    except ValueError:  # a kind of a later release
        return f"{OWN_PREFIX}EVENT_{kind}"


def _is_too_much(event: Event) -> bool:
    """Whether no message of Hive can hold what has changed, so that readers have to read the table anew."""
    change = event.partitions_change
    listed = len(change.partitions)
    return listed < change.count or (_TYPES[event.kind] == ALTER_PARTITION and listed != 1)
