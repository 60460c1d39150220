"""The store on one SQLite file: readers on WAL snapshots, one writer thread with group commit."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from ..buffer import CommitRequest
from ..buffered_store import BufferedStore
from ..group_commit import GroupCommitter
from ..reads import Clock
from .file import FileLock, connect, integrity_check, prepare
from .reader import READER_CACHE_KIB, SqliteReaders, SqliteSnapshot
from .writer import SqliteWriter

WRITER_CACHE_KIB: Final = 65_536


class SqliteStore(BufferedStore):
    """Opens (or makes) the file at ``path``; one process at a time.

    ``clock`` counts the seconds of a transaction's age. Raises StoreInUse, StoreFormatUnknown, CorruptStore,
    FailedPrecondition, Unavailable.
    """

    name = "sqlite"

    def __init__(self, path: Path, *, clock: Clock = time.monotonic) -> None:
        self.path = path.resolve()
        super().__init__(clock)
        self._lock = FileLock(self.path)
        try:
            self._anchor = prepare(self.path)
        except BaseException:
            self._lock.release()
            raise
        self._readers = SqliteReaders(partial(connect, self.path, cache_kib=READER_CACHE_KIB, read_only=True))
        self._writer = SqliteWriter(partial(connect, self.path, cache_kib=WRITER_CACHE_KIB, read_only=False), clock)
        self._committer = GroupCommitter(self._announcing(self._writer.apply), f"lakemark-commit {self.path.name}")

    def integrity_check(self) -> list[str]:
        self._check_open()
        return integrity_check(self.path)

    def _snapshot(self) -> SqliteSnapshot:
        return self._readers.snapshot()

    def _lasting_snapshot(self, begin: bytes, end: bytes) -> AbstractContextManager[SqliteSnapshot]:
        return self._readers.lasting_snapshot()

    def _submit(self, request: CommitRequest) -> None:
        self._committer.commit(request)

    def _close(self) -> None:
        self._committer.close()
        self._readers.close()
        self._writer.close()
        # The last to close moves the log into the file; if it cannot, the next start does.
        with contextlib.suppress(sqlite3.Error):
            self._anchor.close()
        self._lock.release()
