"""Branches and tags as users handle them: create, list, drop, merge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, cast

import structlog
from google.protobuf.empty_pb2 import Empty

from lakemark_core.errors import InvalidArgument, InvalidName, NotFound, VersionNotFound
from lakemark_proto.store.v1.store_pb2 import BranchRecord, HeadRecord, LakeTableRecord, MergedRecord, TagRecord
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import caller
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import EXPIRING, MAIN
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.timeline import events, records
from lakemark_server.timeline.branches import forks, retention
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.lineage import Lineage
from lakemark_server.timeline.publication import direct
from lakemark_server.timeline.publication.table_state import TableState

EXPIRED_AT_ONCE_MAX: Final = 100

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReferenceDraft:
    """A branch or tag to create.

    ``from_branch`` "": main; ``from_version`` 0: the latest of that branch; ``retain_ms`` 0: for ever.
    """

    name: str
    kind: pb.ReferenceKind.ValueType
    from_branch: str = ""
    from_version: int = 0
    retain_ms: int = 0
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class MergeDraft:
    """A merge of ``branch`` into another one; "": main."""

    branch: str
    into: str = ""
    fast_forward_only: bool = False
    request_id: str = ""


class Merged(NamedTuple):
    """A merge that was made. ``replayed``: how many versions; ``fast_forward``: both branches are the same now."""

    version: int
    replayed: int
    fast_forward: bool


class References:
    """Branches and tags of tables; they are told as the data message ``Reference``, which is also what is recorded.

    Thread-safe; holds no state that another process would need.
    """

    def __init__(self, mutations: Mutations, log: ChangeLog) -> None:
        self._mutations = mutations
        self._store = mutations.store
        self._log = log

    def create(self, table: LakeTable, draft: ReferenceDraft) -> pb.Reference:
        """Makes a tag, which keeps a version, or a branch, which goes on from a version. Costs O(1).

        Raises InvalidName, AlreadyExists, BranchNotFound, VersionNotFound, InvalidArgument, LimitExceeded.
        """
        if draft.retain_ms < 0 or draft.from_version < 0:
            raise InvalidArgument("retain_ms and from_version must not be negative")
        if draft.kind not in (pb.BRANCH, pb.TAG):
            raise InvalidArgument("kind is missing: say BRANCH or TAG")

        kind = f"CreateReference of table {table.table_id}"
        return self._mutations.once(draft.request_id, kind, pb.Reference, partial(_create, table, draft)).answer

    def find(self, table: LakeTable, kind: int = pb.REFERENCE_KIND_UNSPECIFIED) -> list[pb.Reference]:
        """Branches and tags, or only those of one ``kind``, in order of name and main first."""

        def body(tx: ReadTransaction) -> list[pb.Reference]:
            table_id = table.table_id
            references = []
            if kind != pb.TAG:
                main = pb.Reference(name=MAIN, kind=pb.BRANCH, version=records.head(tx, table_id, MAIN).version)
                references = [main, *(_of_branch(tx, table_id, branch) for branch in forks.branches(tx, table_id))]
            if kind != pb.BRANCH:
                references += [_of_tag(tag) for tag in forks.tags(tx, table_id)]
            return sorted(references, key=lambda reference: (reference.name != MAIN, reference.name))

        return self._store.read(body)

    def drop(
        self, table: LakeTable, name: str, request_id: str = "", kind: int = pb.REFERENCE_KIND_UNSPECIFIED
    ) -> None:
        """Drops a branch or a tag. Writers in flight on a dropped branch cannot commit.

        ``kind``: what it must be; unspecified: either.

        Raises BranchNotFound, NotFound (there is no such tag), InvalidName (main).
        """
        if name in ("", MAIN) and kind != pb.TAG:
            raise InvalidName("main cannot be dropped; drop the table")

        def body(mutation: Mutation) -> Empty:
            forks.require_kind(mutation.tx, table.table_id, name, kind)
            _drop(mutation, table.record, name, request_id)
            return Empty()

        request_kind = f"DropReference of table {table.table_id}"
        if not self._mutations.once(request_id, request_kind, Empty, body).repeated:
            _log.info("dropped a branch or tag", table=table.name, name=name, by=caller.current())

    def merge(self, table: LakeTable, draft: MergeDraft, owner: str = "") -> Merged:
        """Replays on one branch the versions of another, as one version. Raises what ``direct.merge`` raises."""

        def body(mutation: Mutation) -> MergedRecord:
            state = TableState(mutation, table.table_id)
            version, replayed, fast_forward = direct.merge(
                state,
                draft.branch,
                draft.into,
                fast_forward_only=draft.fast_forward_only,
                owner=owner,
                now_ms=mutation.now_ms,
                log=self._log,
            )
            return MergedRecord(version=version.version, replayed=replayed, fast_forward=fast_forward)

        kind = f"MergeBranch of table {table.table_id}"
        merged = self._mutations.once(draft.request_id, kind, MergedRecord, body).answer
        return Merged(merged.version, merged.replayed, merged.fast_forward)

    def drop_expired(self) -> list[tuple[int, str]]:
        """Drops at most ``EXPIRED_AT_ONCE_MAX`` branches and tags whose ``retain_ms`` is over.

        Returns (table id, name) of each.
        """
        begin, end = EXPIRING.range()[0], EXPIRING.key(self._mutations.clock())
        due = self._store.read(lambda tx: tx.get_range(begin, end, limit=EXPIRED_AT_ONCE_MAX))
        expired = [cast(tuple[int, int, str], EXPIRING.unpack(key)) for key, _ in due]
        return [
            (table_id, name)
            for ms, table_id, name in expired
            if self._mutations.run(partial(_expire, ms, table_id, name))
        ]


def _create(table: LakeTable, draft: ReferenceDraft, mutation: Mutation) -> pb.Reference:
    tx, table_id, name = mutation.tx, table.table_id, draft.name
    forks.check_free(tx, table_id, name)
    lineage = forks.resolve(tx, table_id, draft.from_branch)
    latest = records.head(tx, table_id, lineage.key).version
    version = draft.from_version or latest
    if version > latest:
        raise VersionNotFound(
            f"{table.name} has no version {version} on branch {draft.from_branch or MAIN!r}; the latest is {latest}",
            version=str(version),
            latest=str(latest),
        )
    retention.require_readable(tx, table_id, table.name, lineage, version)
    owner = lineage.at(version)
    parent = forks.name_of(owner.key)
    if draft.kind == pb.TAG:
        if version == 0:
            raise VersionNotFound(f"{table.name} has no version yet that a tag could keep")
        tag = TagRecord(
            name=name,
            branch_key=owner.key,
            branch_name=parent,
            version=version,
            created_ms=mutation.now_ms,
            retain_ms=draft.retain_ms,
        )
        forks.put_tag(tx, table_id, tag)
        _expires(tx, table_id, tag)
        return _told(mutation, table, draft, _of_tag(tag))
    record = BranchRecord(
        name=name,
        key=forks.new_key(name, records.next_instant(tx, table_id, mutation.now_ms)),
        parent_key=owner.key,
        parent_name=parent,
        fork_version=version,
        created_ms=mutation.now_ms,
        retain_ms=draft.retain_ms,
    )
    forks.put_branch(tx, table_id, record, owner)
    _expires(tx, table_id, record)
    _start(tx, table_id, record, owner)
    return _told(mutation, table, draft, _of_branch(tx, table_id, record))


def _told(mutation: Mutation, table: LakeTable, draft: ReferenceDraft, reference: pb.Reference) -> pb.Reference:
    mutation.tell(events.of_reference(table.record, reference, request_id=draft.request_id))
    return reference


def _drop(mutation: Mutation, table: LakeTableRecord, name: str, request_id: str = "") -> None:
    tx, table_id = mutation.tx, table.table_id
    record = forks.named(tx, table_id, name)
    reference = _of_tag(record) if isinstance(record, TagRecord) else _of_branch(tx, table_id, record)
    forks.drop(tx, table_id, name)
    mutation.tell(events.of_reference(table, reference, dropped=True, request_id=request_id))


def _expires(tx: Transaction, table_id: int, record: BranchRecord | TagRecord) -> None:
    if record.retain_ms:
        tx.set(EXPIRING.key(record.created_ms + record.retain_ms, table_id, record.name), b"")


def _expire(ms: int, table_id: int, name: str, mutation: Mutation) -> bool:
    """Drops the branch or tag if it still ends at ``ms``; False if it was dropped, or created anew, meanwhile."""
    tx = mutation.tx
    tx.clear(EXPIRING.key(ms, table_id, name))
    try:
        record = forks.named(tx, table_id, name)
    except NotFound:
        return False
    if not record.retain_ms or record.created_ms + record.retain_ms != ms:
        return False
    _drop(mutation, lake.get_record(tx, table_id, or_dropped=True), name)
    return True


def _start(tx: Transaction, table_id: int, record: BranchRecord, parent: Lineage) -> None:
    """Sets the new branch's head to the version that it forks from."""
    fork = records.version(tx, table_id, parent, record.fork_version) if record.fork_version else None
    head = HeadRecord(version=record.fork_version, committed_ms=fork.committed_ms if fork else 0)
    records.put_head(tx, table_id, record.key, head)


def _of_branch(tx: ReadTransaction, table_id: int, record: BranchRecord) -> pb.Reference:
    return pb.Reference(
        name=record.name,
        kind=pb.BRANCH,
        version=records.head(tx, table_id, record.key).version,
        parent=record.parent_name,
        fork_version=record.fork_version,
        created_ms=record.created_ms,
        retain_ms=record.retain_ms,
    )


def _of_tag(record: TagRecord) -> pb.Reference:
    return pb.Reference(
        name=record.name,
        kind=pb.TAG,
        version=record.version,
        parent=record.branch_name,
        fork_version=record.version,
        created_ms=record.created_ms,
        retain_ms=record.retain_ms,
    )
