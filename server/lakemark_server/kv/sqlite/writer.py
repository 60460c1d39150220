"""Applies batches of transactions to the SQLite file: resolves each, writes what is admitted, in one durable COMMIT."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from lakemark_core.errors import LakemarkError

from ..api import TRANSACTION_SECONDS_MAX, CommitUnknownResult, KeyValue
from ..batch import resolve
from ..buffer import PendingTransaction
from ..overlay import Overlay, add_to_counter
from ..reads import Clock
from ..resolver import Resolver
from .file import error_code, translated

# COMMIT failed before its last frame could be whole: SQLite rolls back, and recovery after a crash finds nothing.
_SURELY_NOT_COMMITTED: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_NOMEM})
_MARK_SECONDS: Final = 0.25
ROWS_PER_STATEMENT: Final = 64

T = TypeVar("T")


class SqliteWriter:
    """The only connection that writes. Used by one thread.

    After a failure the connection is closed and the next batch opens another, so that the store works again as soon as
    the disk does.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._resolver: Resolver | None = None
        # (seconds, version): the newest version at that time.
        self._marks: deque[tuple[float, int]] = deque()

    def apply(self, batch: Sequence[PendingTransaction]) -> list[LakemarkError | None]:
        """The error of each transaction that was not applied, else None. Never raises sqlite3.Error."""
        committing = False
        errors: list[LakemarkError | None] = [None] * len(batch)
        try:
            connection, resolver = self._begin()
            version = resolver.newest + 1
            writes, errors = resolve(resolver, batch, version)
            if all(errors):
                connection.execute("ROLLBACK")
                return errors
            _write(connection, writes, version)
            committing = True
            connection.execute("COMMIT")
        except BaseException as error:
            self._abandon()
            if not isinstance(error, sqlite3.Error):
                raise
            return [known or _failure(error, committing) for known in errors]
        resolver.seal(version)
        self._forget(resolver)
        return errors

    def close(self) -> None:
        if self._connection is not None:
            # If it cannot be closed cleanly, the next start recovers from the log.
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _begin(self) -> tuple[sqlite3.Connection, Resolver]:
        if self._connection is not None and self._resolver is not None:
            self._connection.execute("BEGIN IMMEDIATE")
            return self._connection, self._resolver
        self._connection = connection = self._connect()
        connection.execute("BEGIN IMMEDIATE")
        version: int = connection.execute("SELECT version FROM clock").fetchone()[0]
        if self._resolver is None:
            self._resolver = Resolver(version)
        elif self._resolver.newest != version:
            # A COMMIT of unknown outcome was applied after all.
            self._resolver.restart(version)
        return connection, self._resolver

    def _abandon(self) -> None:
        """Closing the connection rolls back."""
        self.close()
        if self._resolver is not None:
            self._resolver.discard()

    def _forget(self, resolver: Resolver) -> None:
        """Forgets writes that are older than a transaction may live."""
        now = self._clock()
        if not self._marks or now - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((now, resolver.newest))
        while self._marks and now - self._marks[0][0] > TRANSACTION_SECONDS_MAX:
            resolver.forget(self._marks.popleft()[1])


def _write(connection: sqlite3.Connection, writes: Overlay, version: int) -> None:
    execute = connection.execute
    connection.executemany("DELETE FROM kv WHERE key >= ? AND key < ?", writes.cleared_ranges())
    rows: list[KeyValue] = []
    cleared: list[bytes] = []
    added: list[tuple[bytes, int]] = []
    for key, pending in writes.points.items():
        if pending is None:
            cleared.append(key)
        elif isinstance(pending, int):
            added.append((key, pending))
        else:
            rows.append((key, pending))
    if added:
        stored: dict[bytes, bytes] = {}
        for keys in _pieces([key for key, _ in added]):
            stored.update(execute(f"SELECT key, value FROM kv WHERE key IN ({_marks('?', keys)})", keys))  # noqa: S608
        rows += [(key, add_to_counter(stored.get(key), number)) for key, number in added]
    for keys in _pieces(cleared):
        execute(f"DELETE FROM kv WHERE key IN ({_marks('?', keys)})", keys)  # noqa: S608
    for some in _pieces(rows):
        flat = [item for row in some for item in row]
        execute(f"INSERT OR REPLACE INTO kv VALUES {_marks('(?,?)', some)}", flat)  # noqa: S608
    execute("UPDATE clock SET version = ?", (version,))


def _pieces(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Rows for one statement each. Every statement gives up the interpreter's lock and has to wait for it again."""
    return (rows[at : at + ROWS_PER_STATEMENT] for at in range(0, len(rows), ROWS_PER_STATEMENT))


def _marks(mark: str, rows: Sequence[object]) -> str:
    return ",".join([mark] * len(rows))


def _failure(error: sqlite3.Error, committing: bool) -> LakemarkError:
    if committing and error_code(error) & 0xFF not in _SURELY_NOT_COMMITTED:
        return CommitUnknownResult(
            f"the store's file failed while committing ({error}); the change may be there or not"
        )
    return translated(error)
