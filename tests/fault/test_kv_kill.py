"""kill -9 in the middle of commits: acknowledged transactions are there, and no transaction is partial."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark_server.kv import open_store
from lakemark_server.kv.sqlite.store import SqliteStore
from tests.fault.kill_load import CHILD, PARTS, WRITERS, Outcomes, check
from tests.lengths import long, slow
from tests.stores import fdb_url, postgres_url, sqlite_url

URLS: dict[str, Callable[[Path], str]] = {"sqlite": sqlite_url, "postgresql": postgres_url, "fdb": fdb_url}


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return URLS[request.param](tmp_path)


def run_until_killed(url: str, first: int, delay_seconds: float) -> set[int]:
    """The numbers that the child acknowledged before its death."""
    outcomes = Outcomes()
    command = [sys.executable, "-c", CHILD, url, str(first), str(PARTS), str(WRITERS), str(WRITERS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        killer = threading.Timer(delay_seconds, child.kill)
        killer.start()
        for line in child.stdout:
            outcomes.note(line)
        killer.join()
    assert child.returncode == -signal.SIGKILL
    assert not outcomes.failed | outcomes.unknown
    return outcomes.done


@pytest.mark.parametrize("rounds", [10, pytest.param(long(100), marks=slow(1_200))], ids=["quick", "long"])
def test_killed_again_and_again(url: str, rounds: int) -> None:
    moments = random.Random(rounds)
    present: set[int] = set()
    acknowledged: set[int] = set()
    first = 0
    for _ in range(rounds):
        # Beyond all numbers that killed writers may have sent: FoundationDB may commit those even after this read.
        first = max({first} | present) // WRITERS * WRITERS + 2 * WRITERS
        acknowledged.update(run_until_killed(url, first, moments.uniform(0, 0.12)))
        store = open_store(url)
        try:
            if isinstance(store, SqliteStore):
                assert store.integrity_check() == []
            now = check(store, acknowledged)
        finally:
            store.close()
        assert present <= now, "a transaction that was there is gone"
        assert len(now - present - acknowledged) <= WRITERS * rounds
        present = now
    assert len(acknowledged) > rounds, "the child was killed before it did anything: nothing was tested"
