"""Two stores on the same data, in one process or in two: the guarantees of one store hold between them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from lakemark_server.kv import (
    Conflict,
    Space,
    Store,
    Transaction,
    TransactionTooOld,
    counter,
    open_store,
    pack,
    stamp_of,
)
from lakemark_server.kv.fdb.store import FdbStore
from lakemark_server.kv.postgres.store import PostgresStore
from tests.contract.conftest import SHARED_URLS
from tests.contract.test_kv_isolation import CONFLICTS, NO_CONFLICTS, seed

CLIENTS = 4
ROUNDS = 30

# Both kinds of operation, timed by a clock that all processes of the machine share.
REGISTER = """
import json, sys, time
from lakemark_server.kv import open_store

url, rounds, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = open_store(url)

def increment(tx):
    seen = int(tx.get(b"register") or b"0") + 1
    tx.set(b"register", b"%d" % seen)
    tx.add(b"count", 1)
    return seen

print("ready", flush=True)
sys.stdin.readline()
for turn in range(rounds):
    writes = (turn + number) % 2 == 0
    began = time.monotonic_ns()
    if writes:
        seen = store.transact(increment, attempts_max=1_000)
    else:
        seen = store.read(lambda tx: int(tx.get(b"register") or b"0"))
    print(json.dumps([began, time.monotonic_ns(), seen, writes]), flush=True)
store.close()
"""

# Each append is one attempt: a conflict would end the process.
APPEND = """
import json, sys, time
from lakemark_server.kv import Space, open_store, pack

url, rounds, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store, log = open_store(url), Space.of("log")
print("ready", flush=True)
sys.stdin.readline()
for turn in range(rounds):
    began = time.monotonic_ns()
    tx = store.begin()
    tx.get(pack("own", number))  # a snapshot, so that a conflict would be seen
    tx.set(pack("own", number), b"%d" % turn)
    for piece in range(2):
        tx.set_versionstamped_key(log.prefix, piece, b"%d %d %d" % (number, turn, piece))
    tx.set_versionstamped_value(pack("end"), b"")
    tx.commit()
    print(json.dumps([began, time.monotonic_ns(), number, turn]), flush=True)
