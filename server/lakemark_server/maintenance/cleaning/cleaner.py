"""Cleaning: old versions end, and the data files that no other version has are deleted.

It takes two steps, so that it can be interrupted anywhere and then go on. First one transaction moves the horizon of a
branch: versions up to it have ended and can no longer be read. Then files are deleted, and it is written down how far.
Between the two steps a background clean waits for readers. Versions of dropped branches end with the next clean.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from lakemark_core import storage
from lakemark_proto.store.v1.store_pb2 import CleanedRecord, InstantRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog.clean_schedule import Retention
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import deadline
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.maintenance.cleaning.garbage import Collector, Ending, Garbage, forget_left, remember_left
from lakemark_server.maintenance.cleaning.old_metadata import Trimmer
from lakemark_server.metrics.process import CLEANED_FILES, CLEANS
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.keyspace import INSTANTS, MAIN
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.timeline import events, records
from lakemark_server.timeline.branches import forks, retention
from lakemark_server.timeline.instants import alive
from lakemark_server.timeline.lineage import Lineage

VERSIONS_AT_ONCE_MAX: Final = 1_000
DROPPED_AT_ONCE_MAX: Final = 10
TURNS: Final = 64
_log = structlog.get_logger(__name__)


def horizon_of(latest: int, wanted: Retention, version_then: int, read_versions: Iterable[int]) -> int:
    """The last version that may end.

    ``version_then``: the latest version ``wanted.ms`` ago, which a reader of that time sees. ``read_versions``:
    those of live writers, whose commits are checked against the versions after them.
    """
    bounds = [latest - 1, *(version - 1 for version in read_versions)]
    if wanted.versions:
        bounds.append(latest - wanted.versions)
    if wanted.ms:
        bounds.append(version_then - 1)
    return max(0, min(bounds))


@dataclass(frozen=True, slots=True)
class Plan:
    """The versions of a branch that end, or have ended: those up to ``horizon`` except ``kept``.

    ``done``: how far the branch was cleaned before. ``more``: it has versions behind the horizon; False only for a
    branch that was dropped.
    """

    lineage: Lineage
    done: CleanedRecord
    horizon: int
    kept: frozenset[int]
    more: bool = True

    @property
    def key(self) -> str:
        return self.lineage.key

    def up_to(self, horizon: int) -> Plan:
        """The part of the plan up to another horizon."""
        kept = frozenset(version for version in self.kept if version <= horizon)
        return replace(self, horizon=horizon, kept=kept, more=self.more or horizon < self.horizon)

    @property
    def moves(self) -> bool:
        return self.horizon > max(self.done.horizon, self.lineage.forks[0][1])

    @property
    def deletes(self) -> bool:
        """Whether there are versions that have ended, or end now, and whose files were not deleted."""
        return self.horizon > self.deleted

    @property
    def expired(self) -> int:
        return len(set(range(max(self.done.horizon, self.lineage.forks[0][1]) + 1, self.horizon + 1)) - self.kept)

    @property
    def ending(self) -> Ending:
        return Ending(self.lineage, self.deleted + 1, self.horizon, self.more)

    @property
    def deleted(self) -> int:
        return max(self.done.deleted, self.lineage.forks[0][1])


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a clean of a branch did, or would do.

    Versions before ``earliest_version`` have ended, except ``kept_versions``; ``expired_versions`` of them ended now.
    ``files`` and their ``bytes`` were deleted. ``instant`` 0: there was nothing to do, or nothing was to be done.
    """

    earliest_version: int
    expired_versions: int
    files: int
    bytes: int
    kept_versions: tuple[int, ...]
    instant: int = 0


