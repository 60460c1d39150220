"""The stores that must keep the contract.

A new backend adds its factory to ``FACTORIES`` and, if several processes can share it, its URL to ``SHARED_URLS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemark_server.kv import Store
from lakemark_server.kv.fdb.store import FdbStore
from lakemark_server.kv.fdb.url import parse as parse_fdb
from lakemark_server.kv.postgres.store import PostgresStore
from lakemark_server.kv.postgres.url import parse
from lakemark_server.kv.sqlite.store import SqliteStore
from tests.stores import fdb_url, postgres_url

Factory = Callable[[Path, Callable[[], float]], Store]

FACTORIES: dict[str, Factory] = {
    "sqlite": lambda directory, clock: SqliteStore(directory / "kv.db", clock=clock),
    "postgresql": lambda directory, clock: PostgresStore(parse(postgres_url(directory)), clock=clock),
    "fdb": lambda directory, clock: FdbStore(parse_fdb(fdb_url(directory)), clock=clock),
}

# Stores that several processes may open at once: the URL for a test's directory.
SHARED_URLS: dict[str, Callable[[Path], str]] = {"postgresql": postgres_url, "fdb": fdb_url}


class ManualClock:
    """Seconds that pass only when a test advances them."""

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
def open_again(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Callable[[], Store]:
    """Opens the test's store. After ``close`` it opens the same data again."""
    return lambda: FACTORIES[request.param](tmp_path, clock)


@pytest.fixture
def store(open_again: Callable[[], Store]) -> Iterator[Store]:
    opened = open_again()
    yield opened
    opened.close()
