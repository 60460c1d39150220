"""Opening stores: URLs, the file's format and mode, one process at a time."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lakemark_core.errors import CorruptStore, FailedPrecondition, InvalidArgument
from lakemark_server.kv import StoreFormatUnknown, StoreInUse, open_store
from lakemark_server.kv.sqlite import file
from lakemark_server.kv.sqlite.store import SqliteStore


def test_urls_name_files_as_sqlalchemy_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///relative.db")
    store.transact(lambda tx: tx.set(b"a", b"1"))
    store.close()
    store = open_store(f"sqlite:///{tmp_path}/relative.db")
    assert store.read(lambda tx: tx.get(b"a")) == b"1"
    store.close()


@pytest.mark.parametrize("url", ["", "file.db", "/file.db", "sqlite://", "sqlite:///", "sqlite://host/file.db"])
def test_other_urls_are_told_the_accepted_forms(url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"sqlite:///relative/path\.db"):
        open_store(url)


@pytest.mark.parametrize(
    "url", ["sqlite:///:memory:", "sqlite:///a.db?mode=ro", "mysql://host/db", "postgresql+psycopg://host/db"]
)
def test_what_cannot_hold_a_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"sqlite:///relative/path\.db"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    ["postgresql:/u:geheim@h/d", "u:geheim@h/d", "host=h password=geheim", "u:geheim@h://d", "jdbc:u:geheim@h://h/d"],
)
def test_a_mistyped_url_is_not_quoted(url: str) -> None:
    with pytest.raises(InvalidArgument, match="this is not a kind of store") as raised:
        open_store(url)
    assert "geheim" not in str(raised.value)


def test_the_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "kv.db")
        store.transact(lambda tx: tx.set(b"a", b"1"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["kv.db", "kv.db-wal", "kv.db-shm", "kv.db.lock"], 0o600)


def test_commits_are_synced_to_the_disk(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kv.db")
    writer = store._writer._connect()
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
    writer.close()
    store.close()


def test_a_second_store_on_the_file_names_the_holder(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kv.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "kv.db")
    for name in ("kv.db", "link.db"):
        with pytest.raises(StoreInUse, match=f"open in process {os.getpid()};") as raised:
            SqliteStore(tmp_path / name)
        assert raised.value.details["pid"] == str(os.getpid())
    other = f"""
from pathlib import Path
from lakemark_server.kv.sqlite import file
from lakemark_server.kv.sqlite.store import SqliteStore
SqliteStore(Path({str(tmp_path / "kv.db")!r}))
"""
    process = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert f"StoreInUse: {(tmp_path / 'kv.db').resolve()} is open in process {os.getpid()};" in process.stderr
    store.close()
    SqliteStore(tmp_path / "kv.db").close()


def test_a_failed_open_does_not_keep_the_lock(tmp_path: Path) -> None:
    (tmp_path / "kv.db").write_bytes(b"text, not a database" * 1_000)
    for _ in range(2):
        with pytest.raises(StoreFormatUnknown, match="not a Lakemark store"):
            SqliteStore(tmp_path / "kv.db")


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="No such file or directory"):
        SqliteStore(tmp_path / "missing" / "kv.db")


def test_a_newer_format_is_not_touched(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "kv.db").close()
    with sqlite3.connect(tmp_path / "kv.db") as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StoreFormatUnknown, match="has format 2, and this release of Lakemark knows format 1"):
        SqliteStore(tmp_path / "kv.db")


def test_another_applications_file_is_not_touched(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "kv.db") as connection:
        connection.execute("CREATE TABLE theirs(x)")
    connection.close()
    with pytest.raises(StoreFormatUnknown, match="another application"):
        SqliteStore(tmp_path / "kv.db")
    with sqlite3.connect(tmp_path / "kv.db") as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


def test_damage_is_found_and_told(tmp_path: Path) -> None:
    path = tmp_path / "kv.db"
    store = SqliteStore(path)
    store.transact(lambda tx: [tx.set(b"%06d" % number, bytes(500)) for number in range(2_000)])
    assert store.integrity_check() == []
    store.close()
    with path.open("r+b") as file:
        for page in range(10, 60):
            file.seek(page * 4_096)
            file.write(b"\xa5" * 512)
    store = SqliteStore(path)
    with pytest.raises(CorruptStore, match="damaged"):
        store.read(lambda tx: tx.get_range(b"", b"\xff"))
    try:
        problems = store.integrity_check()
    except CorruptStore:
        problems = ["unreadable"]
    assert problems
    store.close()


def test_a_disk_without_room_for_the_holders_pid_does_not_keep_a_store_from_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    store = SqliteStore(tmp_path / "kv.db")
    with pytest.raises(StoreInUse, match="open in process unknown;"):
        SqliteStore(tmp_path / "kv.db")
    store.close()


def test_an_empty_file_is_not_taken_for_another_applications(tmp_path: Path) -> None:
    (tmp_path / "kv.db").touch()
    with pytest.raises(FailedPrecondition, match=r"kv\.db is empty: no store was made in it yet"):
        open_store(f"sqlite:///{tmp_path}/kv.db", read_only=True)
    SqliteStore(tmp_path / "kv.db").close()
    open_store(f"sqlite:///{tmp_path}/kv.db", read_only=True).close()


def test_reading_from_a_directory_that_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(tmp_path / "kv.db").close()
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN

    def refuse(*_: object, **__: object) -> sqlite3.Connection:
        raise error

    monkeypatch.setattr(file, "connect", refuse)
    with pytest.raises(FailedPrecondition, match=r"cannot read .*kv\.db .*must be able to write it and its directory"):
        open_store(f"sqlite:///{tmp_path}/kv.db", read_only=True)
