"""PostgreSQL that goes away: at any moment, in the middle of a commit, silently.

Which callers get which errors, and the state afterwards.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from lakemark_core.errors import FailedPrecondition, LakemarkError, Unavailable
from lakemark_server.kv import (
    CommitUnknownResult,
    Store,
    StoreFormatUnknown,
    open_store,
)
from lakemark_server.kv.batch import resolve
from lakemark_server.kv.postgres import reader as postgres_reader
from lakemark_server.kv.postgres import store as postgres_store
from lakemark_server.kv.postgres import writer as postgres_writer
from tests.fault.kill_load import Outcomes, write_over_restarts
from tests.fault.socket_proxy import Fault, SocketProxy
from tests.lengths import long, slow
from tests.postgres_server import PostgresServer
from tests.stores import postgres_server, postgres_url, schema_of

BIND_COMMIT = b"\0commit\0"
BIND_LOCK = b"\0lock\0"
BIND_GET = b"\0get\0"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return postgres_url(tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture
def proxy(own_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketProxy]:
    directory = own_postgres.directory / "front"
    directory.mkdir(exist_ok=True)
    front = directory / ".s.PGSQL.5432"
    front.unlink(missing_ok=True)
    made = SocketProxy(front, own_postgres.directory / ".s.PGSQL.5432")
    yield made
    made.close()


@pytest.fixture
def through_proxy(own_postgres: PostgresServer, own_url: str, proxy: SocketProxy) -> Iterator[Store]:
    back, front = (quote(str(path), safe="") for path in (own_postgres.directory, own_postgres.directory / "front"))
    opened = open_store(own_url.replace(f"host={back}", f"host={front}"))
    opened.transact(lambda tx: tx.set(b"a", b"0"))
    yield opened
    opened.close()


def value(store: Store, key: bytes = b"a") -> bytes | None:
    return store.read(lambda tx: tx.get(key))


# -- one connection, at a chosen moment --------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "happened"), [("cut before", False), ("cut after", True)])
def test_a_connection_that_is_lost_with_the_commit(
    through_proxy: Store, own_url: str, proxy: SocketProxy, fault: Fault, happened: bool
) -> None:
    reader = through_proxy.begin()
    assert reader.get(b"a") == b"0"
    reader.set(b"copy of a", b"0")
    proxy.arm(BIND_COMMIT, fault)
    with pytest.raises(CommitUnknownResult, match="may be there or not"):
        through_proxy.transact(lambda tx: tx.set(b"a", b"1"))
    assert proxy.hits == 1
    assert value(through_proxy) == (b"1" if happened else b"0")
    if happened:
        # It conflicts with earlier reads, although nobody was told that it happened.
        with pytest.raises(LakemarkError) as raised:
            reader.commit()
        assert raised.value.code == "kv_conflict"
    else:
        reader.commit()
    through_proxy.transact(lambda tx: tx.set(b"a", (tx.get(b"a") or b"") + b"+"))
    other = open_store(own_url)
    assert value(other) == (b"1+" if happened else b"0+")
    other.close()


def test_a_connection_that_is_lost_before_the_commit_is_replaced(through_proxy: Store, proxy: SocketProxy) -> None:
    before = proxy.connections
    proxy.arm(BIND_LOCK, "cut before")
    through_proxy.transact(lambda tx: tx.set(b"a", b"1"))
    assert proxy.hits == 1
    assert proxy.connections == before + 1
    assert value(through_proxy) == b"1"


def test_a_connection_that_is_lost_before_the_first_read_is_replaced(through_proxy: Store, proxy: SocketProxy) -> None:
    assert value(through_proxy) == b"0"
    proxy.arm(BIND_GET, "cut before")
    assert value(through_proxy) == b"0"
    assert proxy.hits == 1


def test_a_snapshot_that_is_lost_is_not_replaced_by_another(through_proxy: Store, proxy: SocketProxy) -> None:
    tx = through_proxy.begin()
    assert tx.get(b"a") == b"0"
    proxy.arm(BIND_GET, "cut before")
    through_proxy.transact(lambda other: other.set(b"a", b"1"))
    for _ in range(2):
        with pytest.raises(Unavailable):
            tx.get(b"b")  # another key, because reads are kept
    tx.cancel()
    assert value(through_proxy) == b"1"


def test_a_server_that_falls_silent_is_given_up(
    through_proxy: Store, proxy: SocketProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert value(through_proxy) == b"0"
    monkeypatch.setattr(postgres_reader, "ANSWER_SECONDS_MAX", 0.2)
    monkeypatch.setattr(postgres_writer, "ANSWER_SECONDS_MAX", 0.2)
    proxy.arm(BIND_GET, "silence")
    with pytest.raises(Unavailable, match="no answer in time"):
        value(through_proxy)
    proxy.arm(BIND_LOCK, "silence")
    with pytest.raises(Unavailable, match="no answer in time"):
        through_proxy.transact(lambda tx: tx.set(b"a", b"1"))
    assert value(through_proxy) == b"0"


def test_a_server_that_falls_silent_while_a_session_begins_is_given_up(
    through_proxy: Store, proxy: SocketProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    through_proxy._writer.close()  # type: ignore[attr-defined]
    monkeypatch.setattr(postgres_store, "_SET_UP_SECONDS_MAX", 0.2)
    proxy.arm(b"lock_timeout", "silence")
    with pytest.raises(Unavailable, match="no answer in time"):
        through_proxy.transact(lambda tx: tx.set(b"a", b"1"))
    assert value(through_proxy) == b"0"


def test_a_commit_in_silence_is_of_unknown_outcome(
    through_proxy: Store, proxy: SocketProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_writer, "ANSWER_SECONDS_MAX", 0.2)
    proxy.arm(BIND_COMMIT, "silence")
    with pytest.raises(CommitUnknownResult):
        through_proxy.transact(lambda tx: tx.set(b"a", b"1"))
    assert value(through_proxy) == b"1"


def test_a_process_that_hangs_with_the_turn_to_commit_loses_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn ends without its writes, and the others wait no longer than that."""
    monkeypatch.setitem(postgres_store._WRITER, "idle_in_transaction_session_timeout", "200ms")
    hanging, other = open_store(url), open_store(url)
    has_turn, go_on = threading.Event(), threading.Event()

    def slow(*arguments: object) -> object:
        if threading.current_thread() is hanging._committer._thread:  # type: ignore[attr-defined]
            has_turn.set()
            go_on.wait()
        return resolve(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(postgres_writer, "resolve", slow)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(hanging.transact, lambda tx: tx.set(b"a", b"hanging"))
        has_turn.wait()
        other.transact(lambda tx: tx.set(b"a", b"other"))
        go_on.set()
        with pytest.raises((Unavailable, CommitUnknownResult)):
            late.result()
    assert value(hanging) == value(other) == b"other"
    hanging.transact(lambda tx: tx.set(b"a", b"again"))
    hanging.close()
    other.close()


def waiting_for_standby(admin: psycopg.Connection) -> int | None:
    """The server process that waits for its commit to be replicated."""
    row = admin.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchone()
    return None if row is None else int(row[0])


def test_a_commit_that_was_not_replicated_is_of_unknown_outcome(own_postgres: PostgresServer, own_url: str) -> None:
    """The server reports such a commit as done, with a warning. After a failover it may be gone."""
    store = open_store(own_url)
    with psycopg.connect(own_postgres.url, autocommit=True) as admin, ThreadPoolExecutor(1) as pool:
        admin.execute("SET synchronous_commit = local")
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        admin.execute("SELECT pg_reload_conf()")
        try:
            # Sessions apply the new setting between statements, not at once, so the first commits may not wait.
            writer = pool.submit(store.transact, lambda tx: tx.add(b"n", 1))
            while (waiting := waiting_for_standby(admin)) is None:
                if writer.done():
                    writer = pool.submit(store.transact, lambda tx: tx.add(b"n", 1))
                wait([writer], 0.1)
            admin.execute("SELECT pg_cancel_backend(%s)", (waiting,))
            with pytest.raises(CommitUnknownResult, match="replicate"):
                writer.result()
        finally:
            admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
            admin.execute("SELECT pg_reload_conf()")
    store.transact(lambda tx: tx.set(b"a", b"1"))
    store.close()


# -- sessions and servers that end at any moment -----------------------------------------------------------------------


def test_sessions_that_are_terminated_again_and_again(store: Store) -> None:
    outcomes = Outcomes()
    over = threading.Event()
    reads = [0, 0]

    def write(writer: int) -> None:
        number = writer
        while not over.is_set():
            try:
                store.transact(
                    lambda tx, number=number: [tx.get(b"x"), tx.add(b"n", 1), tx.set(b"%d" % number, b"")]  # type: ignore[misc]
                )
            except CommitUnknownResult:
                outcomes.unknown.add(number)
            except Unavailable:
                outcomes.failed.add(number)
            else:
                outcomes.done.add(number)
            number += 4

    def read() -> None:
        while not over.is_set():
            try:
                numbers, count = store.read(lambda tx: (tx.get_range(b"0", b":"), tx.get(b"n")))
            except Unavailable:
                reads[1] += 1
            else:
                assert int.from_bytes(count or b"", "little") == len(numbers)
                reads[0] += 1

    with psycopg.connect(postgres_server(), autocommit=True) as admin, ThreadPoolExecutor(5) as pool:
        workers = [*(pool.submit(write, number) for number in range(4)), pool.submit(read)]
        try:
            for _ in range(60):
                time.sleep(0.02)
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'lakemark' ORDER BY random() LIMIT 2"
                )
        finally:
            over.set()
        for worker in workers:
            worker.result()
    there = {int(key) for key, _ in store.read(lambda tx: tx.get_range(b"0", b":"))}
    assert outcomes.done <= there
    assert not outcomes.failed & there
    assert there <= outcomes.done | outcomes.unknown
    assert min(len(outcomes.done), len(outcomes.failed | outcomes.unknown), reads[0]) > 0
    store.transact(lambda tx: tx.set(b"a", b"1"))
    assert value(store) == b"1"


