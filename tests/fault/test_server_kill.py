"""kill -9 of the service in the middle of commits: no acknowledged commit is lost, none is there by half or twice.

Clients do what clients should: after a lost connection they ask again, with the same request id and the same instant.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc
import pytest

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.kv import open_store
from lakemark_server.kv.sqlite import SqliteStore
from lakemark_server.snapshot.arrow import texts
from lakemark_server.snapshot.service import At, Snapshots
from lakemark_server.timeline.lineage import OF_MAIN
from lakemark_server.timeline.service import Timeline
from lakemark_server.verify import verify
from tests.lakes import file
from tests.stores import store_url
from tests.wire import Wire

T = TypeVar("T")

CHILD = """
import sys
from lakemark_server.process import main
from lakemark_server.settings import Settings

store, warehouse = sys.argv[1:]
main(Settings(store=store, warehouse=warehouse, grpc_port=0, hms_enabled=False, log_level="error"))
"""
WRITERS = 6
WAIT_S = 60.0
LOST = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED}


class Killable:
    """A service in a child process, on the same store through all its lives."""

    def __init__(self, directory: Path) -> None:
        self._arguments = [store_url(directory), f"{directory}/warehouse"]
        self._changed = threading.Condition()
        self._address: str | None = None
        self._child: subprocess.Popen[str] | None = None
        self.kills = 0

    def start(self) -> None:
        command = [sys.executable, "-c", CHILD, *self._arguments]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._child.stdout is not None
        words = dict(word.split("=", 1) for word in self._child.stdout.readline().split() if "=" in word)
        with self._changed:
            self._address = words["grpc"]
            self._changed.notify_all()

    def kill(self) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        with self._changed:
            self._address = None
        self._child.kill()
        assert self._child.wait(WAIT_S) == -signal.SIGKILL
        self._child.stdout.close()
        self.kills += 1

    def end(self) -> None:
        """Whatever happened, no child stays behind."""
        if self._child is not None and self._child.poll() is None:
            self.kill()

    def address(self) -> str:
        """Of the life that there is now, or of the next one."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._address, WAIT_S), "the service did not come back"
            return str(self._address)


class Stubborn:
    """A client of one thread that asks again until it has an answer."""

    def __init__(self, service: Killable) -> None:
        self._service = service
        self._address = ""
        self._wire: Wire | None = None
        self.lost = 0

    def ask(self, question: Callable[[Wire], T]) -> T:
        while True:
            address = self._service.address()
            if self._wire is None or address != self._address:
                self.close()
                self._address, self._wire = address, Wire(address)
            try:
                return question(self._wire)
            except grpc.RpcError as error:
                if error.code() not in LOST:  # type: ignore[attr-defined]
                    raise
                self.lost += 1
                time.sleep(0.01)  # as a client does, not to ask a dead address in a tight loop

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()


@dataclass
class Commit:
    """One commit of the plan, and what became of it."""

    number: int
    files_count: int
    staged_count: int
    abandoned: bool
    instant: int = 0
    paths: list[str] = field(default_factory=list)
    answer: t.CommitResponse | None = None


def planned(count: int, chance: random.Random) -> list[Commit]:
    """1 to 3 files each, some of them staged before; now and then many, in blocks of their own, or one given up."""
    plan = []
    for number in range(count):
        kind = chance.random()
        files_count = 400 if kind < 0.05 else chance.randint(1, 3)
        staged_count = chance.randint(1, files_count) if chance.random() < 0.5 else 0
        plan.append(Commit(number, files_count, staged_count, abandoned=False))
        if chance.random() < 0.1:
            plan.append(Commit(10_000 + number, 2, 2, abandoned=True))
    return plan


