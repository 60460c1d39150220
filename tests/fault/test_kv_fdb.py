"""FoundationDB that is killed, stopped or silent: which callers get which errors, and the state afterwards."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakemark_core.errors import DeadlineExceeded, DeadlineUnknown, FailedPrecondition, Unavailable
from lakemark_server.context import deadline
from lakemark_server.context.deadline import Deadline
from lakemark_server.kv import (
    CommitUnknownResult,
    Conflict,
    KeyValue,
    Space,
    Store,
    StoreFormatUnknown,
    TryAgain,
    counter,
    open_store,
    pack,
)
from lakemark_server.kv.fdb import client as fdb_client
from lakemark_server.kv.fdb import export as fdb_export
from lakemark_server.kv.fdb.client import FdbClient
from lakemark_server.kv.fdb.errors import commit_error
from lakemark_server.kv.fdb.layout import EXPORTS, EXPORTS_END, LOG, LOG_END
from lakemark_server.kv.fdb.log import LEASE_VERSIONS
from lakemark_server.kv.fdb.reader import FdbSnapshot
from lakemark_server.kv.sqlite.store import SqliteStore
from tests.fault.kill_load import Writers, check, write_over_restarts
from tests.fdb_server import SERVER_VARIABLE, FdbServer, program
from tests.lengths import long, slow
from tests.stores import fdb_cluster, fdb_url, schema_of

ANSWER_MS = 700
APPENDS = 200


@pytest.fixture
def url(tmp_path: Path) -> str:
    return fdb_url(tmp_path)


@pytest.fixture(scope="module")
def own_server() -> Iterator[FdbServer]:
    """A cluster that a test may kill."""
    server = program()
    if server is None:
        pytest.skip(f"{SERVER_VARIABLE} names no fdbserver that could be killed")
    with FdbServer(server) as started:
        yield started


@pytest.fixture
def own_url(own_server: FdbServer, tmp_path: Path) -> str:
    return f"fdb://{own_server.cluster_file}?prefix={schema_of(tmp_path)}"


@pytest.fixture
def impatient(own_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that does not wait long."""
    monkeypatch.setattr(fdb_client, "ANSWER_MS_MAX", ANSWER_MS)
    opened = open_store(own_url)
    opened.transact(lambda tx: tx.set(b"a", b"0"))
    yield opened
    opened.close()
    monkeypatch.undo()
    open_store(own_url).close()  # all stores of a cluster share a database, and with it the timeout


def value(store: Store, key: bytes = b"a") -> bytes | None:
    return store.read(lambda tx: tx.get(key))


# -- a cluster that is away --------------------------------------------------------------------------------------------


def test_an_open_store_outlives_a_restart(own_server: FdbServer, impatient: Store, own_url: str) -> None:
    own_server.kill()
    with pytest.raises(Unavailable, match="did not answer in time"):
        value(impatient)
    with pytest.raises(Unavailable, match="did not answer in time"):
        impatient.transact(lambda tx: tx.set(b"a", tx.get(b"a") or b""))
    with pytest.raises(Unavailable, match="did not answer in time"):
        open_store(own_url)
    own_server.start()
    assert value(impatient) == b"0"
    impatient.transact(lambda tx: tx.set(b"a", b"1"))
    assert value(impatient) == b"1"


def test_a_commit_in_silence_is_of_unknown_outcome(own_server: FdbServer, impatient: Store) -> None:
    tx = impatient.begin()
    before = tx.get(b"a")
    tx.set(b"a", b"1")
    own_server.pause()
    try:
        with pytest.raises(CommitUnknownResult):
            tx.commit()
    finally:
        own_server.resume()
    # The commit may still be under way. A repeated attempt reads what the first one would have written, so one of the
    # two is refused. Request ids rely on that.
    impatient.transact(lambda again: again.set(b"a", b"2") if again.get(b"a") == before else None)
    assert value(impatient) in {b"1", b"2"}


def test_nobody_waits_for_longer_than_the_callers_deadline(own_server: FdbServer, own_url: str) -> None:
    store = open_store(own_url)
    tx = store.begin()
    tx.get(b"a")
    tx.set(b"a", b"1")
    own_server.pause()
    try:
        with deadline.within(Deadline.after(0.3)), pytest.raises(DeadlineExceeded):
            value(store)
        # The first call, if it had to check for a running export: half a second after the last check.
        with deadline.within(Deadline.after(0.3)), pytest.raises((DeadlineExceeded, DeadlineUnknown)) as told:
            tx.commit()
    finally:
        own_server.resume()
    if told.type is DeadlineExceeded:
        assert value(store) is None
    store.close()


