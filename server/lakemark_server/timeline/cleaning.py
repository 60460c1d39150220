"""Cleaning: old versions end, and the data files that no version left has are deleted.

In two steps, so that it can be interrupted anywhere and asked for again: one transaction moves the horizon, from where
on nobody can read what is before; then files are deleted, and how far they are is written down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakemark.errors import InvalidArgument, LakemarkError, StoreConflict
from lakemark_proto.store.v1.store_pb2 import CleanedRecord, InstantRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog import storage
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.clock import ClockMs
from lakemark_server.keyspace import INSTANTS
from lakemark_server.kv import Store, Transaction
from lakemark_server.snapshot.arrow import texts
from lakemark_server.snapshot.changes import removed_between
from lakemark_server.snapshot.service import Snapshots
from lakemark_server.timeline import records, retention
from lakemark_server.timeline.lineage import Lineage
from lakemark_server.timeline.table_state import BranchState, TableState

VERSIONS_AT_ONCE_MAX: Final = 1_000
ATTEMPTS_MAX: Final = 5
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Retain:
    """What a clean leaves; 0: not said."""

    versions: int = 0
    ms: int = 0

    def check(self) -> None:
        """Raises InvalidArgument."""
        if self.versions < 0 or self.ms < 0:
            raise InvalidArgument("retain_versions and retain_ms are not negative")
        if not (self.versions or self.ms):
            raise InvalidArgument("say what is to stay: retain_versions, retain_ms or both")


def horizon_of(latest: int, retain: Retain, version_then: int, read_versions: Iterable[int]) -> int:
    """The last version that may end.

    ``version_then``: the latest one ``retain.ms`` ago, which a reader of that time sees. ``read_versions``: of live
    writers, whose commits are checked against what came after them.
    """
    bounds = [latest - 1, *(version - 1 for version in read_versions)]
    if retain.versions:
        bounds.append(latest - retain.versions)
    if retain.ms:
        bounds.append(version_then - 1)
    return max(0, min(bounds))


class Cleaner:
    """Thread-safe; holds no state that another process would need."""

    def __init__(self, store: Store, clock: ClockMs, snapshots: Snapshots) -> None:
        self._store = store
        self._clock = clock
        self._snapshots = snapshots

    def clean(self, table: LakeTable, request: pb.CleanRequest) -> pb.CleanResponse:
        """At most ``VERSIONS_AT_ONCE_MAX`` versions end; asked again, it goes on where it was.

        Raises InvalidArgument, BranchNotFound, TableNotFound.
        """
        retain = Retain(request.retain_versions, request.retain_ms)
        retain.check()
        for _ in range(ATTEMPTS_MAX):
            answer = self._attempt(table, request, retain)
            if answer is not None:
                return answer
        raise StoreConflict(f"tags, branches or writers of {table.name} come and go all the time; ask again later")

    def _attempt(self, table: LakeTable, request: pb.CleanRequest, retain: Retain) -> pb.CleanResponse | None:
        """None if what keeps versions has changed since it was looked at."""
        plan = self._store.transact(lambda tx: self._plan(tx, table, request.branch, retain))
        gone = self._files(table, plan)
        answer = pb.CleanResponse(
            earliest_version=plan.horizon + 1,
            expired_versions=plan.expired,
            files=gone.num_rows,
            bytes=int(gone.column("size_bytes").to_numpy().sum()) if gone.num_rows else 0,
            kept_versions=sorted(version for version in plan.kept if version <= plan.horizon),
        )
        if request.dry_run or not plan.work:
            return answer
        instant = self._store.transact(lambda tx: self._move(tx, table, plan, answer))
        if instant is None:
            return None
        answer.instant = instant
        self._delete(table, gone)
        self._store.transact(lambda tx: _done(tx, table.table_id, plan))
        return answer

    def _plan(self, tx: Transaction, table: LakeTable, branch: str, retain: Retain) -> _Plan:
        state = TableState(tx, table.table_id)
        return _planned(state, state.branch_named(branch), retain, self._clock())

    def _move(self, tx: Transaction, table: LakeTable, plan: _Plan, answer: pb.CleanResponse) -> int | None:
        """Only if nobody has begun to need what is to end: whoever makes a tag, a branch or a writer is seen."""
        state = TableState(tx, table.table_id)
        again = _planned(state, state.branch(plan.key), plan.retain, self._clock())
        if again.horizon < plan.horizon or again.needs != plan.needs:
            return None
        now = self._clock()
        record = InstantRecord(
            instant=records.next_instant(tx, table.table_id, now),
            branch=plan.key,
            operation=pb.CLEAN_FILES,
            state=pb.COMPLETED,
            read_version=plan.horizon,
            opened_ms=now,
            completed_ms=now,
            metadata={
                "earliest_version": str(plan.horizon + 1),
                "files": str(answer.files),
                "bytes": str(answer.bytes),
            },
        )
        records.put_instant(tx, table.table_id, record)
        moved = CleanedRecord(horizon=plan.horizon, deleted=plan.deleted, instant=record.instant)
        retention.put_cleaned(tx, table.table_id, plan.key, moved)
        return record.instant

    def _files(self, table: LakeTable, plan: _Plan) -> pa.Table:
        """What versions behind ``plan.deleted`` up to the horizon have, and no version that stays: path, size_bytes."""
        names = ["path", "size_bytes", "added_version"]
        empty = pa.table([pa.array([], kind) for kind in (pa.string(), pa.int64(), pa.int64())], names)
        if not plan.work:
            return empty
        found = []
        before = self._snapshots.load(table, plan.lineage, plan.first)
        for version in range(plan.first + 1, plan.horizon + 2):
            after = self._snapshots.load(table, plan.lineage, version)
            found.append(pa.Table.from_batches([removed_between(before, after).entries().select(names)]))
            before = after
        gone = pa.concat_tables([empty, *found])
        # What it inherits is its parent's to delete, and what was merged into another branch is in both.
        gone = gone.filter(pa.array(gone.column("added_version").to_numpy() > plan.own_after))
        for version in sorted({version for version in plan.kept if version <= plan.horizon} | plan.restores):
            stays = self._snapshots.load(table, plan.lineage, version).entries().column("path")
            gone = gone.filter(pc.invert(pc.is_in(gone.column("path"), value_set=stays)))
        gone = gone.group_by("path", use_threads=False).aggregate([("size_bytes", "max")])
        return self._without_merged(table, plan, gone.rename_columns(names[:2]))

    def _without_merged(self, table: LakeTable, plan: _Plan, gone: pa.Table) -> pa.Table:
        """A file that a merge brought is its branch's, which may still have it."""
        paths = texts(gone.column("path").combine_chunks())
        instants = sorted({int(path.split("/")[0]) for path in paths})
        own: set[int] = set()
        for at in range(0, len(instants), VERSIONS_AT_ONCE_MAX):
            page = instants[at : at + VERSIONS_AT_ONCE_MAX]
            keys = [INSTANTS.key(table.table_id, instant) for instant in page]
            stored = self._store.read(lambda tx, keys=keys: tx.get_many(keys))  # type: ignore[misc]
            written = (InstantRecord.FromString(value) for value in stored if value is not None)
            own |= {record.instant for record in written if record.branch == plan.key}
        return gone.filter(pa.array([int(path.split("/")[0]) in own for path in paths], pa.bool_()))

    def _delete(self, table: LakeTable, gone: pa.Table) -> None:
        """Each file is alone in its directory, which goes with it."""
        for path in texts(gone.column("path").combine_chunks()):
            directory = path.rpartition("/")[0]
            try:
                storage.delete_directory(storage.child(table.record.location, directory))
            except LakemarkError as error:
                _log.warning("a file of an ended version was left behind", path=path, reason=error.message)


