"""Finds the data files that nobody needs any more.

The files of versions that end are candidates. To decide whether a candidate is still needed, it is looked for wherever
it can be read: a restore or a merge may have brought it back, and another branch, a tag or a savepoint may have it.
Candidates that are still needed are written down, and later cleans look at them again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import AnyArray, take, texts
from lakemark_server.file_index.entries.columns import instants_of
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.locate import locate
from lakemark_server.file_index.parts.part import Part
from lakemark_server.kv import ReadTransaction, Store, Transaction, keys_below
from lakemark_server.maintenance.cleaning.outline import Outline, outlines
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.keyspace import LEFT_FILES, MAIN
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import forks, retention
from lakemark_server.timeline.conflicts.changes import replays_of
from lakemark_server.timeline.lineage import Lineage

PATHS_A_TRANSACTION: Final = 200
_LEFT: Final = struct.Struct("<qq")  # size in bytes, since when nobody has it (ms; 0: somebody has)


@dataclass(frozen=True, slots=True)
class Ending:
    """Versions of a branch, from ``first`` to ``last``, whose files are deleted unless somebody needs them.

    ``more``: there is a version behind ``last``; False only for a branch that was dropped.
    """

    lineage: Lineage
    first: int
    last: int
    more: bool = True


@dataclass(frozen=True, slots=True)
class Left:
    """A file that an earlier clean did not delete. ``since_ms``: since when nobody has it; 0: somebody had it."""

    size_bytes: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Garbage:
    """Candidates by path. The values of all but ``known`` are their sizes in bytes.

    ``gone``: nobody has them, so they can be deleted. ``kept``: somebody has them. ``waiting``: nobody has them, but
    not for long enough. ``known``: those that earlier cleans wrote down.
    """

    gone: dict[str, int]
    kept: dict[str, int]
    waiting: dict[str, int]
    known: dict[str, Left]


class Collector:
    """Looks at one table, without changing anything. Raises SnapshotGone (see ``Snapshots.again``)."""

    def __init__(self, store: Store, snapshots: Snapshots, table: LakeTable) -> None:
        self._store, self._snapshots, self._table = store, snapshots, table

    def collect(self, endings: Sequence[Ending], now_ms: int, grace_ms: int) -> Garbage:
        """``grace_ms``: for how long nobody must have had files that earlier cleans left, before they are deleted."""
        known = self._left()
        candidates = {path: left.size_bytes for path, left in known.items()}
        for ending in endings:
            candidates |= self._candidates(ending)
        by_branch = {ending.lineage.key: ending for ending in endings}
        needed = self._needed(list(candidates), by_branch) if candidates else set()
        garbage = Garbage({}, {}, {}, known)
        for path, size in sorted(candidates.items()):
            left = known.get(path)
            if path in needed:
                garbage.kept[path] = size
            elif left is None or not grace_ms or 0 < left.since_ms <= now_ms - grace_ms:
                garbage.gone[path] = size
            else:
                garbage.waiting[path] = size
        return garbage

    def _candidates(self, ending: Ending) -> dict[str, int]:
        """Files that were added on the branch itself, and that one of the versions has but not the version after it."""
        lineage, fork = ending.lineage, ending.lineage.forks[0][1]
        candidates: dict[str, int] = {}
        upto = ending.last + 1 if ending.more else ending.last
        if ending.first > upto:
            return candidates
        loading = self._snapshots.loading(self._table)
        for parts in loading.leaving(lineage, ending.first, upto):
            candidates |= _files(parts, fork)
        if not ending.more:
            candidates |= _files(loading.load(lineage, upto).parts, fork)
        return candidates

    def _needed(self, paths: list[str], endings: dict[str, Ending]) -> set[str]:
        """The paths that are in a version which can be read, or which ended but still has its files.

        Most of them are in the latest version of a branch, or in one that is kept by name, so few are looked for
        further. Everything else that can be read of a branch is in its first version that is left, was added by a later
        version, or was brought back by one.
        """
        table_id = self._table.table_id
        sought = _Sought(paths)
        live, named = self._store.read(lambda tx: (live_branches(tx, table_id, endings), kept_versions(tx, table_id)))
        for lineage, _, head in live:
            self._look(sought, lineage, head)
        for lineage, version in named:
            self._look(sought, lineage, version)
        for lineage, first, head in live:
            self._look(sought, lineage, first)
            for run in self._outlines(lineage.key, first - 1, head):
                sought.added_by(run.instants)
                for record in run.pointing:
                    if record.version > first and self._may_bring(sought, record, first):
                        self._look(sought, lineage, record.version)
        return sought.found

    def _look(self, sought: _Sought, lineage: Lineage, version: int) -> None:
        if len(sought.left):
            sought.in_snapshot(self._snapshots.load(self._table, lineage, version))

    def _may_bring(self, sought: _Sought, record: VersionRecord, first: int) -> bool:
        """Whether the restore or merge may have brought back a file that is sought."""
        if not len(sought.left):
            return False
        if 0 < record.restored_version < first:
            return True
        for replayed in replays_of(record):
            for run in self._outlines(replayed.branch, replayed.after, replayed.upto):
                if any(pointing.restored_version for pointing in run.pointing) or sought.has(run.instants):
                    return True
        return False

    def _outlines(self, key: str, after: int, upto: int) -> Iterator[Outline]:
        return outlines(self._store, self._snapshots.cache, self._table.table_id, key, after, upto)

    def _left(self) -> dict[str, Left]:
        left = keys_below(self._store, LEFT_FILES, self._table.table_id, page=PATHS_A_TRANSACTION)
        return {str(path): Left(*_LEFT.unpack(value)) for (path,), value in left}


class _Sought:
    """Paths that are looked for: those that somebody has move from ``left`` to ``found``."""

    def __init__(self, paths: list[str]) -> None:
        self.found: set[str] = set()
        self.left: AnyArray = pa.array(paths, pa.string())
        self._instants = instants_of(self.left)

    def in_snapshot(self, snapshot: Snapshot) -> None:
        self._strike([located.paths for located in locate(snapshot.parts, self.left)])

    def added_by(self, instants: npt.NDArray[np.int64]) -> None:
        self._strike([np.flatnonzero(np.isin(self._instants, instants))])

    def has(self, instants: npt.NDArray[np.int64]) -> bool:
        return bool(np.isin(self._instants, instants).any())

    def _strike(self, places: list[npt.NDArray[np.int64]]) -> None:
        if not any(map(len, places)):
            return
        there = np.zeros(len(self.left), np.bool_)
        there[np.concatenate(places)] = True
        self.found.update(texts(take(self.left, np.flatnonzero(there))))
        rest = np.flatnonzero(~there)
        self.left, self._instants = take(self.left, rest), self._instants[rest]


def remember_left(store: Store, table_id: int, garbage: Garbage, now_ms: int) -> None:
    """Writes down which files stay, so that later cleans look at them again."""
    later = {path: Left(size, 0) for path, size in garbage.kept.items()}
    for path, size in garbage.waiting.items():
        before = garbage.known.get(path)  # None: it could not be deleted the first time
        later[path] = Left(size, (before.since_ms if before else 0) or now_ms)
    _write(store, table_id, {path: left for path, left in later.items() if garbage.known.get(path) != left})


def forget_left(store: Store, table_id: int, garbage: Garbage) -> None:
    """Removes the entries of files that were deleted."""
    _write(store, table_id, {path: None for path in garbage.gone if path in garbage.known})


def _write(store: Store, table_id: int, changes: Mapping[str, Left | None]) -> None:
    paths = list(changes)
    for first in range(0, len(paths), PATHS_A_TRANSACTION):

        def body(tx: Transaction, some: Sequence[str] = paths[first : first + PATHS_A_TRANSACTION]) -> None:
            for path in some:
                left, key = changes[path], LEFT_FILES.key(table_id, path)
                if left is None:
                    tx.clear(key)
                else:
                    tx.set(key, _LEFT.pack(left.size_bytes, left.since_ms))

        store.transact(body)


def _files(parts: Sequence[Part], fork: int) -> dict[str, int]:
    """Paths and sizes of files that were added behind the fork; the others are deleted by cleans of the parent."""
    files: dict[str, int] = {}
    for part in parts:
        own = np.flatnonzero(part.live_mask() & (part.column("added_version").to_numpy() > fork))
        sizes = take(part.column("size_bytes"), own).to_pylist()
        files |= {path: size or 0 for path, size in zip(texts(take(part.column("path"), own)), sizes, strict=True)}
    return files


def live_branches(tx: ReadTransaction, table_id: int, endings: Mapping[str, Ending]) -> list[tuple[Lineage, int, int]]:
    """(lineage, first version that still has its files, latest version) of each branch with files of its own."""
    live = []
    for key in (MAIN, *(branch.key for branch in forks.all_branches(tx, table_id))):
        head, done = records.head(tx, table_id, key).version, retention.cleaned(tx, table_id, key).deleted
        if done < head:
            lineage = forks.lineage(tx, table_id, key)
            first = max(lineage.forks[0][1], endings[key].last if key in endings else done) + 1
            if first <= head:
                live.append((lineage, first, head))
    return live


def kept_versions(tx: ReadTransaction, table_id: int) -> list[tuple[Lineage, int]]:
    """The versions that tags, savepoints and branches keep, with their lineages."""
    tags = (*forks.tags(tx, table_id), *retention.savepoints(tx, table_id))
    kept = {(tag.branch_key, tag.version) for tag in tags}
    kept |= {(branch.parent_key, branch.fork_version) for branch in forks.branches(tx, table_id)}
    return [(forks.lineage(tx, table_id, key).at(version), version) for key, version in sorted(kept) if version]