store.close()
"""

History = list[tuple[int, int, int, bool]]
LOG = Space.of("log")


@pytest.fixture(params=SHARED_URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return SHARED_URLS[request.param](tmp_path)


@pytest.fixture
def stores(url: str) -> Iterator[tuple[Store, Store]]:
    one, other = open_store(url), open_store(url)
    yield one, other
    one.close()
    other.close()


@pytest.mark.parametrize("case", [*CONFLICTS, *NO_CONFLICTS])
def test_transactions_of_two_stores(stores: tuple[Store, Store], case: str) -> None:
    first, other = (CONFLICTS | NO_CONFLICTS)[case]
    here, there = stores
    seed(there, b"a", b"b", b"c", b"d")
    one, two = here.begin(), there.begin()
    first(one)
    one.set(b"elsewhere", b"1")
    other(two)
    two.commit()
    if case in CONFLICTS:
        with pytest.raises(Conflict):
            one.commit()
    else:
        one.commit()
    assert there.read(lambda tx: tx.get(b"elsewhere")) == (None if case in CONFLICTS else b"1")


def test_what_one_store_acknowledged_the_other_reads(stores: tuple[Store, Store]) -> None:
    for number in range(50):
        writer, reader = stores[number % 2], stores[1 - number % 2]
        writer.transact(lambda tx, value=b"%d" % number: tx.set(b"a", value))  # type: ignore[misc]
        assert reader.read(lambda tx: tx.get(b"a")) == b"%d" % number


def test_a_store_that_slept_for_long_knows_what_it_missed(stores: tuple[Store, Store]) -> None:
    sleeping, busy = stores
    old = sleeping.begin()
    assert old.get(b"a") is None
    old.set(b"b", b"1")
    for number in range(60):
        busy.transact(lambda tx, key=b"%d" % number: tx.set(key, b""))  # type: ignore[misc]
    old.commit()
    late = sleeping.begin()
    assert late.get(b"59") == b""
    late.set(b"59", b"1")
    busy.transact(lambda tx: tx.clear_range(b"5", b"6"))
    with pytest.raises((Conflict, TransactionTooOld)):
        late.commit()


def test_no_increment_of_two_stores_is_lost(stores: tuple[Store, Store]) -> None:
    def increment(tx: Transaction) -> None:
        tx.set(b"read", b"%d" % (int(tx.get(b"read") or b"0") + 1))
        tx.add(b"added", 1)

    with ThreadPoolExecutor(8) as pool:
        for future in [
            pool.submit(lambda store: [store.transact(increment, attempts_max=1_000) for _ in range(20)], stores[n % 2])
            for n in range(8)
        ]:
            future.result()
    for store in stores:
        assert store.read(lambda tx: (tx.get(b"read"), counter(tx.get(b"added")))) == (b"160", 160)


def test_two_stores_that_add_to_one_counter_never_refuse_each_other(stores: tuple[Store, Store]) -> None:
    with ThreadPoolExecutor(8) as pool:
        for future in [
            pool.submit(
                lambda store: [store.transact(lambda tx: tx.add(b"n", 1), attempts_max=1) for _ in range(20)],
                stores[n % 2],
            )
            for n in range(8)
        ]:
            future.result()
    assert counter(stores[0].read(lambda tx: tx.get(b"n"))) == 160


def test_a_register_of_several_processes_is_linearizable(url: str) -> None:
    """As in test_kv_threads: what began after an operation had ended saw at least its number (a write: a larger)."""
    open_store(url).close()
    history: History = []
    with ExitStack() as cleanup:
        for child in started(cleanup, REGISTER, url):
            history += answers(child)
    assert len(history) == CLIENTS * ROUNDS
    written = [seen for _, _, seen, writes in history if writes]
    assert sorted(written) == list(range(1, len(written) + 1))
    for _, ended, earlier, _ in history:
        for began, _, later, writes in history:
            if ended < began:
                assert earlier < later if writes else earlier <= later


def test_a_log_of_several_processes_has_the_order_of_their_commits_for_whoever_follows_it(url: str) -> None:
    """Nobody is refused, and who has read up to a place never misses what comes before it."""
    store = open_store(url)
    followed: list[tuple[bytes, bytes]] = []
    seen: bytes | None = None
    history: list[tuple[int, int, int, int]] = []
    with ExitStack() as cleanup:
        cleanup.callback(store.close)
        children = started(cleanup, APPEND, url)
        while len(followed) < CLIENTS * ROUNDS * 2:
            assert store.wait_for_change(pack("end"), seen, 60.0), "an append was missed"
            begin = followed[-1][0] + b"\0" if followed else LOG.range()[0]
            seen, page = store.read(lambda tx, begin=begin: (tx.get(pack("end")), tx.get_range(begin, LOG.range()[1])))  # type: ignore[misc]
            assert seen == stamp_of(page[-1][0], LOG.prefix)[0]
            followed += page
        for child in children:
            history += answers(child)
        assert followed == store.read(lambda tx: tx.get_range(*LOG.range()))
    place = {tuple(map(int, value.split())): at for at, (_, value) in enumerate(followed)}
    assert len(place) == CLIENTS * ROUNDS * 2
    assert len({stamp_of(key, LOG.prefix)[0] for key, _ in followed}) == CLIENTS * ROUNDS
    for _, ended, *earlier in history:
        assert place[*earlier, 1] == place[*earlier, 0] + 1
        for began, _, *later in history:
            if ended < began:
                assert place[*earlier, 1] < place[*later, 0]


def test_a_process_is_told_of_the_changes_of_others_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being told, the change would be overlooked for an hour."""
    for store in (FdbStore, PostgresStore):
        monkeypatch.setattr(store, "_unseen_s_max", lambda self: 3_600.0)
    with closing(open_store(url)) as here, closing(open_store(url)) as there, ThreadPoolExecutor(1) as threads:
        for seen, value in ((None, b"1"), (b"1", b"2")):
            woken = threads.submit(here.wait_for_change, b"a", seen, 3_600.0)
            there.transact(lambda tx, value=value: tx.set(b"a", value))  # type: ignore[misc]
            assert woken.result()
        woken = threads.submit(here.wait_for_change, b"a", b"2", 3_600.0)
        there.transact(lambda tx: tx.set_versionstamped_value(b"a", b""))
        assert woken.result()


def started(cleanup: ExitStack, program: str, url: str) -> list[subprocess.Popen[str]]:
    """Processes that run the program side by side, until the end of ``cleanup`` at most."""
    children = [
        cleanup.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", program, url, str(ROUNDS), str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        for number in range(CLIENTS)
    ]
    for child in children:
        cleanup.callback(child.kill)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    return children


def answers(child: subprocess.Popen[str]) -> list[Any]:
    """What the process printed, when it has ended."""
    output, _ = child.communicate()
    assert child.returncode == 0
    return [tuple(json.loads(line)) for line in output.splitlines()]
