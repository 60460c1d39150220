"""Databases, tables, instants and versions, as plain objects."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from lakemark.arguments import Natural, Number64
from lakemark_core.errors import InvalidArgument
from lakemark_core.messages.types import schema_from_proto
from lakemark_core.table_kind import TableKind, kind_of
from lakemark_core.types import Schema
from lakemark_proto.v1 import catalog_pb2, snapshot_pb2, timeline_pb2

Operation: TypeAlias = Literal[
    "append",
    "upsert",
    "delete",
    "overwrite_partitions",
    "overwrite_predicate",
    "overwrite_table",
    "compact",
    "cluster",
]
"""What a writer does (docs/conflicts.md); "overwrite_partitions" replaces whole partitions."""

InstantState: TypeAlias = Literal["requested", "inflight", "completed", "rolled_back"]


@dataclass(frozen=True, slots=True)
class Database:
    name: str
    location: str
    description: str = ""
    owner: str = ""
    properties: Mapping[str, str] | None = None
    catalog: str = ""


@dataclass(frozen=True, slots=True)
class TableSummary:
    """A table's name and kind. ``kind`` is "lake" or "warehouse" (a Hive table)."""

    name: str
    kind: str
    hive_type: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table. ``version`` is the latest; 0: nothing was committed. ``schema`` is None for warehouse tables.

    ``bucket_directory``: of an extendible index (docs/keyed-tables.md); empty: as the table was created.
    """

    name: str
    kind: str
    location: str
    schema: Schema | None
    properties: Mapping[str, str]
    version: int
    conflict_policy: str
    owner: str
    comment: str
    created_ms: int
    table_id: int
    bucket_directory: bytes = b""

    @property
    def table_kind(self) -> TableKind:
        """How rows are told apart and changed, as the properties say it."""
        return kind_of(self.properties, self.bucket_directory)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A schema, the version of the table that it came with, and what it changed, in words.

    Version 0: the table was created with it.
    """

    schema: Schema
    version: int
    committed_ms: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Instant:
    """An action on a table's timeline. Times are milliseconds since 1970. ``version`` is 0 until it is completed.

    ``conflict_code``: of the error with which its commit was refused; "" if it was not.
    """

    instant: int
    operation: str
    state: InstantState
    read_version: int
    version: int
    completed_ms: int
    heartbeat_ms: int
    staged_files: int
    staged_rows: int
    staged_bytes: int
    owner: str
    metadata: Mapping[str, str]
    rolled_back_reason: str
    action: str = ""
    branch: str = "main"
    removed_files: int = 0
    conflict_code: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A branch or a tag. ``version``: a branch's latest, or what a tag keeps. ``retain_ms`` 0: for ever."""

    name: str
    kind: Literal["branch", "tag"]
    version: int
    parent: str
    fork_version: int
    created_ms: int
    retain_ms: int


