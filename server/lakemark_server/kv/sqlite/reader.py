"""Readers of the SQLite file: a pool of connections, each transaction on one WAL snapshot of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy.pool import PoolProxiedConnection

from ..api import KeyValue
from ..reader_pool import ReaderPool
from .file import translated

READER_CACHE_KIB: Final = 2_048
READERS_KEPT: Final = 64
READERS_MAX: Final = 256
KEYS_PER_STATEMENT: Final = 256


class SqliteReaders(ReaderPool):
    """Snapshots of the file."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect, readers_kept=READERS_KEPT, readers_max=READERS_MAX)

    def snapshot(self) -> SqliteSnapshot:
        """Raises Unavailable, CorruptStore."""
        try:
            connection = self.take()
        except sqlite3.Error as error:
            raise translated(error) from error
        try:
            return SqliteSnapshot(self, connection)
        except sqlite3.Error as error:
            connection.invalidate(error)
            raise translated(error) from error

    @contextmanager
    def lasting_snapshot(self) -> Iterator[SqliteSnapshot]:
        """A snapshot for long reads. Until it is released, the log cannot be truncated, and grows."""
        snapshot = self.snapshot()
        try:
            yield snapshot
        finally:
            snapshot.release()


def values_of(
    execute: Callable[[str, tuple[bytes, ...]], Iterable[tuple[bytes, bytes]]], keys: Sequence[bytes]
) -> list[bytes | None]:
    """The values in the order of the keys. Up to KEYS_PER_STATEMENT are read as of one moment. Raises sqlite3.Error."""
    values: dict[bytes, bytes] = {}
    for start in range(0, len(keys), KEYS_PER_STATEMENT):
        some = tuple(keys[start : start + KEYS_PER_STATEMENT])
        # Padded to a power of two, so that few different statements are prepared and all stay cached.
        padded = some + some[-1:] * ((1 << (len(some) - 1).bit_length()) - len(some))
        marks = ",".join("?" * len(padded))
        values.update(execute(f"SELECT key, value FROM kv WHERE key IN ({marks})", padded))  # noqa: S608
    return [values.get(key) for key in keys]


class SqliteSnapshot:
    """One WAL snapshot, taken by its first statement. Driver-level cursors: this is the hot path."""

    __slots__ = ("_connection", "_execute", "_readers")

    def __init__(self, readers: SqliteReaders, connection: PoolProxiedConnection) -> None:
        self._readers = readers
        self._connection = connection
        self._execute = connection.cursor().execute
        self._execute("BEGIN")

    def get(self, key: bytes) -> bytes | None:
        try:
            row = self._execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise translated(error) from error
        return row[0] if row else None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            return values_of(self._execute, keys)
        except sqlite3.Error as error:
            raise translated(error) from error

    def get_range(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]:
        order = "DESC" if reverse else "ASC"
        statement = f"SELECT key, value FROM kv WHERE key >= ? AND key < ? ORDER BY key {order} LIMIT ?"  # noqa: S608
        try:
            pairs: list[KeyValue] = self._execute(statement, (begin, end, limit or -1)).fetchall()
        except sqlite3.Error as error:
            raise translated(error) from error
        return pairs

    def version(self) -> int:
        try:
            row = self._execute("SELECT version FROM clock").fetchone()
        except sqlite3.Error as error:
            raise translated(error) from error
        return int(row[0])

    def release(self) -> None:
        self._readers.give_back(self._connection)
