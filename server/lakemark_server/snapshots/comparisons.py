"""Two versions of a table beside each other: what each has alone, and whether one could be merged into the other."""

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

_KEPT_BYTES_MAX: Final = 32 << 20  # a comparison takes about 150 for each partition that was changed
_PIECE_BYTES: Final = 300


@dataclass(frozen=True, slots=True)
class DryMerge:
    """``replayed`` versions, or why it is refused."""

    fast_forward: bool
    replayed: int = 0
    refused: CommitConflict | LimitExceeded | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """``versions``: how many each side has that the other does not; ``merges``: of the left side into the right one,
    and the other way round."""

    left: Side
    right: Side
    versions: tuple[int, int]
    merges: tuple[DryMerge, DryMerge]
    files: FileDifferences

    @property
    def memory_bytes(self) -> int:
        return self.files.memory_bytes + _PIECE_BYTES * (len(self.left.pieces) + len(self.right.pieces))


class _Question(NamedTuple):
    """All that an answer depends on. Versions never change, nor where a branch forked."""

    table_id: int
    table: str  # as messages call it
    policy: str  # that merges would be checked by
    left: Head
    right: Head


class VersionName(NamedTuple):
    """A version of a branch, the latest if None, or what a tag keeps; "": main."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        return (self.name or MAIN) + ("" if self.version is None else f"@v{self.version}")


class Comparer:
    """Thread-safe. Keeps what it found out, so that the next page of an answer costs what it shows."""

    def __init__(self, store: Store, snapshots: Snapshots, log: ChangeLog) -> None:
        self._store, self._snapshots, self._log = store, snapshots, log
        self._kept: ByteLru[_Question, Comparison] = ByteLru(_KEPT_BYTES_MAX, lambda found: found.memory_bytes)

    def compare(
        self, table: LakeTable, left: VersionName, right: VersionName, pinned: tuple[int, int] | None = None
    ) -> Comparison:
        """``pinned``: the versions that the names of branches stood for before.

        Raises BranchNotFound, VersionNotFound, InvalidArgument (a version of a tag), LimitExceeded (it is too much).
        """
        record, wanted = table.record, (left, right)
        each = self._store.read(lambda tx: [_at(tx, table.table_id, one) for one in wanted])
        if pinned:
            each = [at if at.tag else replace(at, version=pin) for at, pin in zip(each, pinned, strict=True)]
        found = self._snapshots.resolve_together([(record.catalog, record.database, record.name, at) for at in each])
        heads = [
            Head(str(name), one.lineage.at(one.version), one.version) for name, one in zip(wanted, found, strict=True)
        ]
        question = _Question(table.table_id, table.name, table.policy, *heads)
        answer = self._kept.get(question)
        if answer is None:
            answer = self._answer(table, question.left, question.right)
            self._kept.put(question, answer)
        return answer

    def _answer(self, table: LakeTable, left: Head, right: Head) -> Comparison:
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
            # Its traceback holds all that the check looked at.
            return DryMerge(between.fast_forward, refused=error.with_traceback(None))
        return DryMerge(between.fast_forward, count)


def _at(tx: ReadTransaction, table_id: int, wanted: VersionName) -> SnapshotReference:
    name = wanted.name
    if name in ("", MAIN) or not isinstance(forks.named(tx, table_id, name), TagRecord):
        return SnapshotReference(version=wanted.version, branch=name)
    if wanted.version is not None:
        raise InvalidArgument(f"{name!r} is a tag and stands for one version: name no other", tag=name)
    return SnapshotReference(tag=name)
