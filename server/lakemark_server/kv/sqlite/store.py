"""The store on one SQLite file: readers on WAL snapshots, one writer thread with group commit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from lakemark_core.errors import LakemarkError

from ..buffer import PendingTransaction
from ..group_commit import Apply, GroupCommitter
from ..reads import Clock
from .base import SqliteFileStore
from .file import FileLock, connect, prepare
from .writer import SqliteWriter

WRITER_CACHE_KIB: Final = 65_536


class SqliteStore(SqliteFileStore):
    """Opens (or makes) the file at ``path``; one process at a time.

    ``clock`` counts the seconds of a transaction's age. Raises StoreInUse, StoreFormatUnknown, CorruptStore,
    FailedPrecondition, Unavailable.
    """

    def __init__(self, path: Path, *, clock: Clock = time.monotonic) -> None:
        self._lock = FileLock(path.resolve())
        try:
            super().__init__(path, prepare, clock)
        except BaseException:
            self._lock.release()
            raise
        self._writer = SqliteWriter(partial(connect, self.path, cache_kib=WRITER_CACHE_KIB, read_only=False), clock)
        self._writes_begun, self._applying = 0, False
        apply = self._counted(self._announcing(self._writer.apply))
        self._committer = GroupCommitter(apply, f"lakemark-commit {self.path.name}")

    def writes_begun(self) -> int | None:
        begun = self._writes_begun  # read before the flag: a batch that begins now has another number
        return None if self._applying else begun

    def _counted(self, apply: Apply) -> Apply:
        """``apply`` that keeps ``writes_begun`` up to date. The thread that calls it is the only one that writes."""

        def counted(batch: Sequence[PendingTransaction]) -> Sequence[LakemarkError | None]:
            self._applying = True
            self._writes_begun += 1
            try:
                return apply(batch)
            finally:
                self._applying = False

        return counted

    def _submit(self, transaction: PendingTransaction) -> None:
        self._committer.commit(transaction)

    def _close(self) -> None:
        self._committer.close()
        self._writer.close()
        super()._close()
        self._lock.release()