@pytest.mark.parametrize("rounds", [6, pytest.param(long(200), marks=slow(1_200))], ids=["quick", "long"])
def test_the_server_is_killed_again_and_again(own_postgres: PostgresServer, own_url: str, rounds: int) -> None:
    def restart() -> None:
        own_postgres.kill()
        own_postgres.start()

    write_over_restarts(own_url, rounds, restart)


def test_an_open_store_outlives_a_restart(own_postgres: PostgresServer, own_url: str) -> None:
    store = open_store(own_url)
    store.transact(lambda tx: tx.set(b"a", b"1"))
    assert value(store) == b"1"
    own_postgres.stop()
    for _ in range(2):
        with pytest.raises(Unavailable):
            value(store)
        with pytest.raises(Unavailable):
            store.transact(lambda tx: tx.set(b"a", b"2"))
    with pytest.raises(Unavailable):
        open_store(own_url)
    own_postgres.start()
    assert value(store) == b"1"
    store.transact(lambda tx: tx.set(b"a", b"3"))
    assert value(store) == b"3"
    store.close()


# -- opening -----------------------------------------------------------------------------------------------------------


def test_many_processes_may_start_at_once(url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(open_store, [url] * 8))
    for opened in stores:
        opened.transact(lambda tx: tx.add(b"n", 1))
    assert value(stores[0], b"n") == (8).to_bytes(8, "little")
    for opened in stores:
        opened.close()


