"""A failing disk: which callers get which errors, and that the store works again once the disk does."""

from __future__ import annotations

import resource
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakemark_core.errors import CorruptStore, LakemarkError, Unavailable
from lakemark_server.kv import CommitUnknownResult, Conflict, Store
from lakemark_server.kv.api import KEYS_END
from lakemark_server.kv.sqlite.store import SqliteStore
from lakemark_server.kv.sqlite.writer import SqliteWriter


class Fault:
    """Makes the writer's statements fail, either ``before`` SQLite sees them or ``after`` it has executed them."""

    def __init__(self) -> None:
        self.statement = ""
        self.error = sqlite3.SQLITE_OK
        self.after = False
        self.hits = 0

    def set(self, statement: str, error: int, *, after: bool = False) -> None:
        self.statement, self.error, self.after = statement, error, after

    def clear(self) -> None:
        self.statement = ""

    def strike(self) -> None:
        self.hits += 1
        error = sqlite3.OperationalError(f"injected {self.error}")
        error.sqlite_errorcode = self.error
        raise error


class FaultyConnection:
    """Wraps a connection to SQLite that fails on command."""

    def __init__(self, connection: sqlite3.Connection, fault: Fault) -> None:
        self._connection = connection
        self._fault = fault

    def execute(self, statement: str, *values: object) -> object:
        return self._guard(statement, lambda: self._connection.execute(statement, *values))  # type: ignore[arg-type]

    def executemany(self, statement: str, values: object) -> object:
        return self._guard(statement, lambda: self._connection.executemany(statement, values))  # type: ignore[arg-type]

    def close(self) -> None:
        self._connection.close()

    def _guard(self, statement: str, run: Callable[[], object]) -> object:
        struck = bool(self._fault.statement) and statement.startswith(self._fault.statement)
        if struck and not self._fault.after:
            self._fault.strike()
        result = run()
        if struck:
            self._fault.strike()
        return result


@pytest.fixture
def fault() -> Fault:
    return Fault()


