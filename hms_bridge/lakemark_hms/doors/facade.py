"""Looks doors up, gives directories to statements, and ends statements by the calls that Spark makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from lakemark_core.errors import (
    BranchNotFound,
    DatabaseNotFound,
    TableNotFound,
    Unavailable,
    UnknownOutcome,
    UnsupportedOperation,
)
from lakemark_core.storage import in_scheme
from lakemark_hms.doors.names import DoorName, door_names, door_of
from lakemark_hms.doors.tables import calls_that_it_stands_for, door_table, ends_a_statement
from lakemark_hms.objects import sent_location
from lakemark_hms.wire.dispatch import RefusedError, Session
from lakemark_hms.wire.splice import encode_struct
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.doors.publication import DoorKind
from lakemark_server.doors.service import Door, Doors, DoorSession
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_thrift.ttypes import Table

_SESSIONS: Final = "doors"


@dataclass(frozen=True, slots=True)
class NamedDoor:
    """What a name such as ``t__append`` stands for. ``version``: the latest one of its branch."""

    name: str
    wanted: DoorName
    table: LakeTable
    version: int

    @property
    def label(self) -> str:
        return f"{self.table.record.database}.{self.name}"

    def beside(self, kind: str) -> str:
        """The name of another door of the table."""
        return f"{self.table.record.database}.{door_of(self.wanted.table, kind, self.wanted.branch)}"


class DoorFacade:
    """Thread-safe. ``engine_schemes``: in which schemes locations are answered, by those that they have."""

    def __init__(self, doors: Doors, snapshots: Snapshots, engine_schemes: dict[str, str] | None = None) -> None:
        self._doors = doors
        self._snapshots = snapshots
        self._schemes = engine_schemes or {}

    def find(self, database: DatabaseRecord, name: str) -> NamedDoor | None:
        """None if the name is not that of a door of a lake table."""
        for wanted in door_names(name):
            try:
                resolved = self._snapshots.resolve(
                    database.catalog, database.name, wanted.table, SnapshotReference(branch=wanted.branch)
                )
            except (DatabaseNotFound, TableNotFound, BranchNotFound, UnsupportedOperation):
                continue
            return NamedDoor(name, wanted, resolved.table, resolved.version)
        return None

    def table(self, door: NamedDoor, session: Session | None) -> bytes:
        """The serialized Thrift table, at a directory that nobody else is given.

        Raises UnsupportedOperation if rows cannot come into the table this way, with the way in which they can.
        """
        kind = _open_kind(door)
        location = self._doors.give(self._session(door, kind, session), door.table, door.version)
        return encode_struct(door_table(door.table, door.name, in_scheme(location, self._schemes)))

    def alter(self, door: NamedDoor, new: Table) -> None:
        """Ends a statement; other changes are refused. Returns once its rows are committed.

        Raises StatementRefused; RefusedError, which clients take for a temporary failure, if it has to be asked again.
        """
        if not ends_a_statement(new) or (new.tableName or "").lower() != door.name:
            raise door_error(door)
        kind = _open_kind(door)
        try:
            self._doors.end(
                Door(door.table.table_id, kind, door.wanted.branch),
                sent_location(new),
                door.beside("overwrite"),
                calls_that_it_stands_for(new, partitioned=bool(door.table.schema.partition_columns)),
            )
        except (Unavailable, UnknownOutcome) as error:
            raise RefusedError(f"{door.label}: {error.message}; ask again") from error

    def _session(self, door: NamedDoor, kind: DoorKind, session: Session | None) -> DoorSession:
        key = Door(door.table.table_id, kind, door.wanted.branch)
        if session is None:
            return self._doors.begin(key, "")
        known = cast("dict[Door, DoorSession]", session.data.setdefault(_SESSIONS, {}))
        if key not in known:
            host = session.peer.rpartition(":")[0]
            known[key] = self._doors.begin(key, f"{session.user or ''}@{host}")
        return known[key]


def door_error(door: NamedDoor) -> UnsupportedOperation:
    """For calls that an INSERT with Spark's own writer does not make."""
    return UnsupportedOperation(
        f"{door.label} is a door into lake table {door.table.name}: rows are inserted into it by Spark's own writer "
        "(spark.sql.hive.convertMetastoreParquet must be true), and nothing else is done with it; see "
        "docs/sql-writes.md",
        table=door.label,
    )


def _open_kind(door: NamedDoor) -> DoorKind:
    """Raises UnsupportedOperation if the table has no such door, with what to use instead."""
    kind, table = door.table.kind, door.table.name
    if door.wanted.kind in ("append", "overwrite"):
        if not kind.key:
            return cast(DoorKind, door.wanted.kind)
        what = (
            "appended rows could have one that is there already"
            if door.wanted.kind == "append"
            else ("rows have to be looked at for keys that they share")
        )
        way = "lakemark_spark.upsert" if door.wanted.kind == "append" else "lakemark_spark.overwrite"
        raise UnsupportedOperation(
            f"{door.label}: {table} has a key ({', '.join(kind.key)}), and {what}: use {way}", table=table
        )
    if not kind.key and door.wanted.kind == "insert":
        raise UnsupportedOperation(f"{door.label}: {table} has no key: use {door.beside('append')}", table=table)
    way = "lakemark_spark.delete" if door.wanted.kind == "delete" else "lakemark_spark.upsert"
    raise UnsupportedOperation(
        f"{door.label}: rows of {table} are changed through {way} or lakemark_spark.merge; in plain SQL rows are added "
        "and replaced, in tables without a key",
        table=table,
    )