def test_a_newer_format_is_not_touched(url: str, tmp_path: Path) -> None:
    open_store(url).close()
    with psycopg.connect(postgres_server(), autocommit=True) as admin:
        admin.execute(f"UPDATE {schema_of(tmp_path)}.format SET version = 2".encode())
    with pytest.raises(StoreFormatUnknown, match="has format 2, and this release of Lakemark knows formats up to 1"):
        open_store(url)


@pytest.mark.parametrize("table", ["format", "kv"])
def test_another_applications_tables_are_not_touched(url: str, tmp_path: Path, table: str) -> None:
    schema = schema_of(tmp_path)
    with psycopg.connect(postgres_server(), autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {schema}".encode())
        admin.execute(f"CREATE TABLE {schema}.{table} (theirs text)".encode())
        with pytest.raises(StoreFormatUnknown, match="not Lakemark's"):
            open_store(url)
        tables = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    assert tables == [(table,)]


@pytest.mark.parametrize("read_only", [False, True], ids=["to serve", "to read"])
def test_a_user_without_rights_is_told_so(own_postgres: PostgresServer, read_only: bool) -> None:
    open_store(own_postgres.url).close()
    with psycopg.connect(own_postgres.url, autocommit=True) as driver:
        driver.execute("DROP ROLE IF EXISTS stranger")
        driver.execute("CREATE ROLE stranger LOGIN PASSWORD 'strange'")
    theirs = own_postgres.url.replace(own_postgres.url.split("//")[1].split("@")[0], "stranger:strange")
    with pytest.raises(FailedPrecondition, match="lacks the right USAGE on the store's schema lakemark"):
        open_store(theirs, read_only=read_only)


def test_a_wrong_password_is_told_without_any(own_postgres: PostgresServer) -> None:
    wrong = "correct-horse-battery"
    user, _, host = own_postgres.url.partition("@")
    with pytest.raises(Unavailable, match="password authentication failed") as raised:
        open_store(f"{user.rpartition(':')[0]}:{wrong}@{host}")
    assert wrong not in f"{raised.value!r} {raised.value} {raised.value.__cause__!r} {raised.value.__context__!r}"
    with pytest.raises(Unavailable, match='"missing" does not exist'):
        open_store(own_postgres.url.replace("/postgres?", "/missing?"))
