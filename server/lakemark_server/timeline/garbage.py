"""Which data files nobody needs any more.

Files become candidates when the versions that have them end. Whether one is still needed is decided by looking for it
in everything that can be read: a restore or a merge may have brought it back, and another branch, a tag or a savepoint
may have it. What somebody still has is written down, to be looked at again by later cleans.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.keyspace import LEFT_FILES, MAIN
from lakemark_server.kv import ReadTransaction, Store, Transaction
from lakemark_server.snapshot.arrow import take, texts
from lakemark_server.snapshot.changes import removed_between
from lakemark_server.snapshot.entries import instants_of
from lakemark_server.snapshot.fold import Snapshot, empty
from lakemark_server.snapshot.locate import locate
from lakemark_server.snapshot.service import Snapshots
from lakemark_server.timeline import branches, records, retention
from lakemark_server.timeline.lineage import Lineage

VERSIONS_A_READ: Final = 500
PATHS_A_TRANSACTION: Final = 200
_LEFT: Final = struct.Struct("<qq")  # size in bytes, since when nobody has it (ms; 0: somebody has)


@dataclass(frozen=True, slots=True)
class Ending:
    """Versions of one branch, from ``first`` to ``last``, whose files are to go unless somebody has them.

    ``more``: there is a version behind ``last``; else the branch was dropped.
    """

    lineage: Lineage
    first: int
    last: int
    more: bool = True


@dataclass(frozen=True, slots=True)
class Left:
    """A file that an earlier clean could not delete. ``since_ms``: since when nobody has it; 0: somebody had it."""

    size_bytes: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Garbage:
    """By path: ``gone`` with their sizes nobody has; ``kept`` somebody has; ``waiting`` nobody has, but for too short a
    time; ``known`` were written down before."""

    gone: dict[str, int]
    kept: dict[str, int]
    waiting: dict[str, int]
    known: dict[str, Left]


class Collector:
    """Reads only; of one table. Raises SnapshotGone (see ``Snapshots.again``)."""

    def __init__(self, store: Store, snapshots: Snapshots, table: LakeTable) -> None:
        self._store, self._snapshots, self._table = store, snapshots, table

    def collect(self, endings: Sequence[Ending], now_ms: int, grace_ms: int) -> Garbage:
        """``grace_ms``: so long nobody must have had what earlier cleans have left."""
        known = self._left()
        found = {path: left.size_bytes for path, left in known.items()}
        for ending in endings:
            found |= self._candidates(ending)
        needed = self._needed(list(found), {one.lineage.key: one for one in endings}) if found else set()
        garbage = Garbage({}, {}, {}, known)
        for path, size in sorted(found.items()):
            left = known.get(path)
            if path in needed:
                garbage.kept[path] = size
            elif left is None or not grace_ms or 0 < left.since_ms <= now_ms - grace_ms:
                garbage.gone[path] = size
            else:
                garbage.waiting[path] = size
        return garbage

    def _candidates(self, ending: Ending) -> dict[str, int]:
        """Files that the branch itself got, and that one of the versions has which the next one does not have."""
        lineage, fork = ending.lineage, ending.lineage.forks[0][1]
        found: dict[str, int] = {}
        upto = ending.last + 1 if ending.more else ending.last
        if ending.first > upto:
            return found
        before: Snapshot | None = None
        for after in self._snapshots.walk(self._table, lineage, ending.first, upto):
            if before is not None:
                found |= _files(removed_between(before, after), fork)
            before = after
        if before is not None and not ending.more:
            found |= _files(removed_between(before, empty(before.schema)), fork)
        return found

    def _needed(self, paths: list[str], endings: dict[str, Ending]) -> set[str]:
        """Those of the paths that a version has which can be read, or which ended so short a time ago that its files
        are still there."""
        wanted = pa.array(paths, pa.string())
        instants = instants_of(wanted)
        needed: set[str] = set()
        for there in self._readable(endings):
            if isinstance(there, Snapshot):
                places = [one.paths for one in locate(there.parts, wanted)]
            else:
                places = [np.flatnonzero(np.isin(instants, np.array(sorted(there), np.int64)))]
            needed.update(text for some in places for text in texts(take(wanted, some)))
        return needed

    def _readable(self, endings: dict[str, Ending]) -> Iterator[Snapshot | set[int]]:
        """Snapshots, and instants whose versions are there: between them they have every file that can be read.

        Of a branch: its first version that is left, each to which a restore or a merge brought something back, and
        what the other ones added.
        """
        table_id = self._table.table_id
        for lineage, done, head in self._store.read(lambda tx: _live(tx, table_id)):
            ending = endings.get(lineage.key)
            first = max(lineage.forks[0][1], ending.last if ending else done) + 1
            if first > head:
                continue
            yield self._snapshots.load(self._table, lineage, first)
            added: set[int] = set()
            for record in self._versions(lineage, first, head):
                added.add(record.instant)
                if record.restored_version or record.HasField("merged"):
                    yield self._snapshots.load(self._table, lineage, record.version)
            yield added
        for lineage, version in self._store.read(lambda tx: _kept(tx, table_id)):
            yield self._snapshots.load(self._table, lineage, version)

    def _versions(self, lineage: Lineage, after: int, upto: int) -> Iterator[VersionRecord]:
        for low in range(after - 1, upto, VERSIONS_A_READ):
            high = min(upto, low + VERSIONS_A_READ)
            yield from self._store.read(
                lambda tx, low=low, high=high: records.versions(tx, self._table.table_id, lineage, low, high)  # type: ignore[misc]
            )

    def _left(self) -> dict[str, Left]:
        begin, end = LEFT_FILES.range(self._table.table_id)
        found: dict[str, Left] = {}
        while True:
            page = self._store.read(
                lambda tx, begin=begin: tx.get_range(begin, end, limit=PATHS_A_TRANSACTION)  # type: ignore[misc]
            )
            found |= {str(LEFT_FILES.unpack(key)[-1]): Left(*_LEFT.unpack(value)) for key, value in page}
            if len(page) < PATHS_A_TRANSACTION:
                return found
            begin = page[-1][0] + b"\x00"


def remember(store: Store, table_id: int, garbage: Garbage, now_ms: int) -> None:
    """Writes down what could not be deleted, so that later cleans look at it again."""
    later = {path: Left(size, 0) for path, size in garbage.kept.items()}
    for path, size in garbage.waiting.items():
        later[path] = Left(size, garbage.known[path].since_ms or now_ms)
    _write(store, table_id, {path: left for path, left in later.items() if garbage.known.get(path) != left})


def forget(store: Store, table_id: int, garbage: Garbage) -> None:
    """What was deleted need not be looked at again."""
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


def _files(snapshot: Snapshot, fork: int) -> dict[str, int]:
    """Path and size of what was added behind the fork: the rest is its parent's to delete."""
    found: dict[str, int] = {}
    for part in snapshot.parts:
        own = np.flatnonzero(part.live_mask() & (part.column("added_version").to_numpy() > fork))
        sizes = take(part.column("size_bytes"), own).to_pylist()
        found |= {path: size or 0 for path, size in zip(texts(take(part.column("path"), own)), sizes, strict=True)}
    return found


def _live(tx: ReadTransaction, table_id: int) -> list[tuple[Lineage, int, int]]:
    """Of each branch that has files: its lineage, up to which version they are deleted, its latest version."""
    found = []
    for key in (MAIN, *(one.key for one in branches.all_branches(tx, table_id))):
        deleted, head = retention.cleaned(tx, table_id, key).deleted, records.head(tx, table_id, key).version
        if deleted < head:
            found.append((branches.lineage(tx, table_id, key), deleted, head))
    return found


def _kept(tx: ReadTransaction, table_id: int) -> list[tuple[Lineage, int]]:
    """The versions that tags, savepoints and branches keep."""
    found = {
        (one.branch_key, one.version) for one in (*branches.tags(tx, table_id), *retention.savepoints(tx, table_id))
    }
    found |= {(one.parent_key, one.fork_version) for one in branches.branches(tx, table_id)}
    return [(branches.lineage(tx, table_id, key).at(version), version) for key, version in sorted(found) if version]
