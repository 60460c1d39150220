"""Commits through a service that dies, or whose store does, and the state that must be there in the end.

Each commit is one version with exactly its files, or has no effect. A reader sees whole versions only.
"""

from __future__ import annotations

import faulthandler
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.arrow import texts
from lakemark_server.kv import open_store
from lakemark_server.kv.sqlite.store import SqliteStore
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.timeline.lineage import OF_MAIN
from lakemark_server.timeline.publication.commits import Committed
from lakemark_server.timeline.service import Timeline
from lakemark_server.verify import verify
from tests.event_replay import replay_problems
from tests.fault.killable import WAIT_S, Killable, Stubborn
from tests.lakes import file

WRITERS = 6
MANY_FILES = 400  # in blocks of their own


@dataclass
class Commit:
    """One commit of the plan, and its outcome."""

    number: int
    files_count: int
    staged_count: int
    abandoned: bool
    instant: int = 0
    paths: list[str] = field(default_factory=list)
    answer: Committed | None = None


def planned(count: int, chance: random.Random) -> list[Commit]:
    """Commits of 1 to 3 files, some of them staged before; a few have many files, or are given up."""
    plan = []
    large = set(chance.sample(range(count), 5 + count // 200))
    for number in range(count):
        files_count = MANY_FILES if number in large else chance.randint(1, 3)
        staged_count = chance.randint(1, files_count) if chance.random() < 0.5 else 0
        plan.append(Commit(number, files_count, staged_count, abandoned=False))
        if chance.random() < 0.1:
            plan.append(Commit(10_000 + number, 2, 2, abandoned=True))
    return plan


@dataclass(frozen=True)
class Digest:
    """A digest of a growing set of paths. Thousands of reads of thousands of files are too many to keep."""

    count: int = 0
    hashes: int = 0

    def plus(self, paths: Iterable[str]) -> Digest:
        count, hashes = self.count, self.hashes
        for path in paths:
            count, hashes = count + 1, hashes + hash(path)
        return Digest(count, hashes)


class Run:
    """The writers, a reader, and methods that wait for their progress."""

    def __init__(self, service: Killable, plan: list[Commit], seed: int) -> None:
        self.service, self.plan, self.seed = service, plan, seed
        self._todo = iter(plan)
        self._lock = threading.Lock()
        self._progress = threading.Condition(self._lock)
        self.acknowledged = 0
        self.lost = 0
        self.errors: list[BaseException] = []
        self.reads: list[tuple[int, Digest]] = []
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
                self.reads.append((version, Digest().plus(paths)))
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            client.close()

    def wait_for(self, acknowledged: int) -> None:
        with self._progress:
            enough = self._progress.wait_for(lambda: self.acknowledged >= acknowledged or self.errors, WAIT_S)
        assert not self.errors, self.errors
        if not enough:
            faulthandler.dump_traceback()
            self.service.dump()
        assert enough, "no progress: what all threads do, here and in the service, is in the standard error"

    def go(self, kills: int, chance: random.Random, kill: Callable[[], None]) -> None:
        """Runs until ``kills`` kills are done. ``kill`` ends something and starts it again."""
        commits = sum(not commit.abandoned for commit in self.plan)
        writers = [threading.Thread(target=self.write, daemon=True) for _ in range(WRITERS)]
        reader = threading.Thread(target=self.read, daemon=True)
        for thread in [*writers, reader]:
            thread.start()
        try:
            for moment in sorted(chance.sample(range(commits - 1), kills)):
                self.wait_for(moment)
                time.sleep(chance.uniform(0, 0.05))  # any moment of any request
                kill()
            self.wait_for(commits)
        finally:
            end = time.monotonic() + WAIT_S
            for thread in writers:
                thread.join(max(0.0, end - time.monotonic()))
            self._finished.set()
            reader.join(max(0.0, end - time.monotonic()))
        assert not self.errors, self.errors


def check(url: str, run: Run) -> None:
    """Inspects the store itself, after the last kill."""
    store = open_store(url)
    try:
        if isinstance(store, SqliteStore):
            assert store.integrity_check() == []
        assert verify(store) + replay_problems(store) == []
        snapshots = Snapshots(store)
        timeline = Timeline(store, snapshots)
        table, latest = snapshots.version("", "default", "t", SnapshotReference())
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
    """A repeated request to open an instant opened nothing new."""
    instants = {record.instant: record for record in timeline.instants(table_id, limit=len(plan) + 100)[0]}
    assert instants.keys() == {commit.instant for commit in plan}
    for commit in plan:
        found = instants[commit.instant]
        if not commit.abandoned:
            assert found.state == t.COMPLETED
        elif found.state != t.ROLLED_BACK:  # a service that lives long enough gives up abandoned writers
            assert found.state == t.INFLIGHT
            assert found.staged.files == commit.files_count


def check_reads(reads: list[tuple[int, Digest]], added: dict[int, set[str]]) -> None:
    """Every read saw a whole version, and versions never went back."""
    versions = [version for version, _ in reads]
    assert versions == sorted(versions)
    content = [Digest()]
    for version in sorted(added):
        content.append(content[-1].plus(added[version]))
    for version, seen in reads:
        assert seen == content[version], f"a read of version {version} saw something else"