@dataclass(frozen=True, slots=True)
class Merge:
    """The result of a merge: one ``version`` of the target branch with the changes of ``replayed`` versions.

    ``fast_forward``: both branches have the same content now.
    """

    version: int
    replayed: int
    fast_forward: bool = False


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A version that cleaning keeps. ``instant`` is the savepoint's own."""

    branch: str
    version: int
    comment: str
    created_ms: int
    instant: int


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of cleaning: versions before ``earliest_version`` have ended, except ``kept_versions``.

    ``instant`` 0: nothing was done.
    """

    earliest_version: int
    expired_versions: int
    files: int
    bytes: int
    instant: int
    kept_versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version. ``partitions`` are the names of those written; None: all, or too many to list.

    ``schema_id``: the schema that it is read with.
    """

    version: int
    instant: int
    committed_ms: int
    operation: str
    read_version: int
    added_files: int
    added_rows: int
    added_bytes: int
    owner: str
    metadata: Mapping[str, str]
    partitions: tuple[str, ...] | None
    removed_files: int = 0
    removed_rows: int = 0
    removed_bytes: int = 0
    restored_version: int = 0
    merged_branch: str = ""
    schema_id: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """A published version. ``rebased_over``: how many versions of others were published since the writer began."""

    version: int
    instant: int
    committed_ms: int
    rebased_over: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of a table as a whole. Version 0 is the table before its first commit."""

    version: int
    instant: int
    committed_ms: int
    schema: Schema
    files: int
    rows: int
    bytes: int
    location: str
    operation: str


@dataclass(frozen=True, slots=True)
class SnapshotOf:
    """A reference to a snapshot of a table, with the same fields as the arguments of ``Client.snapshot``."""

    table: str
    version: Natural | None = None
    timestamp: dt.datetime | Number64 | str | None = None
    branch: str = ""
    tag: str = ""


def database_from(message: catalog_pb2.Database) -> Database:
    """A database, from a message."""
    return Database(
        message.name,
        message.location,
        message.description,
        message.owner,
        dict(message.properties),
        message.catalog,
    )


def table_from(message: catalog_pb2.Table) -> Table:
    """A table, from a message."""
    lake = message.kind == catalog_pb2.LAKE
    policy = catalog_pb2.ConflictPolicy.Name(message.conflict_policy)
    return Table(
        name=f"{message.name.database}.{message.name.table}",
        kind=_word(catalog_pb2.TableKind.Name(message.kind)),
        location=message.location,
        schema=schema_from_proto(message.schema) if lake else None,
        properties=dict(message.properties),
        version=message.version,
        conflict_policy=_word(policy.removeprefix("CONFLICT_")) if message.conflict_policy else "",
        owner=message.owner,
        comment=message.comment,
        created_ms=message.created_ms,
        table_id=message.table_id,
        bucket_directory=message.bucket_directory,
    )


def schema_version_from(message: catalog_pb2.SchemaVersion) -> SchemaVersion:
    """A schema and its version, from a message."""
    schema = schema_from_proto(message.schema)
    return SchemaVersion(schema, message.version, message.committed_ms, tuple(message.changes))


def instant_from(message: timeline_pb2.Instant) -> Instant:
    """An instant, from a message."""
    return Instant(
        instant=message.instant,
        operation=operation_word(message.operation),
        state=state_word(message.state),
        read_version=message.read_version,
        version=message.version,
        completed_ms=message.completed_ms,
        heartbeat_ms=message.heartbeat_ms,
        staged_files=message.staged_files,
        staged_rows=message.staged_rows,
        staged_bytes=message.staged_bytes,
        owner=message.owner,
        metadata=dict(message.metadata),
        rolled_back_reason=message.rolled_back_reason,
        action=timeline_pb2.Action.Name(message.action).lower() if message.action else "",
        branch=message.branch,
        removed_files=message.removed_files,
        conflict_code=message.conflict_code,
    )


def version_from(message: timeline_pb2.Version) -> Version:
    """A version, from a message."""
    return Version(
        version=message.version,
        instant=message.instant,
        committed_ms=message.committed_ms,
        operation=operation_word(message.operation),
        read_version=message.read_version,
        added_files=message.added_files,
        added_rows=message.added_rows,
        added_bytes=message.added_bytes,
        owner=message.owner,
        metadata=dict(message.metadata),
        partitions=None if message.all_partitions else tuple(message.partitions),
        removed_files=message.removed_files,
        removed_rows=message.removed_rows,
        removed_bytes=message.removed_bytes,
        restored_version=message.restored_version,
        merged_branch=message.merged.branch,
        schema_id=message.schema_id,
    )


def savepoint_from(message: timeline_pb2.ListSavepointsResponse.Savepoint) -> Savepoint:
    """A savepoint, from a message."""
    return Savepoint(message.branch, message.version, message.comment, message.created_ms, message.instant)


def cleaned_from(message: timeline_pb2.CleanResponse) -> Cleaned:
    """The result of cleaning, from a message."""
    return Cleaned(
        message.earliest_version,
        message.expired_versions,
        message.files,
        message.bytes,
        message.instant,
        tuple(message.kept_versions),
    )


def reference_from(message: catalog_pb2.Reference) -> Reference:
    """A branch or tag, from a message."""
    return Reference(
        name=message.name,
        kind="branch" if message.kind == catalog_pb2.BRANCH else "tag",
        version=message.version,
        parent=message.parent,
        fork_version=message.fork_version,
        created_ms=message.created_ms,
        retain_ms=message.retain_ms,
    )


def commit_from(message: timeline_pb2.CommitResponse) -> Commit:
    """A published version, from a message."""
    return Commit(message.version, message.instant, message.committed_ms, message.rebased_over)


def snapshot_from(message: snapshot_pb2.Snapshot) -> Snapshot:
    """A snapshot, from a message."""
    return Snapshot(
        version=message.version,
        instant=message.instant,
        committed_ms=message.committed_ms,
        schema=schema_from_proto(message.schema),
        files=message.files,
        rows=message.rows,
        bytes=message.bytes,
        location=message.location,
        operation=operation_word(message.operation),
    )


def operation_word(value: timeline_pb2.Operation.ValueType) -> str:
    """The operation in lower case, as in ``Operation``."""
    return _word(timeline_pb2.Operation.Name(value)) if value else ""


def state_word(value: timeline_pb2.InstantState.ValueType) -> InstantState:
    """The state in lower case, as in ``InstantState``."""
    word = _word(timeline_pb2.InstantState.Name(value))
    for known in get_args(InstantState):
        if word == known:
            return known  # type: ignore[no-any-return]
    raise InvalidArgument(f"the service answers with the state {word!r}, which this release does not know")


def operation_value(operation: Operation) -> timeline_pb2.Operation.ValueType:
    """The enum value of an operation. Raises InvalidArgument for another word."""
    if operation not in get_args(Operation):
        raise InvalidArgument(f"operation {operation!r} is not one of {', '.join(get_args(Operation))}")
    return timeline_pb2.Operation.Value(operation.upper())


def milliseconds(moment: dt.datetime | int | str) -> int:
    """Milliseconds since 1970, from such a number, a datetime or ISO text. Times without a zone are UTC."""
    if isinstance(moment, int):
        return moment
    if isinstance(moment, str):
        try:
            moment = dt.datetime.fromisoformat(moment)
        except ValueError:
            raise InvalidArgument(f"{moment!r} is not a time; write for instance 2026-11-20T10:00:00") from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def _word(name: str) -> str:
    return name.lower()
