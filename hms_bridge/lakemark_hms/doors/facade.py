"""Looks doors up, gives directories to statements, and ends statements by the calls that Spark makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from time import monotonic
from typing import Final, cast

from lakemark_core.errors import (
    BranchNotFound,
    DatabaseNotFound,
    TableNotFound,
    Unavailable,
    UnknownOutcome,
    UnsupportedOperation,
)
from lakemark_core.merge_sql import check_delta_names
from lakemark_core.storage import in_scheme
from lakemark_hms.doors.names import DoorName, door_names, door_of
from lakemark_hms.doors.tables import ENDING_CALLS, calls_that_it_stands_for, door_table, ends_a_statement
from lakemark_hms.objects import sent_location
from lakemark_hms.request_heads import AddPartitionsHead
from lakemark_hms.wire.codec import WireError
from lakemark_hms.wire.dispatch import Call, Handler, RefusedError, Run, Session
from lakemark_hms.wire.splice import encode_struct
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.doors.service import ConnectionCalls, Door, Doors, DoorSession, StatementRefused
from lakemark_server.doors.statements import CHANGES, DoorKind
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_thrift.ttypes import Table

_USE: Final = "doors"
_ADDS_PARTITIONS: Final = "add_partitions_req"
_AT_END: Final[Mapping[str, tuple[str, str]]] = {
    "get_database": ("name", ""),
    "get_database_req": ("request.name", ""),
    "get_table": ("tbl_name", ""),
    "get_table_req": ("req.tblName", ""),
    _ADDS_PARTITIONS: ("request.tblName", ""),
    **ENDING_CALLS,
}
"""The calls that Spark makes between the end of a job and the end of its statement, and where they have the name of
the table or its database, and the changed table."""


@dataclass(slots=True)
class _DoorUse:
    """What a connection did with doors. ``names``: the doors that were looked up, by name and by database."""

    sessions: dict[Door, DoorSession] = field(default_factory=dict)
    names: dict[str, set[Door]] = field(default_factory=dict)
    calls: ConnectionCalls = field(default_factory=ConnectionCalls)


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

        Raises UnsupportedOperation if rows cannot come into the table this way, with the way in which they can;
        InvalidSchema if a column has a name that deltas need.
        """
        kind = _open_kind(door)
        table = door.table
        if kind in CHANGES:
            check_delta_names(table.schema, table.name)
        location = self._doors.give(self._session(door, kind, session), table, door.version)
        schema = table.kind.deletes_schema(table.schema) if kind == "delete" else table.schema
        return encode_struct(door_table(table, door.name, schema, in_scheme(location, self._schemes)))

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
        use = cast(_DoorUse, session.data.setdefault(_USE, _DoorUse()))
        for name in (door.name, door.table.record.database):
            use.names.setdefault(name, set()).add(key)
        if key not in use.sessions:
            host = session.peer.rpartition(":")[0]
            use.sessions[key] = self._doors.begin(key, f"{session.user or ''}@{host}", use.calls)
        return use.sessions[key]

    def watched(self, run: Run) -> Run:
        """``run``, but that notes are taken for statements through doors: when calls of the connection were worked on,
        if one fails that a statement makes after its job, and if one has added partitions."""

        def run_watched(call: Call, handler: Handler) -> object:
            use = cast("_DoorUse | None", call.session.data.get(_USE))
            began = monotonic()
            try:
                answer = run(call, handler)
            except StatementRefused:
                raise  # it has taken its own note
            except Exception:
                self._note_failure(call, began)
                raise
            else:
                if use is not None and call.name == _ADDS_PARTITIONS:
                    self._note_partitions(use, call, began)
                return answer
            finally:
                if use is not None:
                    use.calls.add(began, monotonic())

        return run_watched

    def _note_partitions(self, use: _DoorUse, call: Call, began_s: float) -> None:
        """For the door that the call names, if it names one."""
        name = call.read(AddPartitionsHead).request.tblName or ""
        for door in use.names.get(name.lower(), ()):
            if door in use.sessions:
                self._doors.note_partitions(use.sessions[door], began_s, monotonic())

    def _note_failure(self, call: Call, began_s: float) -> None:
        """For the doors that the call may be about. A change that no statement ends with is not noted."""
        use = cast("_DoorUse | None", call.session.data.get(_USE))
        paths = _AT_END.get(call.name)
        if use is None or paths is None:
            return
        try:
            name, changed = (attrgetter(path)(call.args) if path else None for path in paths)
        except (WireError, AttributeError):  # the name may be any
            name, changed = None, None
        if changed is not None and not ends_a_statement(changed):
            return
        location = changed.sd.location if changed is not None and changed.sd is not None else None
        doors = use.names.get(name.rpartition("#")[2].lower(), ()) if name else use.sessions
        for door in list(doors):
            if door in use.sessions:
                self._doors.note_failure(use.sessions[door], began_s, location or "")


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
    wanted, kind = door.wanted.kind, door.table.kind
    why = _why_not_with_key(door) if kind.key else _why_not_without_key(door)
    if why:
        raise UnsupportedOperation(f"{door.label}: {why}", table=door.table.name)
    return cast(DoorKind, wanted)


def _why_not_without_key(door: NamedDoor) -> str:
    wanted, table = door.wanted.kind, door.table.name
    if wanted in ("append", "overwrite"):
        return ""
    if wanted == "insert":
        return f"{table} has no key: use {door.beside('append')}"
    way = "lakemark_spark.delete" if wanted == "delete" else "lakemark_spark.upsert"
    return (
        f"{table} has no key by which its rows could be found (lakemark.primary-key): use {way} or "
        "lakemark_spark.merge; in plain SQL rows are added to it and replaced"
    )


def _why_not_with_key(door: NamedDoor) -> str:
    wanted, table, kind = door.wanted.kind, door.table.name, door.table.kind
    keyed = f"{table} has a key ({', '.join(kind.key)})"
    upserts = kind.merges_on_read and kind.merge_by == "row"
    if wanted == "append":
        way = door.beside("upsert") if upserts else "lakemark_spark.upsert"
        return f"{keyed}, and appended rows could have one that is there already: use {way}"
    if wanted == "insert":
        way = f", or {door.beside('upsert')}, which replaces those that are there" if upserts else ""
        return f"{keyed}, and which rows are there already is told by reading them: use lakemark_spark.insert{way}"
    if wanted == "overwrite":
        if kind.buckets:
            return ""
        return f"{keyed} and no buckets, so keys that rows share are not told by buckets: use lakemark_spark.overwrite"
    delete = "lakemark_spark.delete_keys" if kind.buckets else "lakemark_spark.delete"
    way = delete if wanted == "delete" else "lakemark_spark.upsert"
    if not kind.merges_on_read:
        return (
            f"{table} is copy-on-write, so files with changed rows are written again: use {way} or "
            "lakemark_spark.merge; tables that are merged on read (lakemark.write.mode) have such a door"
        )
    if wanted == "upsert" and not upserts:
        return (
            f"{table} is merged by column, and a statement does not tell which columns it leaves as they are: use {way}"
        )
    return ""