class Cleaner:
    """Thread-safe; holds no state that another process would need."""

    def __init__(self, store: Store, clock: ClockMs, snapshots: Snapshots) -> None:
        self._store = store
        self._clock = clock
        self._mutations = Mutations(store, clock)
        self._snapshots = snapshots
        self._trimmer = Trimmer(store, clock, snapshots.cache)
        self._turns = tuple(threading.Lock() for _ in range(TURNS))  # tables may share one

    def clean(self, table: LakeTable, wanted: Retention, *, branch: str = "", dry_run: bool = False) -> Cleaned:
        """Ends at most ``VERSIONS_AT_ONCE_MAX`` versions of a branch (empty: main) and deletes their files.

        Repeated, it goes on from there. With ``dry_run`` nothing changes, and the answer says what would. Raises
        InvalidArgument, BranchNotFound, TableNotFound.
        """
        wanted.check()
        with self._turn(table.table_id):
            cleaned = self._clean(table, wanted, branch, dry_run)
        if cleaned.instant:
            CLEANS.add()
            CLEANED_FILES.add(by=cleaned.files)
        return cleaned

    def _clean(self, table: LakeTable, wanted: Retention, branch: str, dry_run: bool) -> Cleaned:
        table_id = table.table_id

        def planned(tx: ReadTransaction, now_ms: int) -> list[Plan]:
            key = forks.resolve(tx, table_id, branch).key
            if key != MAIN:
                forks.require_kept(tx, table_id, key)
            asked = plan(tx, table_id, key, wanted, now_ms)
            at_most = max(asked.deleted + VERSIONS_AT_ONCE_MAX, asked.done.horizon)
            return [asked.up_to(min(asked.horizon, at_most)), *plans_of_dropped(tx, table_id)]

        def move(mutation: Mutation) -> list[Plan]:
            records.guard_starts(mutation.tx, table_id)
            plans = planned(mutation.tx, mutation.now_ms)
            for part in plans:
                _move(mutation, table_id, part)
            return plans

        plans = self._store.read(lambda tx: planned(tx, self._clock())) if dry_run else self._mutations.run(move)
        garbage = self._collect(table, plans, 0)
        instant = 0
        if not dry_run:
            instant = self.delete(table, plans, garbage)  # takes what cannot be deleted now out of ``garbage.gone``
            self.trim(table)
        return Cleaned(
            earliest_version=plans[0].horizon + 1,
            expired_versions=plans[0].expired,
            files=len(garbage.gone),
            bytes=sum(garbage.gone.values()),
            kept_versions=tuple(sorted(plans[0].kept)),
            instant=instant,
        )

    @contextmanager
    def _turn(self, table_id: int) -> Iterator[None]:
        """Lets one clean of a table run at a time, since several would do the same. Raises DeadlineExceeded."""
        turn = self._turns[table_id % len(self._turns)]
        if not turn.acquire(timeout=min(deadline.current().remaining_s(), threading.TIMEOUT_MAX)):
            raise deadline.exceeded()
        try:
            deadline.current().check()
            yield
        finally:
            turn.release()

    def end(self, table: LakeTable, wanted: Retention) -> int:
        """Takes the first step for all branches, dropped ones too, except those whose files still have to be deleted.

        Returns how many versions have ended.
        """
        table_id = table.table_id

        def body(mutation: Mutation) -> int:
            tx, ended = mutation.tx, 0
            records.guard_starts(tx, table_id)
            keys = [MAIN, *(branch.key for branch in forks.branches(tx, table_id))]
            live = [plan(tx, table_id, key, wanted, mutation.now_ms) for key in keys]
            for part in (*live, *plans_of_dropped(tx, table_id)):
                if part.done.horizon <= part.done.deleted:
                    _move(mutation, table_id, part)
                    ended += part.expired
            return ended

        return self._mutations.run(body)

    def finish(self, table: LakeTable, grace_ms: int) -> tuple[int, bool]:
        """Takes the second step for branches whose horizon moved ``grace_ms`` ago, and for what earlier cleans left.

        At most ``VERSIONS_AT_ONCE_MAX`` versions of each branch. Returns how many files were deleted, and whether there
        is more to do.
        """
        with self._turn(table.table_id):
            plans = self._store.read(lambda tx: plans_of_ended(tx, table.table_id, self._clock() - grace_ms))
            garbage = self._collect(table, plans, grace_ms)
            self.delete(table, plans, garbage)
        return len(garbage.gone), any(part.horizon < part.done.horizon for part in plans)

    def trim(self, table: LakeTable) -> int:
        """Removes metadata of versions that have ended. Returns of how many versions."""
        return self._trimmer.trim(table.table_id)

    def delete(self, table: LakeTable, plans: Sequence[Plan], garbage: Garbage) -> int:
        """Takes the second step. Returns the clean's instant; 0 if there was nothing to do."""
        table_id, now = table.table_id, self._clock()
        remember_left(self._store, table_id, garbage, now)
        self._delete_files(table, garbage)
        forget_left(self._store, table_id, garbage)
        if not garbage.gone and not any(part.deletes for part in plans):
            return 0
        return self._mutations.run(partial(_complete, table, plans, garbage))

    def _collect(self, table: LakeTable, plans: Sequence[Plan], grace_ms: int) -> Garbage:
        collector = Collector(self._store, self._snapshots, table)
        endings = [part.ending for part in plans if part.deletes]
        return self._snapshots.again(lambda: collector.collect(endings, self._clock(), grace_ms))

    def _delete_files(self, table: LakeTable, garbage: Garbage) -> None:
        """Deletes files with their directories, which hold one file each. Files that cannot be deleted are left."""
        errors = storage.delete_with_directories(table.record.location, garbage.gone)
        failed = {path: garbage.gone[path] for path in errors}
        for path, error in errors.items():
            _log.warning("a file of an ended version could not be deleted yet", path=path, reason=error.message)
        if failed:
            left = replace(garbage, kept={}, waiting=failed)
            remember_left(self._store, table.table_id, left, self._clock())
            for path in failed:
                del garbage.gone[path]