class Run:
    """The writers, a reader, and whoever waits for their progress."""

    def __init__(self, service: Killable, plan: list[Commit], seed: int) -> None:
        self.service, self.plan, self.seed = service, plan, seed
        self._todo = iter(plan)
        self._lock = threading.Lock()
        self._progress = threading.Condition(self._lock)
        self.acknowledged = 0
        self.lost = 0
        self.errors: list[BaseException] = []
        self.reads: list[tuple[int, frozenset[str]]] = []
        self._finished = threading.Event()

    def write(self) -> None:
        client = Stubborn(self.service)
        try:
            while not self.errors:
                with self._lock:
                    commit = next(self._todo, None)
                if commit is None:
                    break
                self._make(client, commit)
                with self._progress:
                    self.acknowledged += not commit.abandoned
                    self._progress.notify_all()
        except BaseException as error:
            with self._progress:
                self.errors.append(error)
                self._progress.notify_all()
            raise
        finally:
            self.lost += client.lost
            client.close()

    def _make(self, client: Stubborn, commit: Commit) -> None:
        chance = random.Random(self.seed * 100_000 + commit.number)
        opened = client.ask(lambda wire: wire.open(request_id=f"commit-{commit.number}"))
        commit.instant = opened.instant
        given = [
            file(opened.instant, f"c{commit.number}-{n}-{chance.getrandbits(300):x}", n % 5)
            for n in range(commit.files_count)
        ]
        commit.paths = [one.path for one in given]
        staged, rest = given[: commit.staged_count], given[commit.staged_count :]
        if staged:
            client.ask(lambda wire: wire.stage(opened.instant, 1, *staged))
        if not commit.abandoned:
            commit.answer = client.ask(lambda wire: wire.commit(opened.instant, *rest))

    def read(self) -> None:
        client = Stubborn(self.service)
        try:
            while not self._finished.is_set():
                version, paths = client.ask(lambda wire: wire.read())
                self.reads.append((version, frozenset(paths)))
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            client.close()

    def wait_for(self, acknowledged: int) -> None:
        with self._progress:
            enough = self._progress.wait_for(lambda: self.acknowledged >= acknowledged or self.errors, WAIT_S)
        assert not self.errors, self.errors
        assert enough, "no progress"

    def go(self, kills: int, chance: random.Random) -> None:
        commits = sum(not commit.abandoned for commit in self.plan)
        writers = [threading.Thread(target=self.write) for _ in range(WRITERS)]
        reader = threading.Thread(target=self.read)
        for thread in [*writers, reader]:
            thread.start()
        try:
            for moment in sorted(chance.sample(range(commits - 1), kills)):
                self.wait_for(moment)
                time.sleep(chance.uniform(0, 0.05))  # any moment of any request
                self.service.kill()
                self.service.start()
            self.wait_for(commits)
        finally:
            for thread in writers:
                thread.join(WAIT_S)
            self._finished.set()
            reader.join(WAIT_S)
        assert not self.errors, self.errors


def check(directory: Path, run: Run) -> None:
    """Looks into the store itself, after the last kill."""
    store = open_store(store_url(directory))
    try:
        if isinstance(store, SqliteStore):
            assert store.integrity_check() == []
        assert verify(store) == []
        snapshots, timeline = Snapshots(store), Timeline(store)
        table, latest = snapshots.version("", "default", "t", At())
        commits = [commit for commit in run.plan if not commit.abandoned]
        assert latest == len(commits), "each commit is one version, and there is no other"
        added: dict[int, set[str]] = {version: set() for version in range(1, latest + 1)}
        entries = snapshots.load(table, OF_MAIN, latest).entries()
        for path, version in zip(
            texts(entries.column("path")), entries.column("added_version").to_pylist(), strict=True
        ):
            assert version is not None
            assert path not in added[version]
            added[version].add(path)
        records = {record.version: record for record in timeline.versions(table.table_id, "", limit=latest + 1)[0]}
        assert sorted(records) == list(range(1, latest + 1))
        for commit in commits:
            answer = commit.answer
            assert answer is not None
            assert records[answer.version].instant == answer.instant == commit.instant
            assert records[answer.version].committed_ms == answer.committed_ms
            assert added[answer.version] == set(commit.paths), "exactly its files, at its version"
        check_instants(timeline, table.table_id, run.plan)
        check_reads(run.reads, added)
    finally:
        store.close()


def check_instants(timeline: Timeline, table_id: int, plan: list[Commit]) -> None:
    """A request to open that was sent again opened nothing new."""
    instants = {record.instant: record for record in timeline.instants(table_id, limit=len(plan) + 100)[0]}
    assert instants.keys() == {commit.instant for commit in plan}
    for commit in plan:
        state = instants[commit.instant].state
        assert state == (t.INFLIGHT if commit.abandoned else t.COMPLETED)
        assert not commit.abandoned or instants[commit.instant].staged.files == commit.files_count


def check_reads(reads: list[tuple[int, frozenset[str]]], added: dict[int, set[str]]) -> None:
    """What a reader saw was a version, whole, and versions never went back."""
    versions = [version for version, _ in reads]
    assert versions == sorted(versions)
    content: list[set[str]] = [set()]
    for version in sorted(added):
        content.append(content[-1] | added[version])
    for version, paths in reads:
        assert paths == content[version]


@pytest.mark.parametrize(
    ("commits", "kills"),
    [(100, 5), pytest.param(1_000, 50, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])],
    ids=["quick", "thousand"],
)
def test_the_service_is_killed_in_the_middle_of_commits(tmp_path: Path, commits: int, kills: int) -> None:
    chance = random.Random(commits)
    service = Killable(tmp_path)
    began = time.monotonic()
    try:
        service.start()
        Stubborn(service).ask(lambda wire: wire.create())
        run = Run(service, planned(commits, chance), commits)
        run.go(kills, chance)
        service.kill()
    finally:
        service.end()
    check(tmp_path, run)
    assert service.kills == kills + 1
    assert run.lost > kills // 2, "hardly a request was cut off: nothing was tested"
    print(
        f"{commits} commits, {kills} kills, {run.lost} requests cut off, {len(run.reads)} reads, "
        f"{time.monotonic() - began:.0f} s"
    )
