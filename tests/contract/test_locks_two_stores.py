"""Lockers of two processes' stores at once: never do two hold what excludes each other, and everybody gets a turn."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark_server.kv import Space, Store, counter, open_store
from lakemark_server.store.mutations import Mutations
from lakemark_server.transactions.conflicts import Component, LockType, Place, exclude
from lakemark_server.transactions.requests import Client, LockRequest, LockState
from lakemark_server.transactions.service import Transactions
from lakemark_server.verify import verify
from tests.contract.conftest import SHARED_URLS
from tests.lakes import Clock

TURNS = 8
COUNT = Space.of("count").key()
TABLE, ANOTHER = Place("hive", "d", "t"), Place("hive", "d", "u")
KINDS = [
    [Component(TABLE, LockType.EXCLUSIVE)],
    [Component(TABLE, LockType.EXCL_WRITE), Component(ANOTHER, LockType.SHARED_READ)],
    [Component(TABLE._replace(partition="p=1"), LockType.SHARED_WRITE)],
    [Component(TABLE, LockType.SHARED_READ)],
    [Component(Place("hive", "d"), LockType.SHARED_WRITE)],
    [Component(ANOTHER, LockType.EXCLUSIVE), Component(TABLE, LockType.SHARED_READ)],
]


class History:
    """Who holds what, as the holders themselves note it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, list[Component]] = {}
        self.violations: list[tuple[object, object]] = []
        self.turns = 0

    def enter(self, lock_id: int, components: list[Component]) -> None:
        with self._lock:
            for others in self._held.values():
                if any(exclude(one, other) for one in components for other in others):
                    self.violations.append((components, others))
            self._held[lock_id] = components
            self.turns += 1

    def leave(self, lock_id: int) -> None:
        with self._lock:
            del self._held[lock_id]


@pytest.fixture(params=["one", *SHARED_URLS])
def open_two(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], list[Store]]:
    """Two stores over the same data; of SQLite, which one process has, one store twice."""

    def opened() -> list[Store]:
        if request.param == "one":
            return [open_store(f"sqlite:///{tmp_path}/kv.db")] * 2
        return [open_store(SHARED_URLS[request.param](tmp_path)) for _ in range(2)]

    return opened


def test_a_history_of_concurrent_lockers(open_two: Callable[[], list[Store]]) -> None:
    stores, clock, history = open_two(), Clock(), History()
    managers = [Transactions(Mutations(store, clock)).locks for store in stores]
    failures: list[BaseException] = []
    together = threading.Barrier(6)

    def work(who: int) -> None:
        locks, chance = managers[who % 2], random.Random(who)
        try:
            for _ in range(TURNS):
                components = chance.choice(KINDS)
                together.wait(120)
                answer = locks.lock(LockRequest(components, Client("u", "h")))
                until = time.monotonic() + 120
                while answer.state is not LockState.ACQUIRED:
                    assert time.monotonic() < until
                    answer = locks.check(answer.lock_id)
                history.enter(answer.lock_id, components)
                if components is KINDS[0]:  # alone: reading and writing in two transactions loses nothing
                    now = counter(stores[who % 2].read(lambda tx: tx.get(COUNT)))
                    stores[who % 2].transact(lambda tx, now=now: tx.set(COUNT, (now + 1).to_bytes(8, "little")))  # type: ignore[misc]
                history.leave(answer.lock_id)
                locks.unlock(answer.lock_id)
        except BaseException as error:
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=work, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert history.violations == []
    assert history.turns == TURNS * len(threads)
    choices = [random.Random(who) for who in range(6)]
    alone = sum(chance.choice(KINDS) is KINDS[0] for chance in choices for _ in range(TURNS))
    assert counter(stores[0].read(lambda tx: tx.get(COUNT))) == alone
    assert not list(managers[0].shown())
    stores[0].transact(lambda tx: tx.clear(COUNT))
    assert verify(stores[1]) == []
    for store in set(stores):
        store.close()