def test_waiting_for_a_change_outlives_a_restart(own_server: FdbServer, own_url: str) -> None:
    store = open_store(own_url)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.wait_for_change, b"a", None, 60.0)
        own_server.kill()
        own_server.start()
        store.transact(lambda tx: tx.set(b"a", b"1"))
        assert waiting.result()
    store.close()


def test_one_watch_too_many_is_told_instead_of_looked_for_again_and_again(url: str) -> None:
    store = open_store(url)
    options = FdbClient(fdb_cluster())._database.options
    options.set_max_watches(0)
    try:
        with pytest.raises(TryAgain, match="too many callers wait for changes"):
            store.wait_for_change(b"a", None, 60.0)
    finally:
        options.set_max_watches(10_000)
        store.close()


def test_the_client_library_calls_the_same_answers_refusals(url: str) -> None:
    open_store(url).close()
    import fdb

    refusals = [code for code in range(1, 10_000) if fdb.predicates.is_retryable_not_committed(fdb.FDBError(code))]
    assert set(refusals) >= {1007, 1020}
    # 2137 concerns tenants, which no store uses.
    assert [code for code in refusals if isinstance(commit_error(code, ""), CommitUnknownResult)] == [2137]


@pytest.mark.parametrize("rounds", [4, pytest.param(long(60), marks=slow(1_800))], ids=["quick", "long"])
def test_the_cluster_is_killed_again_and_again(own_server: FdbServer, own_url: str, rounds: int) -> None:
    def restart() -> None:
        own_server.kill()
        own_server.start()

    write_over_restarts(own_url, rounds, restart)


# -- exports -----------------------------------------------------------------------------------------------------------


def own_keys(store: Store) -> list[tuple[bytes, bytes]]:
    """The keys that exports have left behind."""
    snapshot = store._snapshot()  # type: ignore[attr-defined]
    return [
        *snapshot.get_range(EXPORTS, EXPORTS_END, 0, False),
        *snapshot.get_range(LOG, LOG_END, 0, False),
    ]


def test_exports_while_other_processes_write(url: str, tmp_path: Path) -> None:
    """Each export is one state of the store, with everything acknowledged before it began, and no partial
    transaction."""
    store = open_store(url)
    sizes = []
    with Writers(url, processes=2) as writers:
        for number in range(3):
            writers.wait_for(10 * writers.count * (number + 1))
            before = set(writers.outcomes.done)
            copy = SqliteStore(tmp_path / f"{number}.db")
            with store.export() as export:
                for page in export.pages:
                    copy.transact(lambda tx, page=page: [tx.set(*pair) for pair in page])  # type: ignore[misc]
            sizes.append(len(check(copy, before, writers=writers.count)))
            copy.close()
    assert sizes == sorted(set(sizes)), "nothing was written meanwhile"
    # The writers logged their commits for a moment longer than necessary. The next export clears the log.
    with store.export():
        pass
    assert own_keys(store) == []
    store.close()


