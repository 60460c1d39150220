"""The SQLite file of a store that another process may be serving: for backups and for checking it."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from ..buffer import CommitRequest
from ..buffered_store import BufferedStore, opened_read_only
from ..reads import Clock
from .file import connect, integrity_check, open_to_read
from .reader import READER_CACHE_KIB, SqliteReaders, SqliteSnapshot


class SqliteReadOnlyStore(BufferedStore):
    """Opens the file at ``path`` without taking it for itself: SQLite lets any number of processes read what one
    writes, each on a snapshot of the log. Commits raise FailedPrecondition.

    Raises StoreFormatUnknown, CorruptStore, FailedPrecondition, Unavailable.
    """

    name = "sqlite"

    def __init__(self, path: Path, *, clock: Clock = time.monotonic) -> None:
        self.path = path.resolve()
        super().__init__(clock)
        # Kept open, so that the readers are not the last to close, over and over, each time moving the log.
        self._anchor = open_to_read(self.path)
        self._readers = SqliteReaders(partial(connect, self.path, cache_kib=READER_CACHE_KIB, read_only=True))

    def integrity_check(self) -> list[str]:
        self._check_open()
        return integrity_check(self.path)

    def _snapshot(self) -> SqliteSnapshot:
        return self._readers.snapshot()

    def _lasting_snapshot(self, begin: bytes, end: bytes) -> AbstractContextManager[SqliteSnapshot]:
        return self._readers.lasting_snapshot()

    def _submit(self, request: CommitRequest) -> None:
        raise opened_read_only(self.name)

    def _close(self) -> None:
        self._readers.close()
        with contextlib.suppress(sqlite3.Error):
            self._anchor.close()
