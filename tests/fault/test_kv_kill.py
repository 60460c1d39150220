"""kill -9 in the middle of commits: what was acknowledged is there and whole, and nothing is there by half."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakemark_server.kv import Space, blob, counter
from lakemark_server.kv.sqlite import SqliteStore

PARTS = 4
WRITERS = 4

# Four threads, so that batches of several transactions are cut too. One line per acknowledged transaction.
CHILD = """
import sys, threading
from pathlib import Path
from lakemark_server.kv import Space, blob
from lakemark_server.kv.sqlite import SqliteStore

path, first, parts, writers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
store = SqliteStore(path)
output = threading.Lock()

def write(writer):
    number = first + writer
    while True:
        def body(tx):
            for part in range(parts):
                tx.set(Space.of("part", number).key(part), b"%d" % number)
            blob.put(tx, Space.of("blob", writer), b"%09d" % number * (20_000 if number % 3 else 5))
            tx.clear_range(*Space.of("latest", writer).range())
            tx.set(Space.of("latest", writer).key(number), b"")
            tx.add(Space.of("count").key(), 1)
        store.transact(body)
        with output:
            sys.stdout.write(f"{number}\\n")
            sys.stdout.flush()
        number += writers

print("ready", flush=True)
for writer in range(writers):
    threading.Thread(target=write, args=(writer,)).start()
"""


def run_until_killed(path: Path, first: int, delay_seconds: float) -> list[int]:
    """The numbers that the child acknowledged before its death."""
    command = [sys.executable, "-c", CHILD, str(path), str(first), str(PARTS), str(WRITERS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        killer = threading.Timer(delay_seconds, child.kill)
        killer.start()
        acknowledged = [int(line) for line in child.stdout.read().split("\n")[:-1]]
        killer.join()
    assert child.returncode == -signal.SIGKILL
    return acknowledged


def check(path: Path, acknowledged: set[int]) -> set[int]:
    """The numbers in the store, once it is sure that each is whole."""
    store = SqliteStore(path)
    try:
        assert store.integrity_check() == []
        parts: dict[int, list[bytes]] = {}
        for key, value in store.read(lambda tx: tx.get_range(*Space.of("part").range())):
            number = Space.of("part").unpack(key)[0]
            assert isinstance(number, int)
            parts.setdefault(number, []).append(value)
        assert parts == {number: [b"%d" % number] * PARTS for number in parts}, "half a transaction"
        assert acknowledged <= parts.keys(), "an acknowledged transaction is lost"
        assert counter(store.read(lambda tx: tx.get(Space.of("count").key()))) == len(parts)
        for writer in range(WRITERS):
            latest = Space.of("latest", writer)
            rows = store.read(lambda tx, space=latest: tx.get_range(*space.range()))  # type: ignore[misc]
            mine = [number for number in parts if number % WRITERS == writer]
            assert [latest.unpack(key) for key, _ in rows] == [(max(mine),)] if mine else not rows
            stored = store.read(lambda tx, w=writer: blob.get(tx, Space.of("blob", w)))  # type: ignore[misc]
            if mine:
                assert stored == b"%09d" % max(mine) * (20_000 if max(mine) % 3 else 5)
    finally:
        store.close()
    return set(parts)


@pytest.mark.parametrize(
    "rounds", [20, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])], ids=["quick", "long"]
)
def test_killed_again_and_again(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "kv.db"
    moments = random.Random(rounds)
    present: set[int] = set()
    acknowledged: set[int] = set()
    for _ in range(rounds):
        first = max(present, default=-1) // WRITERS * WRITERS + WRITERS
        acknowledged.update(run_until_killed(path, first, moments.uniform(0, 0.12)))
        now = check(path, acknowledged)
        assert present <= now, "a transaction that was there is gone"
        assert len(now - present - acknowledged) <= WRITERS * rounds
        present = now
    assert len(acknowledged) > rounds, "the child was killed before it did anything: nothing was tested"
