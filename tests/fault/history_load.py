"""Clients of several services on one store, whose requests and responses are recorded as a history.

All requests go over gRPC, to any of the services. A client that does not learn the outcome of a change mostly asks
again, but sometimes does not, so that histories have changes of unknown outcome.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fault.history_client import Client
from tests.fault.history_plans import TABLES, Planner, pairs, policies
from tests.fault.history_worker import Worker
from tests.histories import MAIN, Place, Recorder

CLIENTS = 6
WAIT_S = 120.0


class Load:
    """``steps``: the number of operations of all clients."""

    def __init__(self, addresses: Sequence[Callable[[], str]], seed: int, steps: int) -> None:
        self.recorder = Recorder()
        self.unanswered = 0
        self._addresses, self._seed, self._steps = addresses, seed, steps
        self._begun = self._done = 0
        self._branches: set[Place] = set()
        self._policies, self._pairs = policies(seed), pairs(seed)
        self._roots: dict[str, Path] = {}
        self._errors: list[BaseException] = []
        self._changed = threading.Condition()

    def create(self) -> None:
        client = Client(self._addresses, random.Random(self._seed))
        for table in TABLES:
            policy = self._policies[table]
            made = client.ask(
                table, lambda wire, policy=policy: wire.create(policy, request_id=f"create {wire.table.table}")
            )
            self._roots[table] = Path(made.location.removeprefix("file:"))
        client.close()

    def run(self, interrupt: Callable[[], None] | None = None, times: int = 0) -> None:
        """Runs the clients. ``interrupt`` is called so many times meanwhile."""
        threads = [threading.Thread(target=self._work, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            for moment in range(1, times + 1):
                self._wait_for(self._steps * moment // (times + 1))
                assert interrupt is not None
                interrupt()
            self._wait_for(self._steps)
        finally:
            for thread in threads:
                thread.join(WAIT_S)
        assert not self._errors, self._errors
        self._clean()

    def _clean(self) -> None:
        """Cleans as much as possible at the end, to show which versions and files something keeps."""
        places = [*((table, MAIN) for table in TABLES), *sorted(self._branches)]
        with self._worker(CLIENTS) as worker:
            for place in places[: len(TABLES)]:
                worker.replace_all(place)  # then only the branch still has the files that it got from main
            for place in places:
                worker.clean(place, 1)

    @contextmanager
    def _worker(self, number: int) -> Iterator[Worker]:
        chance = random.Random(self._seed * 1_000 + number)
        client = Client(self._addresses, chance)
        planner = Planner(self._policies, self._roots, chance)
        try:
            yield Worker(client, self.recorder, planner, self._pairs, self._branches, chance, number)
        finally:
            with self._changed:
                self.unanswered += client.unanswered
            client.close()

    def _wait_for(self, done: int) -> None:
        with self._changed:
            while self._done < done and not self._errors:
                assert self._changed.wait(WAIT_S), "no progress"
        assert not self._errors, self._errors

    def _work(self, number: int) -> None:
        try:
            with self._worker(number) as worker:
                while not self._errors:
                    with self._changed:
                        self._begun += 1
                        if self._begun > self._steps:
                            break
                    worker.step()
                    with self._changed:
                        self._done += 1
                        self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._errors.append(error)
                self._changed.notify_all()
            raise
