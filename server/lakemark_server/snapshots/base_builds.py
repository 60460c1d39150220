"""The background fold: when a branch gets a new base, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lakemark_proto.store.v1.store_pb2 import BaseRecord, VersionRecord
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context.clock import ClockMs
from lakemark_server.file_index.base.build import Builder, Past
from lakemark_server.file_index.parts.fold import NOWHERE, Origin, Snapshot
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.snapshots import bases
from lakemark_server.snapshots.bases import BuildLost
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.snapshots.versions.loader import Loading
from lakemark_server.store.keyspace import HEADS
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import forks, retention
from lakemark_server.timeline.lineage import Lineage

VERSIONS_A_READ: Final = 200
# A build that was not published within this time is given up.
BUILD_MS_MAX: Final = 3_600_000
# How long readers that began with a base may need its pages after a newer one was published.
GRACE_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A base is due after so many versions, or after fewer versions that added so many files."""

    versions: int = 256
    files: int = 8_192


@dataclass(frozen=True, slots=True)
class Since:
    """What happened since the last base."""

    versions: int
    files: int


def is_due(since: Since, base_files: int, thresholds: Thresholds) -> bool:
    """Whether readers that have nothing in memory would gain enough from a new base.

    Reading from a base costs each such reader the versions since. A new base costs rewriting the new files, some of the
    older ones (``base.build``) and an index of all. So larger tables wait for more files.
    """
    if not since.versions:
        return False
    return since.versions >= thresholds.versions or since.files >= max(thresholds.files, base_files // 16)


class Folding:
    """Folds the branches of one table. Any number of processes may do so at the same time."""

    def __init__(
        self, store: Store, snapshots: Snapshots, clock: ClockMs, thresholds: Thresholds, grace_ms: int = GRACE_MS
    ) -> None:
        self._store, self._snapshots, self._clock = store, snapshots, clock
        self._thresholds = thresholds
        self._grace_ms = grace_ms

    def run(self, table: LakeTable) -> list[BaseRecord]:
        """Publishes the bases that are due, and sweeps those that nobody needs any more."""
        table_id = table.table_id
        published = []
        for key in self._store.read(lambda tx: _branches(tx, table_id)):
            lineage = self._store.read(lambda tx, key=key: forks.lineage(tx, table_id, key))  # type: ignore[misc]
            if self._due(table, lineage):
                base = self.fold(table, lineage)
                published += [base] if base else []
        bases.sweep_old_builds(self._store, table_id, self._clock() - BUILD_MS_MAX)
        bases.sweep_old(self._store, table_id, self._clock() - self._grace_ms)
        return published

    def waiting(self, table_id: int) -> bool:
        """Whether there are replaced bases or unpublished builds that still have to be removed."""
        return self._store.read(lambda tx: bases.has_old(tx, table_id))

    def fold(self, table: LakeTable, lineage: Lineage) -> BaseRecord | None:
        """Publishes a base of the branch's latest version.

        Returns None if there is nothing new, or if another process was faster.
        """
        table_id, key, fork = table.table_id, *lineage.forks[0]
        upto = self._store.read(lambda tx: records.head(tx, table_id, key)).version
        standing = self._store.read(lambda tx: bases.read_record(tx, table_id, key))
        if upto <= max(fork, standing.version if standing else 0):
            return None
        base_id = bases.begin(self._store, table_id, self._clock())
        try:
            return self._build(table, lineage, standing or BaseRecord(version=fork), base_id, upto)
        except BuildLost:
            bases.sweep_build(self._store, table_id, base_id)
            return None

    def _build(self, table: LakeTable, lineage: Lineage, standing: BaseRecord, base_id: int, upto: int) -> BaseRecord:
        table_id, key = table.table_id, lineage.key
        loading = self._snapshots.loading(table)
        before = loading.base(standing.base_id)
        if standing.base_id and before is None:
            raise BuildLost(f"base {standing.base_id} was swept")
        start, shared = (None, None) if before else self._start(loading, lineage, standing.version)
        cleaned = self._store.read(lambda tx: retention.cleaned(tx, table_id, key))
        past = Past(cleaned.trimmed, tuple(cleaned.pinned))
        builder = Builder(before, start.parts if start else (), past)
        origin = start.origin if start else Origin(standing.base_id, standing.version)
        history = loading.history(origin, lineage)
        for first in range(standing.version, upto, VERSIONS_A_READ):
            for record in history.records(lineage, first, min(first + VERSIONS_A_READ, upto)):
                builder.apply(record.version, history.changes(lineage, record))

        def write(number: int, pages: Sequence[bytes]) -> None:
            bases.write_pages(self._store, table_id, base_id, number, pages)

        index = builder.finish(key, upto, base_id, write)
        base = BaseRecord(version=upto, base_id=base_id, created_ms=self._clock(), files=builder.live_files)
        bases.publish(self._store, table_id, key, base, index, standing.base_id, shared)
        return base

    def _start(self, loading: Loading, lineage: Lineage, fork: int) -> tuple[Snapshot | None, tuple[str, int] | None]:
        """The content that a branch begins with, and (branch key, id) of the base whose pages it shares."""
        if not fork:
            return None, None
        standing = loading.standing(lineage, fork)
        if standing is None:
            return loading.load(lineage, fork, NOWHERE), None
        record, version = standing
        return loading.load(lineage, fork, Origin(record.base_id, version)), (lineage.owner(version), record.base_id)

    def _due(self, table: LakeTable, lineage: Lineage) -> bool:
        table_id, key, fork = table.table_id, *lineage.forks[0]
        head = self._store.read(lambda tx: records.head(tx, table_id, key)).version
        standing = self._store.read(lambda tx: bases.read_record(tx, table_id, key))
        after = max(fork, standing.version if standing else 0)
        if head - after >= self._thresholds.versions:
            return True
        since = Since(0, 0)
        for record in self._records(table_id, lineage, after, head):
            since = Since(since.versions + 1, since.files + record.staged.files)
        return is_due(since, standing.files if standing else 0, self._thresholds)

    def _records(self, table_id: int, lineage: Lineage, after: int, upto: int) -> Iterator[VersionRecord]:
        for first in range(after, upto, VERSIONS_A_READ):
            yield from self._store.read(
                lambda tx, first=first: records.versions(  # type: ignore[misc]
                    tx, table_id, lineage, first, min(first + VERSIONS_A_READ, upto)
                )
            )


def _branches(tx: ReadTransaction, table_id: int) -> list[str]:
    pairs = tx.get_range(*HEADS.range(table_id), snapshot=True)
    return [str(HEADS.unpack(key)[-1]) for key, _ in pairs]
