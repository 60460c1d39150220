"""The store on one SQLite file: readers on WAL snapshots, one writer thread with group commit."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from .api import OpenTransaction, ReadTransaction, Store, StoreClosed, Transaction
from .buffer import BufferedTransaction
from .group_commit import GroupCommitter
from .reads import Clock, ReadOnlyTransaction
from .retry import run_transaction
from .sqlite_file import FileLock, connect, prepare, translated
from .sqlite_reader import SqliteReaders, SqliteSnapshot
from .sqlite_writer import SqliteWriter

READER_CACHE_KIB: Final = 2_048
WRITER_CACHE_KIB: Final = 65_536

T = TypeVar("T")


class SqliteStore(Store):
    """Opens (or makes) the file at ``path``; one process at a time.

    ``clock`` counts the seconds of a transaction's age. Raises StoreInUse, StoreFormatUnknown, CorruptStore,
    FailedPrecondition, Unavailable.
    """

    name = "sqlite"

    def __init__(self, path: Path, *, clock: Clock = time.monotonic) -> None:
        self.path = path.resolve()
        self._clock = clock
        self._closing = threading.Lock()
        self._closed = False
        self._lock = FileLock(self.path)
        try:
            self._anchor = prepare(self.path)
        except BaseException:
            self._lock.release()
            raise
        self._readers = SqliteReaders(partial(connect, self.path, cache_kib=READER_CACHE_KIB, read_only=True))
        self._writer = SqliteWriter(partial(connect, self.path, cache_kib=WRITER_CACHE_KIB, read_only=False), clock)
        self._committer = GroupCommitter(self._writer.apply, f"lakemark-commit {self.path.name}")

    def read(self, body: Callable[[ReadTransaction], T]) -> T:
        self._check_open()
        transaction = ReadOnlyTransaction(self._open_snapshot, self._clock)
        try:
            return body(transaction)
        finally:
            transaction.finish()

    def transact(self, body: Callable[[Transaction], T], *, attempts_max: int = 50) -> T:
        return run_transaction(self.begin, body, attempts_max)

    def begin(self) -> OpenTransaction:
        self._check_open()
        return BufferedTransaction(self._open_snapshot, self._committer.commit, self._clock)

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._committer.close()
            self._readers.close()
            self._writer.close()
            # The last to close moves the log into the file; if it cannot, the next start does.
            with contextlib.suppress(sqlite3.Error):
                self._anchor.close()
            self._lock.release()

    def integrity_check(self) -> list[str]:
        """What SQLite finds damaged in the file, in its words; empty if all is well. Reads the whole file."""
        self._check_open()
        try:
            connection = connect(self.path, cache_kib=READER_CACHE_KIB, read_only=True)
            with contextlib.closing(connection):
                found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        except sqlite3.Error as error:
            raise translated(error) from error
        return [] if found == ["ok"] else found

    def _open_snapshot(self) -> SqliteSnapshot:
        self._check_open()
        return self._readers.snapshot()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