def _move(mutation: Mutation, table_id: int, part: Plan) -> None:
    """Ends the versions. Whoever makes a tag, a branch or a writer meanwhile is seen, or sees it."""
    if not part.moves:
        return
    record = _clean_instant(mutation, table_id, part.key, part.horizon)
    done = CleanedRecord()
    done.CopyFrom(part.done)
    done.horizon, done.moved_ms, done.instant = part.horizon, record.opened_ms, record.instant
    retention.put_cleaned(mutation.tx, table_id, part.key, done)


def _complete(table: LakeTable, plans: Sequence[Plan], garbage: Garbage, mutation: Mutation) -> int:
    """Writes down that the files are deleted. Returns the instant that tells of them."""
    tx, table_id, instant = mutation.tx, table.table_id, 0
    for part in plans:
        if not part.deletes:
            continue
        cleaned = retention.cleaned(tx, table_id, part.key)
        cleaned.deleted = max(cleaned.deleted, part.horizon)
        retention.put_cleaned(tx, table_id, part.key, cleaned)
        instant = instant or cleaned.instant
    if instant:
        record = records.instant(tx, table_id, instant)
    else:
        record = _clean_instant(mutation, table_id, MAIN, retention.cleaned(tx, table_id, MAIN).horizon)
    files, size_bytes = len(garbage.gone), sum(garbage.gone.values())
    record.metadata["files"], record.metadata["bytes"] = str(files), str(size_bytes)
    records.put_instant(tx, table_id, record)
    earliest = retention.cleaned(tx, table_id, MAIN).horizon + 1
    mutation.tell(events.of_clean(table.record, record.instant, files, size_bytes, earliest))
    return record.instant


def _clean_instant(mutation: Mutation, table_id: int, key: str, horizon: int) -> InstantRecord:
    record = InstantRecord(
        instant=records.next_instant(mutation.tx, table_id, mutation.now_ms),
        branch=key,
        operation=pb.CLEAN_FILES,
        state=pb.COMPLETED,
        read_version=horizon,
        opened_ms=mutation.now_ms,
        completed_ms=mutation.now_ms,
        metadata={"earliest_version": str(horizon + 1)},
    )
    records.put_instant(mutation.tx, table_id, record)
    return record


def plan(tx: ReadTransaction, table_id: int, key: str, wanted: Retention, now_ms: int) -> Plan:
    """The plan for a branch that is not dropped. A transaction that carries it out calls ``records.guard_starts``."""
    lineage = forks.lineage(tx, table_id, key)
    done, latest = retention.cleaned(tx, table_id, key), records.head(tx, table_id, key).version
    then = records.version_at_time(tx, table_id, lineage, now_ms - wanted.ms) if wanted.ms else 0
    horizon = horizon_of(latest, wanted, then, _read_versions(tx, table_id, key))
    horizon = max(horizon, done.horizon)
    return Plan(lineage, done, horizon, _kept(tx, table_id, key, horizon))


def plans_of_dropped(tx: ReadTransaction, table_id: int) -> list[Plan]:
    """Plans for dropped branches that still have files, at most ``DROPPED_AT_ONCE_MAX``, each for a part of it."""
    plans = []
    for branch in forks.all_branches(tx, table_id):
        done, head = retention.cleaned(tx, table_id, branch.key), records.head(tx, table_id, branch.key).version
        if branch.dropped and head > max(done.deleted, branch.fork_version):
            plans.append(_part(tx, table_id, branch.key, done, head, head))
    return plans[:DROPPED_AT_ONCE_MAX]


def plans_of_ended(tx: ReadTransaction, table_id: int, before_ms: int) -> list[Plan]:
    """Plans for branches with versions that ended before that time and still have files, each for a part of it."""
    return [
        _part(tx, table_id, key, done, done.horizon, records.head(tx, table_id, key).version)
        for key, done in retention.all_cleaned(tx, table_id)
        if done.horizon > done.deleted and done.moved_ms <= before_ms
    ]


def _part(tx: ReadTransaction, table_id: int, key: str, done: CleanedRecord, horizon: int, head: int) -> Plan:
    whole = Plan(forks.lineage(tx, table_id, key), done, horizon, _kept(tx, table_id, key, horizon), horizon < head)
    return whole.up_to(min(horizon, whole.deleted + VERSIONS_AT_ONCE_MAX))


def _kept(tx: ReadTransaction, table_id: int, key: str, horizon: int) -> frozenset[int]:
    return frozenset(version for version in retention.kept(tx, table_id, key) if version <= horizon)


def _read_versions(tx: ReadTransaction, table_id: int, key: str) -> list[int]:
    """The read versions of live writers of the branch."""
    instants = [INSTANTS.key(table_id, writer.instant) for writer in alive.of_table(tx, table_id)]
    stored = tx.get_many(instants, snapshot=True)
    opened = (InstantRecord.FromString(value) for value in stored if value is not None)
    return [record.read_version for record in opened if record.branch == key]
