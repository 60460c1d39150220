"""Writers that a test kills, and what must hold of the store that they leave behind.

Each transaction writes four parts and a blob of one or many chunks, replaces the writer's latest number, and adds one
to a common counter. So a partial transaction is visible.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Set
from types import TracebackType

from lakemark_server.kv import Space, Store, blob, counter, open_store

PARTS = 4
WRITERS = 4

# Several threads, so that kills hit batches of several transactions too. ``step`` is the number of threads in all
# processes. Prints one line for each transaction: its outcome and its number.
CHILD = """
import sys, threading, time
from lakemark_core.errors import Unavailable
from lakemark_server.kv import CommitUnknownResult, Space, blob, open_store

url = sys.argv[1]
first, parts, writers, step = map(int, sys.argv[2:])
store = open_store(url)
output = threading.Lock()

def write(writer):
    number = first + writer
    while True:
        def body(tx):
            for part in range(parts):
                tx.set(Space.of("part", number).key(part), b"%d" % number)
            blob.put(tx, Space.of("blob", number % step), b"%09d" % number * (20_000 if number % 3 else 5))
            tx.clear_range(*Space.of("latest", number % step).range())
            tx.set(Space.of("latest", number % step).key(number), b"")
            tx.add(Space.of("count").key(), 1)
        outcome = "done"
        try:
            store.transact(body)
        except CommitUnknownResult:
            outcome = "unknown"
        except Unavailable:
            outcome = "failed"
            time.sleep(0.01)
        with output:
            sys.stdout.write(f"{outcome} {number}\\n")
            sys.stdout.flush()
        number += step

print("ready", flush=True)
for writer in range(writers):
    threading.Thread(target=write, args=(writer,)).start()
"""


class Outcomes:
    """What the writers learned of each transaction, by number."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self.failed: set[int] = set()
        self.unknown: set[int] = set()

    def note(self, line: str) -> None:
        """Adds a line of a child. The last line before its death may be cut, and does not count then."""
        if line.endswith("\n"):
            outcome, number = line.split()
            getattr(self, outcome).add(int(number))


def check(store: Store, acknowledged: Set[int], refused: Set[int] = frozenset(), writers: int = WRITERS) -> set[int]:
    """Checks that every transaction in the store is whole. Returns their numbers."""
    # Read in one transaction: requests of a dead writer may still be committed.
    pairs, count, latest, blobs = store.read(
        lambda tx: (
            tx.get_range(*Space.of("part").range()),
            counter(tx.get(Space.of("count").key())),
            [tx.get_range(*Space.of("latest", writer).range()) for writer in range(writers)],
            [blob.get(tx, Space.of("blob", writer)) for writer in range(writers)],
        )
    )
    parts: dict[int, list[bytes]] = {}
    for key, value in pairs:
        number = Space.of("part").unpack(key)[0]
        assert isinstance(number, int)
        parts.setdefault(number, []).append(value)
    assert parts == {number: [b"%d" % number] * PARTS for number in parts}, "half a transaction"
    assert acknowledged <= parts.keys(), "an acknowledged transaction is lost"
    assert not refused & parts.keys(), "a transaction of which it was said that nothing was applied is there"
    assert count == len(parts)
    for writer, rows in enumerate(latest):
        mine = [number for number in parts if number % writers == writer]
        assert [Space.of("latest", writer).unpack(key) for key, _ in rows] == [(max(mine),)] if mine else not rows
        if mine:
            assert blobs[writer] == b"%09d" % max(mine) * (20_000 if max(mine) % 3 else 5)
    return set(parts)


class Writers:
    """Processes that write while the block runs. ``count``: the threads of all of them."""

    def __init__(self, url: str, processes: int) -> None:
        self.outcomes = Outcomes()
        self.count = processes * WRITERS
        sizes = (PARTS, WRITERS, self.count)
        self._children = [
            subprocess.Popen(
                [sys.executable, "-c", CHILD, url, *map(str, (process * WRITERS, *sizes))],
                stdout=subprocess.PIPE,
                text=True,
            )
            for process in range(processes)
        ]
        self._listeners = [threading.Thread(target=self._listen, args=(child,)) for child in self._children]

    def __enter__(self) -> Writers:
        try:
            for child in self._children:
                assert child.stdout is not None
                assert child.stdout.readline() == "ready\n"
        except BaseException:
            self._kill()
            raise
        for listener in self._listeners:
            listener.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._kill()
        for listener in self._listeners:
            listener.join()

    def wait_for(self, done: int) -> None:
        """Waits until so many transactions have been acknowledged."""
        while len(self.outcomes.done) < done:
            assert [child.poll() for child in self._children] == [None] * len(self._children), "a writer gave up"
            time.sleep(0.01)

    def _listen(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            self.outcomes.note(line)

    def _kill(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()


def write_over_restarts(url: str, rounds: int, restart: Callable[[], None]) -> None:
    """Two processes write all the time. The server is killed in between and recovers, and they continue."""
    moments = random.Random(rounds)
    open_store(url).close()
    with Writers(url, processes=2) as writers:
        outcomes = writers.outcomes
        for _ in range(rounds):
            writers.wait_for(len(outcomes.done) + writers.count)
            time.sleep(moments.uniform(0, 0.1))
            restart()
        writers.wait_for(len(outcomes.done) + 1)
    store = open_store(url)
    there = check(store, outcomes.done, outcomes.failed, writers=writers.count)
    store.close()
    assert outcomes.failed | outcomes.unknown, "the server was never killed in the middle of anything"
    assert len(there - outcomes.done - outcomes.unknown) <= writers.count, "only what was on its way at the end"
