"""The store on one SQLite file: readers on WAL snapshots, one writer thread with group commit."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Final

from ..buffer import CommitRequest
from ..group_commit import GroupCommitter
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
        self._committer = GroupCommitter(self._announcing(self._writer.apply), f"lakemark-commit {self.path.name}")

    def _submit(self, request: CommitRequest) -> None:
        self._committer.commit(request)

    def _close(self) -> None:
        self._committer.close()
        self._writer.close()
        super()._close()
        self._lock.release()
