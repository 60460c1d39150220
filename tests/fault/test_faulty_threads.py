"""Many concurrent writers of one table on a store that fails: they share transactions, and so their faults.

Which thread meets which fault is chance. In any case, every acknowledged commit is there once, as it was reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from lakemark_core.errors import LakemarkError, Outcome
from lakemark_server.kv import open_store
from lakemark_server.timeline.publication.commits import Committed
from lakemark_server.verify import verify
from tests.event_replay import replay_problems
from tests.faulty_store import Crashed, Faults, FaultyStore, Rates
from tests.lakes import Clock, Lake, file
from tests.stores import store_url

T = TypeVar("T")
WRITERS = 6
COMMITS = 12
ATTEMPTS_MAX = 500


class Process:
    """The domains over a faulty store. After a crash the next caller restarts them."""

    def __init__(self, store: FaultyStore, directory: Path) -> None:
        self.store, self.directory = store, directory
        self.starting = threading.Lock()
        self.lake = self.started()

    def started(self) -> Lake:
        with self.store.faults.quiet():
            return Lake(self.store, self.directory, Clock())

    def ask(self, what: Callable[[Lake], T]) -> T:
        """Asks until the outcome is known, as clients do."""
        for _ in range(ATTEMPTS_MAX):
            lake = self.lake
            try:
                return what(lake)
            except Crashed:
                self.restart(lake)
            except RuntimeError as error:  # raised in threads whose batch the crashed thread led
                if "interrupted" not in str(error):
                    raise
                self.restart(lake)
            except LakemarkError as error:
                if error.outcome is Outcome.FATAL:
                    raise
        raise AssertionError("it never ends")

    def restart(self, dead: Lake) -> None:
        with self.starting:
            if self.lake is dead:
                self.store.reopen()
                self.lake = self.started()


@pytest.mark.parametrize("seed", range(4))
def test_what_was_acknowledged_is_there_once(tmp_path: Path, seed: int) -> None:
    inner = open_store(store_url(tmp_path))
    table = Lake(inner, tmp_path, Clock()).table()
    process = Process(FaultyStore(inner, Faults(seed, Rates.of(0.03))), tmp_path)
    acknowledged: dict[int, str] = {}

    def write(writer: int) -> None:
        for number in range(COMMITS):
            request = f"{writer}/{number}"
            instant = process.ask(lambda lake, request=request: lake.open(table, request_id=request))  # type: ignore[misc]
            one = file(instant, f"f{writer}-{number}")
            answer: Committed = process.ask(
                lambda lake, instant=instant, one=one: lake.commit(table, instant, [one])  # type: ignore[misc]
            )
            assert answer.version not in acknowledged
            acknowledged[answer.version] = one.path

    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(write, writer) for writer in range(WRITERS)]:
            done.result()
    try:
        lake = Lake(inner, tmp_path, Clock())
        assert sorted(acknowledged) == list(range(1, WRITERS * COMMITS + 1))
        for version in (1, WRITERS * COMMITS // 2, WRITERS * COMMITS):
            assert lake.paths(table, version) == sorted(acknowledged[one] for one in range(1, version + 1))
        assert verify(inner) + replay_problems(inner) == []
    finally:
        inner.close()
    assert len(process.store.faults.counts()) > 5, "hardly any fault was tried"
