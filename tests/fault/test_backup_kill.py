"""kill -9 at every step of a backup and of a restore: a partial one never counts, and repeating it completes it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemark_server.backup import BackupNotFound, HalfRestored, Repository, refuse_half_restored, restore
from lakemark_server.kv import open_store
from tests.integration.backup.conftest import backup, ballast, content, fill, opened
from tests.lengths import long, slow
from tests.stores import postgres_url, sqlite_url

URLS: dict[str, Callable[[Path], str]] = {"sqlite": sqlite_url, "postgresql": postgres_url}

# For each line that it reads, it forks a copy that does what the line says and kills itself before the nth step (0:
# never). A step is a call that changes the disk, or a transaction. It forks because starting Python takes long.
CHILD = """
import os, signal, sys
from pathlib import Path
from lakemark_server.backup import Repository, restore, take
from lakemark_server.kv import open_store
from lakemark_server.kv.postgres import store as postgres
from lakemark_server.kv.sqlite import store as sqlite
from lakemark_server.kv.buffered_store import BufferedStore

steps = 0

def counted(plain, fatal):
    def call(*arguments, **named):
        global steps
        steps += 1
        if steps == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*arguments, **named)
    return call

def work(what, url, directory, fatal):
    store = open_store(url)
    repository = Repository(Path(directory))
    if what == "take":
        for name in ("replace", "fsync", "mkdir", "unlink"):
            setattr(os, name, counted(getattr(os, name), fatal))
        with repository.writing():
            take(store, repository, "")
            repository.prune(1)
    else:
        BufferedStore.transact = counted(BufferedStore.transact, fatal)
        BufferedStore.export = counted(BufferedStore.export, fatal)
        restore(store, repository, repository.manifest())
    store.close()
    print("steps", steps, flush=True)

for line in sys.stdin:
    *words, fatal = line.rstrip("\\n").split("\\t")
    pid = os.fork()
    if pid == 0:
        work(*words, int(fatal))
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        print("ended", os.waitstatus_to_exitcode(status), flush=True)
"""


class Worker:
    """``run`` returns how many steps the task took; 0 if it was killed."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, what: str, url: str, directory: Path, fatal: int) -> int:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write("\t".join([what, url, str(directory), f"{fatal}\n"]))
        self.child.stdin.flush()
        kind, number = self.child.stdout.readline().split()
        if kind == "steps":
            return int(number)
        assert int(number) == -signal.SIGKILL
        return 0


@pytest.fixture
def worker() -> Iterator[Worker]:
    found = Worker()
    yield found
    found.child.communicate()
    assert found.child.returncode == 0


def moments(steps: int, rounds: int) -> Iterator[int]:
    """Moments spread over all steps, including the first and the last."""
    yield from sorted({1, 2, steps - 1, steps} | {1 + (steps - 1) * number // rounds for number in range(rounds)})


ROUNDS = [4, pytest.param(long(100), marks=slow(1_200))]


@pytest.mark.parametrize("rounds", ROUNDS, ids=["quick", "long"])
def test_killed_while_a_backup_is_taken(tmp_path: Path, worker: Worker, rounds: int) -> None:
    url = sqlite_url(tmp_path)
    with opened(url) as store:
        fill(store, ballast(1_500))
    steps = worker.run("take", url, tmp_path / "whole", 0)
    assert steps > 6
    repository = Repository(tmp_path / "backups")
    kept: list[str] = []
    for fatal in moments(steps, rounds):
        with opened(url) as store:
            fill(store, ballast(1_500, 1_000 + fatal))
            before = content(store)
        worker.run("take", url, repository.directory, fatal)
        try:
            assert repository.check() == []
            assert len(repository.ids()) >= len(kept[-1:])
        except BackupNotFound:
            assert not kept
        worker.run("take", url, repository.directory, 0)
        assert repository.check() == []
        kept.append(repository.manifest().id)
        assert repository.ids() == kept[-1:]
        target = tmp_path / f"target {fatal}"
        target.mkdir()
        with opened(sqlite_url(target)) as store:
            restore(store, repository, repository.manifest())
            assert content(store) == before


@pytest.mark.parametrize("backend", URLS)
@pytest.mark.parametrize("rounds", ROUNDS, ids=["quick", "long"])
def test_killed_while_a_store_is_restored(tmp_path: Path, worker: Worker, backend: str, rounds: int) -> None:
    repository = Repository(tmp_path / "backups")
    with opened(sqlite_url(tmp_path)) as source:
        fill(source, ballast(2_000))
        wanted = content(source)
        backup(source, repository)
    places = [tmp_path / f"target {number}" for number in range(rounds + 9)]
    for place in places:
        place.mkdir()
    steps = worker.run("restore", URLS[backend](places.pop()), repository.directory, 0)
    assert steps > 6
    for fatal in moments(steps, rounds):
        url = URLS[backend](places.pop())
        assert worker.run("restore", url, repository.directory, fatal) == 0
        store = open_store(url)
        try:
            if fatal > 1:
                with pytest.raises(HalfRestored):
                    refuse_half_restored(store)
        finally:
            store.close()
        worker.run("restore", url, repository.directory, 0)
        with opened(url) as store:
            assert content(store) == wanted
            refuse_half_restored(store)
