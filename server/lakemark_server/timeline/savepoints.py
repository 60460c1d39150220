"""Savepoints: versions that cleaning keeps, with an instant of their own on the timeline (the name is Hudi's)."""

from __future__ import annotations

from functools import partial

from lakemark_core.errors import AlreadyExists, NotFound, VersionNotFound
from lakemark_proto.store.v1.store_pb2 import InstantRecord, TagRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1.events_pb2 import SAVEPOINT_CREATED, SAVEPOINT_DROPPED
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.store.keyspace import SAVEPOINTS
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.timeline import events, records
from lakemark_server.timeline.branches import forks, retention
from lakemark_server.timeline.lineage import Lineage


class Savepoints:
    """Thread-safe; holds no state that another process would need."""

    def __init__(self, mutations: Mutations) -> None:
        self._mutations = mutations
        self._store = mutations.store

    def create(
        self,
        table: LakeTable,
        version: int = 0,
        *,
        branch: str = "",
        comment: str = "",
        request_id: str = "",
        owner: str = "",
    ) -> InstantRecord:
        """Keeps a version of a branch (empty: main); 0: the latest. Returns the savepoint's instant.

        Raises VersionNotFound, BranchNotFound, AlreadyExists.
        """
        kind = f"CreateSavepoint of table {table.table_id}"
        create = partial(_create, table, branch, version, comment, owner, request_id)
        return self._mutations.once(request_id, kind, InstantRecord, create).answer

    def drop(self, table: LakeTable, version: int, *, branch: str = "", request_id: str = "") -> InstantRecord:
        """Returns the savepoint's instant, which is rolled back now. Raises NotFound, BranchNotFound."""
        kind = f"DropSavepoint of table {table.table_id}"
        return self._mutations.once(
            request_id, kind, InstantRecord, partial(_drop, table, branch, version, request_id)
        ).answer

    def find(self, table: LakeTable) -> list[TagRecord]:
        """The savepoints of a table, in order of branch and version."""
        return self._store.read(lambda tx: retention.savepoints(tx, table.table_id))


def _create(
    table: LakeTable, branch: str, version: int, comment: str, owner: str, request_id: str, mutation: Mutation
) -> InstantRecord:
    tx, now_ms = mutation.tx, mutation.now_ms
    table_id, lineage = table.table_id, forks.resolve(tx, table.table_id, branch)
    latest = records.head(tx, table_id, lineage.key).version
    version = version or latest
    if not 1 <= version <= latest:
        raise VersionNotFound(
            f"{table.name} has no version {version} that could be kept; the latest is {latest}", version=str(version)
        )
    retention.require_readable(tx, table_id, table.name, lineage, version)
    place = _key(table_id, lineage, version)
    if tx.get(place) is not None:
        raise AlreadyExists(f"version {version} of {table.name} already has a savepoint")
    key = lineage.owner(version)
    record = InstantRecord(
        instant=records.next_instant(tx, table_id, now_ms),
        branch=key,
        operation=pb.MAKE_SAVEPOINT,
        state=pb.COMPLETED,
        read_version=version,
        opened_ms=now_ms,
        completed_ms=now_ms,
        owner=owner,
        metadata={"comment": comment[:1_000]} if comment else {},
    )
    records.put_instant(tx, table_id, record)
    savepoint = TagRecord(
        name=f"savepoint of version {version}",
        branch_key=key,
        branch_name=forks.name_of(key),
        version=version,
        created_ms=now_ms,
        comment=comment[:1_000],
        savepoint_instant=record.instant,
    )
    tx.set(place, savepoint.SerializeToString())
    mutation.tell(events.of_savepoint(SAVEPOINT_CREATED, table.record, record, request_id))
    return record


def _drop(table: LakeTable, branch: str, version: int, request_id: str, mutation: Mutation) -> InstantRecord:
    tx = mutation.tx
    lineage = forks.resolve(tx, table.table_id, branch)
    place = _key(table.table_id, lineage, version)
    stored = tx.get(place)
    if stored is None:
        raise NotFound(f"version {version} of {table.name} has no savepoint", version=str(version))
    tx.clear(place)
    record = records.instant(tx, table.table_id, TagRecord.FromString(stored).savepoint_instant)
    record.state = pb.ROLLED_BACK
    record.completed_ms = mutation.now_ms
    record.rolled_back_reason = "the savepoint was dropped"
    records.put_instant(tx, table.table_id, record)
    mutation.tell(events.of_savepoint(SAVEPOINT_DROPPED, table.record, record, request_id))
    return record


def _key(table_id: int, lineage: Lineage, version: int) -> bytes:
    return SAVEPOINTS.key(table_id, lineage.owner(version), version)