@pytest.fixture
def store(tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    plain = SqliteWriter.__init__

    def faulty(self: SqliteWriter, connect: Callable[[], sqlite3.Connection], clock: Callable[[], float]) -> None:
        plain(self, lambda: FaultyConnection(connect(), fault), clock)  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(SqliteWriter, "__init__", faulty)
    opened = SqliteStore(tmp_path / "kv.db")
    yield opened
    opened.close()


def content(store: Store) -> dict[bytes, bytes]:
    return dict(store.read(lambda tx: tx.get_range(b"", KEYS_END)))


KNOWN: dict[str, tuple[str, int, type[LakemarkError], str]] = {
    "the file cannot be locked": ("BEGIN", sqlite3.SQLITE_BUSY, Unavailable, "cannot be used now"),
    "reading fails": ("SELECT", sqlite3.SQLITE_IOERR_READ, Unavailable, "cannot be used now"),
    "no room while writing": ("INSERT", sqlite3.SQLITE_FULL, Unavailable, "disk is full"),
    "writing fails": ("UPDATE clock", sqlite3.SQLITE_IOERR_WRITE, Unavailable, "cannot be used now"),
    "the file is damaged": ("DELETE", sqlite3.SQLITE_CORRUPT, CorruptStore, "damaged"),
    "no room while committing": ("COMMIT", sqlite3.SQLITE_FULL, Unavailable, "disk is full"),
}


@pytest.mark.parametrize("case", KNOWN)
def test_a_failed_commit_is_told_and_not_applied(store: Store, fault: Fault, case: str) -> None:
    statement, code, error, message = KNOWN[case]
    store.transact(lambda tx: tx.set(b"kept", b"1"))
    fault.set(statement, code)
    for _ in range(2):
        with pytest.raises(error, match=message):
            store.transact(
                lambda tx: [tx.get(b"kept"), tx.set(b"lost", b"1"), tx.clear(b"kept"), tx.add(b"lost, too", 1)]
            )
        assert content(store) == {b"kept": b"1"}
    assert fault.hits == 2, "the fault was never met, or it was retried"
    fault.clear()
    store.transact(lambda tx: [tx.get(b"kept"), tx.set(b"back", b"1")])
    assert content(store) == {b"kept": b"1", b"back": b"1"}


@pytest.mark.parametrize("after", [False, True], ids=["it did not happen", "it did happen"])
def test_a_commit_of_unknown_outcome_is_never_called_a_failure(store: Store, fault: Fault, after: bool) -> None:
    store.transact(lambda tx: tx.set(b"a", b"0"))
    reader = store.begin()
    assert reader.get(b"a") == b"0"
    reader.set(b"copy of a", b"0")
    fault.set("COMMIT", sqlite3.SQLITE_IOERR_FSYNC, after=after)
    with pytest.raises(CommitUnknownResult, match="may be there or not"):
        store.transact(lambda tx: tx.set(b"a", b"1"))
    fault.clear()
    assert content(store) == {b"a": b"1" if after else b"0"}
    if after:
        # It conflicts with earlier reads, although nobody was told that it happened.
        with pytest.raises(LakemarkError) as raised:
            reader.commit()
        assert raised.value.code in {"kv_conflict", "kv_transaction_too_old"}
    else:
        reader.commit()
    store.transact(lambda tx: tx.set(b"a", (tx.get(b"a") or b"") + b"+"))
    assert content(store)[b"a"] == (b"1+" if after else b"0+")


def test_a_failed_write_does_not_block_its_key(store: Store, fault: Fault) -> None:
    """Writes of a failed batch must not count as written for later readers of the key."""
    fault.set("COMMIT", sqlite3.SQLITE_FULL)
    with pytest.raises(Unavailable):
        store.transact(lambda tx: tx.set(b"a", b"1"))
    fault.clear()
    tx = store.begin()
    assert tx.get(b"a") is None
    tx.set(b"a", b"2")
    tx.commit()


def test_only_those_of_the_failed_batch_fail(store: Store, fault: Fault) -> None:
    """Eight writers while the disk comes and goes: acknowledged writes are there, failed ones are not."""
    acknowledged: list[bytes] = []
    failed: list[bytes] = []
    rounds = threading.Barrier(9)

    def write(writer: int) -> None:
        for number in range(30):
            rounds.wait()
            key = b"%d/%d" % (writer, number)
            try:
                store.transact(lambda tx, key=key: [tx.get(b"shared"), tx.set(key, b"")])  # type: ignore[misc]
            except Conflict:
                raise
            except Unavailable:
                failed.append(key)
            else:
                acknowledged.append(key)

    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(write, writer) for writer in range(8)]
        for number in range(30):
            fault.clear()
            if number % 2:
                fault.set("UPDATE clock", sqlite3.SQLITE_FULL)
            rounds.wait()
        for writer in writers:
            writer.result()
    fault.clear()
    assert len(acknowledged) + len(failed) == 240
    assert min(len(acknowledged), len(failed)) > 0
    assert content(store).keys() == set(acknowledged)


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond this size, so that the kernel returns a real write error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_error_of_the_kernel(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kv.db")
    store.transact(lambda tx: tx.set(b"kept", b"1"))
    log_bytes = (tmp_path / "kv.db-wal").stat().st_size
    with largest_file(log_bytes + 20_000):
        for _ in range(3):
            with pytest.raises((CommitUnknownResult, Unavailable)):
                store.transact(lambda tx: [tx.set(b"%d" % number, bytes(90_000)) for number in range(3)])
        assert content(store) == {b"kept": b"1"}
    store.transact(lambda tx: tx.set(b"back", b"1"))
    assert content(store) == {b"kept": b"1", b"back": b"1"}
    assert store.integrity_check() == []
    store.close()
    again = SqliteStore(tmp_path / "kv.db")
    assert content(again) == {b"kept": b"1", b"back": b"1"}
    again.close()
