"""What the two ways to open a store's SQLite file have in common: readers, and a connection that stays open."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from ..buffered_store import BufferedStore
from ..reads import Clock
from .file import connect, integrity_check
from .reader import READER_CACHE_KIB, SqliteReaders, SqliteSnapshot


class SqliteFileStore(BufferedStore):
    """``open_file`` checks the file and gives the connection that is kept open, so that no reader is ever the last to
    close: that would move the log into the file, over and over."""

    name = "sqlite"

    def __init__(self, path: Path, open_file: Callable[[Path], sqlite3.Connection], clock: Clock) -> None:
        super().__init__(clock)
        self.path = path.resolve()
        self._anchor = open_file(self.path)
        self._readers = SqliteReaders(partial(connect, self.path, cache_kib=READER_CACHE_KIB, read_only=True))

    def integrity_check(self) -> list[str]:
        self._check_open()
        return integrity_check(self.path)

    def _snapshot(self) -> SqliteSnapshot:
        return self._readers.snapshot()

    def _lasting_snapshot(self, begin: bytes, end: bytes) -> AbstractContextManager[SqliteSnapshot]:
        return self._readers.lasting_snapshot()

    def _close(self) -> None:
        self._readers.close()
        # The last to close moves the log into the file; if it cannot, the next start does.
        with contextlib.suppress(sqlite3.Error):
            self._anchor.close()
