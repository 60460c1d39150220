"""The SQLite file of a store: one process at a time, private to its user, of a format that this release knows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lakemark_core.errors import CorruptStore, FailedPrecondition, LakemarkError, Unavailable

from ..api import StoreFormatUnknown, StoreInUse

APPLICATION_ID: Final = 0x4C4B4D4B  # "LKMK", in the file's header
FORMAT: Final = 1
BUSY_TIMEOUT_MS: Final = 5_000
STATEMENTS_KEPT: Final = 256
"""Prepared statements: the writer's for each number of rows, and the readers' for each number of keys."""

_SCHEMA = """
CREATE TABLE kv(key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE clock(id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL) STRICT;
INSERT INTO clock VALUES (1, 1);
"""


class FileLock:
    """Holds ``<database>.lock``, with the holder's pid in it, until released or until the process ends."""

    def __init__(self, database: Path) -> None:
        path = database.with_name(database.name + ".lock")
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FailedPrecondition(f"cannot open {path}: {error.strerror}", path=str(path)) from error
        try:
            # flock, not lockf: it also keeps a second store of the same process out.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(self._descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise StoreInUse(
                f"{database} is open in process {pid}; a SQLite store serves one process at a time",
                path=str(database),
                pid=pid,
            ) from None
        # The pid is only for messages: a full disk must not keep a service from starting.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """The file stays: removing it would let two processes lock two files of one name."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def connect(database: Path, *, cache_kib: int, read_only: bool) -> sqlite3.Connection:
    """A connection in autocommit mode that any thread may use, one at a time. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        database,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS_KEPT,
    )
    execute = connection.execute
    execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    execute("PRAGMA synchronous = FULL")
    execute(f"PRAGMA cache_size = -{cache_kib}")
    execute("PRAGMA trusted_schema = OFF")
    if read_only:
        execute("PRAGMA query_only = ON")
    return connection


def prepare(database: Path) -> sqlite3.Connection:
    """Makes the file if it is not there, and checks it otherwise. The caller holds the FileLock.

    The returned connection must stay open as long as the store. While it does, no other connection is the last to
    close. The last to close removes the log and its index, and making them anew needs room on the disk.

    Raises StoreFormatUnknown, CorruptStore, FailedPrecondition, Unavailable.
    """
    try:
        descriptor = os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.close(descriptor)
    except OSError as error:
        raise FailedPrecondition(f"cannot open {database}: {error.strerror}", path=str(database)) from error
    return _opened(database, _check_or_create, read_only=False)


def _opened(
    database: Path, check: Callable[[sqlite3.Connection, Path], None], *, read_only: bool
) -> sqlite3.Connection:
    try:
        connection = connect(database, cache_kib=2_048, read_only=read_only)
        try:
            check(connection, database)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise _opening_failed(error, database, read_only=read_only) from error
    return connection


def _opening_failed(error: sqlite3.Error, database: Path, *, read_only: bool) -> LakemarkError:
    code = error_code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreFormatUnknown(f"{database} is not a Lakemark store", path=str(database))
    if read_only and code & 0xFF in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
        return FailedPrecondition(
            f"cannot read {database} ({error}): this user must be able to write it and its directory, because SQLite "
            "shares memory with the service through a file beside it",
            path=str(database),
        )
    return translated(error)


def _is_new(connection: sqlite3.Connection) -> bool:
    marks = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    return marks == (0, 0) and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _check_or_create(connection: sqlite3.Connection, database: Path) -> None:
    if _is_new(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(
            f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {FORMAT}; COMMIT"
        )
    _check_format(connection, database)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise FailedPrecondition(f"{database} lies on a file system without the shared memory that WAL needs")
    _sync_directory(database.parent)


def _check_to_read(connection: sqlite3.Connection, database: Path) -> None:
    if _is_new(connection):
        raise FailedPrecondition(f"{database} is empty: no store was made in it yet", path=str(database))
    _check_format(connection, database)


def _check_format(connection: sqlite3.Connection, database: Path) -> None:
    written_format = _pragma(connection, "user_version")
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreFormatUnknown(f"{database} is another application's SQLite file", path=str(database))
    if written_format != FORMAT:
        raise StoreFormatUnknown(
            f"{database} has format {written_format}, and this release of Lakemark knows format {FORMAT}; "
            "open it with the release that wrote it",
            path=str(database),
            format=str(written_format),
        )


def open_to_read(database: Path) -> sqlite3.Connection:
    """A connection that only reads, for a process without the FileLock: another process may be writing.

    Raises StoreFormatUnknown, CorruptStore, FailedPrecondition, Unavailable.
    """
    if not database.is_file():
        raise FailedPrecondition(f"there is no file {database}", path=str(database))
    return _opened(database, _check_to_read, read_only=True)


def integrity_check(database: Path) -> list[str]:
    """The damage that SQLite finds in the file, in its words; empty if there is none. Reads the whole file."""
    try:
        with contextlib.closing(connect(database, cache_kib=2_048, read_only=True)) as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    except sqlite3.Error as error:
        raise translated(error) from error
    return [] if problems == ["ok"] else problems


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def translated(error: sqlite3.Error) -> LakemarkError:
    """The error of a caller for whom nothing was applied."""
    primary = error_code(error) & 0xFF
    if primary in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return CorruptStore(f"the store's file is damaged ({error}); restore a backup")
    if primary == sqlite3.SQLITE_FULL:
        return Unavailable("the store's disk is full; nothing was applied")
    return Unavailable(f"the store's file cannot be used now ({error}); nothing was applied")


def error_code(error: sqlite3.Error) -> int:
    """SQLite's extended result code; 0 for errors that the driver found by itself."""
    return int(getattr(error, "sqlite_errorcode", 0))