def test_an_export_reads_what_is_appended_to_a_log_meanwhile_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a range, each append would be the whole end of the log."""
    store, log = open_store(url), Space.of("log")
    read = []

    class Counting(FdbSnapshot):
        def get_range(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]:
            pairs = super().get_range(begin, end, limit, reverse)
            read.append(len(pairs))
            return pairs

    def append(number: int) -> None:
        store.transact(lambda tx: tx.set_versionstamped_key(log.prefix, number, b"%d" % number))

    scan = fdb_export.FdbExporter._scan

    def scan_then_append(exporter: fdb_export.FdbExporter, begin: bytes, end: bytes) -> None:
        scan(exporter, begin, end)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(append, range(APPENDS)))

    monkeypatch.setattr(fdb_export, "FdbSnapshot", Counting)
    monkeypatch.setattr(fdb_export.FdbExporter, "_scan", scan_then_append)
    with store.export() as export:
        pairs = [pair for page in export.pages for pair in page]
    assert pairs == store.read(lambda tx: tx.get_range(*log.range()))
    assert sorted(int(value) for _, value in pairs) == list(range(APPENDS))
    assert sum(read) < 3 * APPENDS
    store.close()


def test_a_commit_that_does_not_know_of_an_export_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = open_store(url), open_store(url)
    other.transact(lambda tx: tx.set(b"a", b"1"))  # it has checked, and assumes for a while that no export runs
    late = other.begin()
    late.get(b"b")
    late.set(b"b", b"unnoted")
    scan = fdb_export.FdbExporter._scan

    def scan_then_commit(exporter: fdb_export.FdbExporter, begin: bytes, end: bytes) -> None:
        scan(exporter, begin, end)
        with pytest.raises(Conflict):
            late.commit()
        other.transact(lambda tx: tx.set(b"c", b"noted"))

    monkeypatch.setattr(fdb_export.FdbExporter, "_scan", scan_then_commit)
    with store.export() as export:
        assert list(export.pages) == [[(b"a", b"1"), (b"c", b"noted")]]
    store.close()
    other.close()


def test_what_an_export_that_died_left_behind_is_removed(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    store.transact(lambda tx: tx.set(b"a", b"1"))
    write_raw(tmp_path, EXPORTS + b"dead", (1).to_bytes(8, "big"))
    write_raw(tmp_path, LOG + bytes(12), b"what nobody reads")
    with store.export() as export:
        assert list(export.pages) == [[(b"a", b"1")]]
    assert own_keys(store) == []
    store.close()


# With the second, it could renew its announcement in time, but not before commits that do not know of it.
@pytest.mark.parametrize("announced", [1, 2 * LEASE_VERSIONS])
def test_an_export_that_slept_for_too_long_says_so(url: str, announced: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fdb_export, "ANNOUNCED_VERSIONS", announced)
    store = open_store(url)
    with pytest.raises(Unavailable, match="interrupted for too long"), store.export():
        pass
    assert own_keys(store) == []
    store.close()


@pytest.mark.parametrize("failures", [3, 1_000], ids=["for a moment", "for ever"])
def test_an_export_is_patient_with_a_cluster_that_is_behind(
    url: str, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fdb_export, "_PAUSE_S", 0)
    left = iter(range(failures))

    class Behind(FdbSnapshot):
        def get_range(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]:
            if begin < EXPORTS and next(left, None) is not None:
                raise TryAgain("behind")
            return super().get_range(begin, end, limit, reverse)

    store = open_store(url)
    store.transact(lambda tx: tx.set(b"a", b"1"))
    monkeypatch.setattr(fdb_export, "FdbSnapshot", Behind)
    if failures < 10:
        with store.export() as export:
            assert list(export.pages) == [[(b"a", b"1")]]
    else:
        with pytest.raises(TryAgain), store.export():
            pass
    assert own_keys(store) == []
    store.close()


# -- opening -----------------------------------------------------------------------------------------------------------


def test_many_may_start_at_once(url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(open_store, [url] * 8))
    for opened in stores:
        opened.transact(lambda tx: tx.add(b"n", 1))
    assert counter(value(stores[0], b"n")) == 8
    for opened in stores:
        opened.close()


def test_stores_of_two_prefixes_know_nothing_of_each_other(url: str, tmp_path: Path) -> None:
    one, other = open_store(url), open_store(fdb_url(tmp_path / "other"))
    one.transact(lambda tx: tx.set(b"a", b"1"))
    other.transact(lambda tx: tx.clear_range(b"", b"\xff"))
    assert value(one) == b"1"
    assert other.read(lambda tx: tx.get_range(b"", b"\xff")) == []
    one.close()
    other.close()


def write_raw(tmp_path: Path, suffix: bytes, content: bytes) -> None:
    transaction = FdbClient(fdb_cluster()).transaction()
    transaction[pack(schema_of(tmp_path)) + suffix] = content
    transaction.commit().wait()


def test_a_newer_format_is_not_touched(url: str, tmp_path: Path) -> None:
    open_store(url).close()
    write_raw(tmp_path, b"\xff/format", b"2")
    with pytest.raises(StoreFormatUnknown, match="has format b'2', and this release of Lakemark knows format b'1'"):
        open_store(url)


def test_another_applications_keys_are_not_touched(url: str, tmp_path: Path) -> None:
    write_raw(tmp_path, b"theirs", b"")
    with pytest.raises(StoreFormatUnknown, match="not Lakemark's"):
        open_store(url)


def test_a_forked_process_is_told_so_instead_of_waiting_for_ever(url: str) -> None:
    store = open_store(url)
    child = os.fork()
    if child == 0:
        try:
            value(store)
        except FailedPrecondition as error:
            os._exit(7 if "spawn" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_value_at, (url,)) is None
    store.close()


def _value_at(url: str) -> bytes | None:
    store = open_store(url)
    try:
        return value(store)
    finally:
        store.close()
