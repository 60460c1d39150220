"""The stores that must keep the contract. A new backend adds its factory to ``FACTORIES`` and,
if several processes can share it, its URL to ``SHARED_URLS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemark_server.kv import Store
from lakemark_server.kv.postgres import PostgresStore
from lakemark_server.kv.postgres_url import parse
from lakemark_server.kv.sqlite import SqliteStore
from tests.stores import postgres_url, remove_schema

Factory = Callable[[Path, Callable[[], float]], Store]

FACTORIES: dict[str, Factory] = {
    "sqlite": lambda directory, clock: SqliteStore(directory / "kv.db", clock=clock),
    "postgresql": lambda directory, clock: PostgresStore(parse(postgres_url(directory)), clock=clock),
}

# Stores that several processes may open at once: the URL for a test's directory, and what to do with it afterwards.
SHARED_URLS: dict[str, tuple[Callable[[Path], str], Callable[[Path], None]]] = {
    "postgresql": (postgres_url, remove_schema),
}


class ManualClock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=FACTORIES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], Store]]:
    """Opens the test's store; called after ``close`` it opens the same data again."""
    yield lambda: FACTORIES[request.param](tmp_path, clock)
    if request.param == "postgresql":
        remove_schema(tmp_path)


@pytest.fixture
def store(open_again: Callable[[], Store]) -> Iterator[Store]:
    opened = open_again()
    yield opened
    opened.close()