@dataclass(frozen=True, slots=True)
class _Plan:
    """``first``: the oldest version whose files may still be there; ``restores``: versions that stay and may have files
    again which were gone between; ``own_after``: files that were added by a later version are the branch's own."""

    key: str
    lineage: Lineage
    retain: Retain
    horizon: int
    deleted: int
    first: int
    expired: int
    kept: frozenset[int]
    restores: frozenset[int]
    own_after: int

    @property
    def needs(self) -> tuple[frozenset[int], frozenset[int], int]:
        """What may change until the horizon is moved."""
        return self.kept, self.restores, self.own_after

    @property
    def work(self) -> bool:
        return self.horizon > self.deleted


def _planned(state: TableState, branch: BranchState, retain: Retain, now_ms: int) -> _Plan:
    tx, table_id, lineage = state.tx, state.table_id, branch.lineage
    key, fork = lineage.forks[0]
    records.guard_starts(tx, table_id)
    done = retention.cleaned(tx, table_id, key)
    kept = retention.kept(tx, table_id, key)
    then = records.version_at_time(tx, table_id, lineage, now_ms - retain.ms) if retain.ms else 0
    latest = branch.head.version
    horizon = horizon_of(latest, retain, then, _read_versions(state, key))
    horizon = max(min(horizon, max(done.deleted, fork) + VERSIONS_AT_ONCE_MAX), done.horizon)
    # Files of a version that the branch only inherits belong to its parent.
    first = max(done.deleted + 1 if done.deleted else 1, fork)
    own_after = max(fork, retention.merged_elsewhere(tx, table_id, key))
    restores = _restores(state, lineage, horizon, latest)
    ended = set(range(max(done.horizon, fork) + 1, horizon + 1)) - kept
    return _Plan(
        key=key,
        lineage=lineage,
        retain=retain,
        horizon=horizon,
        deleted=max(done.deleted, fork),
        first=first,
        expired=len(ended),
        kept=frozenset(kept),
        restores=frozenset(restores),
        own_after=own_after,
    )


def _read_versions(state: TableState, key: str) -> list[int]:
    stored = state.tx.get_many([INSTANTS.key(state.table_id, instant) for instant in state.writers], snapshot=True)
    found = (InstantRecord.FromString(value) for value in stored if value is not None)
    return [record.read_version for record in found if record.branch == key]


def _restores(state: TableState, lineage: Lineage, horizon: int, latest: int) -> set[int]:
    """Versions that stay and have the files of one that does not."""
    found = set()
    after = horizon
    while after < latest:
        upto = min(latest, after + VERSIONS_AT_ONCE_MAX)
        page = records.versions(state.tx, state.table_id, lineage, after, upto)
        found |= {record.version for record in page if 0 < record.restored_version <= horizon}
        after = upto
    return found


def _done(tx: Transaction, table_id: int, plan: _Plan) -> None:
    record = retention.cleaned(tx, table_id, plan.key)
    record.deleted = max(record.deleted, plan.horizon)
    retention.put_cleaned(tx, table_id, plan.key, record)
