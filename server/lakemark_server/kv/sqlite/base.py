"""What both ways to open a store's SQLite file share: readers, and a connection that stays open."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from ..buffered_store import BufferedStore
from ..reads import Clock
from .file import connect, integrity_check
from .reader import KEYS_PER_STATEMENT, READER_CACHE_KIB, SqliteReaders, SqliteSnapshot, values_of


class SqliteFileStore(BufferedStore):
    """A store on the file at ``path``.

    ``open_file`` checks the file and returns a connection, which stays open so that no reader is ever the last to
    close. The last to close moves the log into the file, which would happen over and over.
    """

    name = "sqlite"

    def __init__(self, path: Path, open_file: Callable[[Path], sqlite3.Connection], clock: Clock) -> None:
        super().__init__(clock)
        self.path = path.resolve()
        self._anchor = open_file(self.path)
        self._connect = partial(connect, self.path, cache_kib=READER_CACHE_KIB, read_only=True)
        self._readers = SqliteReaders(self._connect)
        self._at_once: sqlite3.Connection | None = None
        self._at_once_taken = threading.Lock()

    def integrity_check(self) -> list[str]:
        self._check_open()
        return integrity_check(self.path)

    def read_at_once(self, keys: Sequence[bytes]) -> list[bytes | None] | None:
        """Reads with a connection of its own, which waits for no other. The pages are usually in memory."""
        if len(keys) > KEYS_PER_STATEMENT or not self._at_once_taken.acquire(blocking=False):
            return None
        try:
            if self._closed:
                return None
            if self._at_once is None:
                self._at_once = self._connect()
                self._at_once.execute("PRAGMA busy_timeout = 0")
            return values_of(self._at_once.execute, keys)
        except sqlite3.Error:
            return None
        finally:
            self._at_once_taken.release()

    def _snapshot(self) -> SqliteSnapshot:
        return self._readers.snapshot()

    def _lasting_snapshot(self, begin: bytes, end: bytes) -> AbstractContextManager[SqliteSnapshot]:
        return self._readers.lasting_snapshot()

    def _close(self) -> None:
        self._readers.close()
        with self._at_once_taken, contextlib.suppress(sqlite3.Error):
            if self._at_once is not None:
                self._at_once.close()
        # The last to close moves the log into the file. If it cannot, the next start does.
        with contextlib.suppress(sqlite3.Error):
            self._anchor.close()
