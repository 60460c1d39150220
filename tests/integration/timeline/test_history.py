"""A recorded history of commits and reads over gRPC, checked for strict serializability.

Each operation has an interval from its request to its response. Versions must follow real time: a request that is sent
after a response cannot see an older version, and each read has exactly the sum of versions 1 to v.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.process import Service
from lakemark_server.verify import verify
from tests.lakes import file
from tests.wire import Refused, Wire

WRITERS, READERS, COMMITS_EACH = 6, 3, 25
WAIT_S = 60.0


@dataclass(frozen=True)
class Done:
    """One completed operation. ``begin`` and ``end`` are nanoseconds of one clock."""

    begin: int
    end: int
    version: int
    instant: int = 0
    operation: int = 0
    files: frozenset[tuple[str, int]] = frozenset()  # path, month
    months: frozenset[int] = frozenset()


@dataclass
class History:
    commits: list[Done] = field(default_factory=list)
    reads: list[Done] = field(default_factory=list)
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def write(wire: Wire, history: History, chance: random.Random, start: threading.Barrier) -> None:
    start.wait(WAIT_S)
    for number in range(COMMITS_EACH):
        operation = chance.choices([t.APPEND, t.OVERWRITE_PARTITIONS, t.OVERWRITE_TABLE], [8, 4, 1])[0]
        months = frozenset(chance.sample(range(6), chance.randint(1, 2)))
        begin = time.monotonic_ns()
        try:
            instant = wire.open(operation).instant
            given = [file(instant, f"{number}", month) for month in sorted(months)]
            if chance.random() < 0.3:
                wire.stage(instant, 1, given.pop())
            given_all = frozenset((f"{instant}/m={month}/{number}/a.parquet", month) for month in months)
            begin = time.monotonic_ns()
            answer = wire.commit(instant, *given)
        except Exception as error:
            if getattr(error, "code", None) is None or Refused(error).detail.code != "commit_conflict":  # type: ignore[arg-type]
                raise
            with history.lock:
                history.refused += 1
            continue
        done = Done(begin, time.monotonic_ns(), answer.version, instant, operation, given_all, months)
        with history.lock:
            history.commits.append(done)


def read(wire: Wire, history: History, stop: threading.Event, start: threading.Barrier) -> None:
    """Alternates whole reads and reads of the head."""
    start.wait(WAIT_S)
    while not stop.is_set():
        begin = time.monotonic_ns()
        version, paths = wire.read()
        done = Done(begin, time.monotonic_ns(), version, files=frozenset((path, 0) for path in paths))
        begin = time.monotonic_ns()
        looked = wire.snapshot()
        look = Done(begin, time.monotonic_ns(), looked.version, instant=-1)
        with history.lock:
            history.reads += [done, look]


def check_real_time(history: History) -> None:
    """Goes through the events in order: what begins now must be at least as new as everything that has ended."""
    moments = sorted(
        [(one.begin, 1, one, kind) for kind, ones in (("c", history.commits), ("r", history.reads)) for one in ones]
        + [(one.end, 0, one, kind) for kind, ones in (("c", history.commits), ("r", history.reads)) for one in ones],
        key=lambda moment: moment[:2],
    )
    answered = 0
    floor: dict[int, int] = {}
    for _, calls, one, kind in moments:
        if calls:
            floor[id(one)] = answered
        else:
            answered = max(answered, one.version)
            least = floor[id(one)]
            assert one.version > least if kind == "c" else one.version >= least, "older than what was known before it"
    first_call = {one.version: one.begin for one in history.commits}
    for one in history.reads:
        assert one.version == 0 or first_call[one.version] < one.end, "read before it was asked for"


def contents(commits: list[Done]) -> list[frozenset[str]]:
    """The content of each version, from a plain fold of the commits."""
    live: dict[str, int] = {}
    found = [frozenset[str]()]
    for one in commits:
        if one.operation == t.OVERWRITE_TABLE:
            live = {}
        if one.operation == t.OVERWRITE_PARTITIONS:
            live = {path: month for path, month in live.items() if month not in one.months}
        live = live | dict(one.files)
        found.append(frozenset(live))
    return found


@pytest.mark.parametrize("policy", ["partition", "table"])
def test_a_history_of_commits_and_reads(service: Service, wire: Wire, policy: str) -> None:
    wire.create(policy)
    history, stop = History(), threading.Event()
    start = threading.Barrier(WRITERS + READERS)
    wires = [Wire(service.grpc_address, wire.table.table) for _ in range(WRITERS + READERS)]
    with ThreadPoolExecutor(WRITERS + READERS) as pool:
        readers = [pool.submit(read, one, history, stop, start) for one in wires[WRITERS:]]
        writers = [
            pool.submit(write, one, history, random.Random(seed), start) for seed, one in enumerate(wires[:WRITERS])
        ]
        try:
            for writer in writers:
                writer.result(WAIT_S)
        finally:
            stop.set()
        for reader in readers:
            reader.result(WAIT_S)
    for one in wires:
        one.close()

    commits = sorted(history.commits, key=lambda one: one.version)
    assert [one.version for one in commits] == list(range(1, len(commits) + 1))
    listed = wire.timeline.ListVersions(t.ListVersionsRequest(table=wire.table, page_size=1_000)).versions
    assert [one.instant for one in listed] == [one.instant for one in commits]
    assert len(commits) + history.refused == WRITERS * COMMITS_EACH
    assert history.refused > 0, "nobody was in anybody's way: nothing was tested"
    assert len({one.version for one in history.reads}) > 3, "hardly anything was read while it changed"
    check_real_time(history)
    content = contents(commits)
    for one in history.reads:
        if one.instant == 0:
            assert {path for path, _ in one.files} == content[one.version], f"a read of version {one.version}"
    for version, wanted in enumerate(content):
        at = s.SnapshotReference(version=version)
        assert set(wire.read(at)[1]) == wanted
    assert verify(service.store) == []
