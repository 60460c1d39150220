"""A service, and outside of it a second Lakemark whose facade is the Metastore that follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemark import Client
from lakemark_hms.bridge import HmsBridge
from lakemark_hms.outside import Metastore
from lakemark_server.catalog.service import Catalog
from lakemark_server.kv import open_store
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service
from tests.stores import store_url

SETTLED_S = 120.0
"""On a busy machine a JVM takes its time."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(
        tmp_path / "ours", hms_enabled=True, hms_port=0, listener_interval_s=0.05, listener_lease_s=1.0
    ) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with connected(service) as opened:
        yield opened


@pytest.fixture
def here(service: Service) -> Iterator[Metastore]:
    """Our own Metastore, through the facade."""
    with Metastore(service.hms_uri) as opened:
        yield opened


class Outside:
    """A Metastore that can be stopped and started on the same port."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.store = open_store(store_url(directory))
        self.catalog = Catalog(self.store, str(directory / "warehouse"))
        self.catalog.ensure_default_database()
        self.port = 0
        self._bridge: HmsBridge | None = None

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._bridge = HmsBridge(self.catalog, port=self.port)
        self._bridge.start()
        self.port = self._bridge.port

    def stop(self) -> None:
        if self._bridge is not None:
            self._bridge.stop(0.1)
            self._bridge = None


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    made = Outside(tmp_path / "theirs")
    made.start()
    yield made
    made.stop()
    made.store.close()


@pytest.fixture
def there(outside: Outside) -> Iterator[Metastore]:
    with Metastore(outside.uri) as opened:
        yield opened


def until(what: Callable[[], bool], words: str = "") -> None:
    """Waits until it is so."""
    deadline = time.monotonic() + SETTLED_S
    while not what():
        assert time.monotonic() < deadline, words or "it did not come to that"
        time.sleep(0.02)


def settled(client: Client, name: str) -> None:
    """Waits until the listener has done what there is to do."""

    def done() -> bool:
        told = client.listeners.get(name)
        return told.lag_events == 0 and told.repairs_done == told.repairs_asked

    until(done, f"{client.listeners.get(name)}")
