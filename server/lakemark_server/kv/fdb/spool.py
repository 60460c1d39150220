"""A temporary file in which an export from FoundationDB is assembled: pairs in the order of their keys."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lakemark_core.errors import Unavailable

from ..api import KeyValue


class Spool:
    """A file that nothing else uses and that need not survive a crash. Writing raises sqlite3.Error.

    ``copied``: the version of which the file is a complete copy; -1 until it is.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.copied = -1
        self._connection = connection
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")

    def replace(self, begin: bytes, end: bytes, pairs: Iterable[KeyValue]) -> None:
        """Replaces all pairs in the range."""
        self._connection.execute("DELETE FROM kv WHERE key >= ? AND key < ?", (begin, end))
        self._connection.executemany("INSERT INTO kv VALUES (?, ?)", pairs)

    def put(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._connection.execute("DELETE FROM kv WHERE key = ?", (key,))
        else:
            self._connection.execute("INSERT OR REPLACE INTO kv VALUES (?, ?)", (key, value))

    def version(self) -> int:
        return self.copied

    def get_range(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]:
        order = "DESC" if reverse else "ASC"
        statement = f"SELECT key, value FROM kv WHERE key >= ? AND key < ? ORDER BY key {order} LIMIT ?"  # noqa: S608
        with disk_errors():
            pairs: list[KeyValue] = self._connection.execute(statement, (begin, end, limit or -1)).fetchall()
        return pairs


@contextmanager
def spool() -> Iterator[Spool]:
    """A new spool. Raises Unavailable if the disk for temporary files (``TMPDIR``) is full."""
    with tempfile.TemporaryDirectory(prefix="lakemark-export-") as directory, disk_errors():
        connection = sqlite3.connect(Path(directory) / "pairs", isolation_level=None, check_same_thread=False)
        try:
            yield Spool(connection)
        finally:
            connection.close()


@contextmanager
def disk_errors() -> Iterator[None]:
    """Inside, SQLite's errors become Unavailable."""
    try:
        yield
    except sqlite3.Error as error:
        raise Unavailable(
            f"the export's temporary file cannot be written ({error}); TMPDIR names another disk"
        ) from error
