"""Compares two versions of a table: what only one of them has, and whether one could be merged into the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from lakemark_core.errors import CommitConflict, InvalidArgument, LimitExceeded
from lakemark_proto.store.v1.store_pb2 import TagRecord
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.cache import ByteLru
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.snapshots.versions.differences import FileDifferences, file_differences
from lakemark_server.store.keyspace import MAIN
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.branches.divergence import Head, Side
from lakemark_server.timeline.branches.merges import Divergence, check_merge, diverged
from lakemark_server.timeline.conflicts.change_log import ChangeLog

_KEPT_BYTES_MAX: Final = 32 << 20  # a comparison takes about 150 bytes for each changed partition
_PIECE_BYTES: Final = 300


@dataclass(frozen=True, slots=True)
class DryMerge:
    """How many versions a merge would replay, or why it would be refused."""

    fast_forward: bool
    replayed: int = 0
    refused: CommitConflict | LimitExceeded | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two versions beside each other.

    ``versions``: how many versions each side has that the other lacks. ``merges``: of the left side into the right one,
    and of the right side into the left one.
    """

    left: Side
    right: Side
    versions: tuple[int, int]
    merges: tuple[DryMerge, DryMerge]
    files: FileDifferences

    @property
    def memory_bytes(self) -> int:
        return self.files.memory_bytes + _PIECE_BYTES * (len(self.left.pieces) + len(self.right.pieces))


class _Question(NamedTuple):
    """Everything that a comparison depends on. Versions and the forks of branches never change."""

    table_id: int
    table: str  # the name to use in messages
    policy: str  # the conflict policy that merges would be checked with
    left: Head
    right: Head


class VersionName(NamedTuple):
    """A version of the branch ``name`` (None: the latest), or the version that the tag ``name`` keeps. "" is main."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        return (self.name or MAIN) + ("" if self.version is None else f"@v{self.version}")


class Comparer:
    """Thread-safe. Caches comparisons, so that further pages of one cost little."""

    def __init__(self, store: Store, snapshots: Snapshots, log: ChangeLog) -> None:
        self._store, self._snapshots, self._log = store, snapshots, log
        self._kept: ByteLru[_Question, Comparison] = ByteLru(
            _KEPT_BYTES_MAX, lambda comparison: comparison.memory_bytes
        )

    def compare(
        self, table: LakeTable, left: VersionName, right: VersionName, pinned: tuple[int, int] | None = None
    ) -> Comparison:
        """The comparison of two versions.

        ``pinned``: the versions that the names of the branches stood for on the first page. Raises BranchNotFound,
        VersionNotFound, InvalidArgument (a version of a tag), LimitExceeded (too many versions or changes).
        """
        record, names = table.record, (left, right)
        references = self._store.read(lambda tx: [_reference(tx, table.table_id, name) for name in names])
        if pinned:
            pairs = zip(references, pinned, strict=True)
            references = [at if at.tag else replace(at, version=version) for at, version in pairs]
        table_name = record.catalog, record.database, record.name
        resolved = self._snapshots.resolve_together([(*table_name, at) for at in references])
        heads = [
            Head(str(name), at.lineage.at(at.version), at.version) for name, at in zip(names, resolved, strict=True)
        ]
        question = _Question(table.table_id, table.name, table.policy, *heads)
        comparison = self._kept.get(question)
        if comparison is None:
            comparison = self._compared(table, question.left, question.right)
            self._kept.put(question, comparison)
        return comparison

    def _compared(self, table: LakeTable, left: Head, right: Head) -> Comparison:
        def body(tx: ReadTransaction) -> tuple[Divergence, tuple[int, int], tuple[DryMerge, DryMerge]]:
            between = diverged(tx, table.table_id, self._log, left, right)
            versions = self._versions(tx, table, between.source), self._versions(tx, table, between.target)
            return between, versions, (self._merge(tx, table, between), self._merge(tx, table, between.turned()))

        between, versions, merges = self._store.read(body)
        files = self._snapshots.again(
            lambda: file_differences(self._snapshots.loading(table), between.source, between.target)
        )
        return Comparison(between.source, between.target, versions, merges, files)

    def _versions(self, tx: ReadTransaction, table: LakeTable, side: Side) -> int:
        side.check_own()
        return sum(1 for run in side.own for _ in self._log.of_run(tx, table.table_id, run))

    def _merge(self, tx: ReadTransaction, table: LakeTable, between: Divergence) -> DryMerge:
        try:
            count, _ = check_merge(tx, self._log, table, between)
        except (CommitConflict, LimitExceeded) as error:
            # The traceback would keep everything in memory that the check read.
            return DryMerge(between.fast_forward, refused=error.with_traceback(None))
        return DryMerge(between.fast_forward, count)


def _reference(tx: ReadTransaction, table_id: int, named: VersionName) -> SnapshotReference:
    name = named.name
    if name in ("", MAIN) or not isinstance(forks.named(tx, table_id, name), TagRecord):
        return SnapshotReference(version=named.version, branch=name)
    if named.version is not None:
        raise InvalidArgument(f"{name!r} is a tag and stands for one version: name no other", tag=name)
    return SnapshotReference(tag=name)
