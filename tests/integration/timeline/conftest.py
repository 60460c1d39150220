"""A service of its own for each module, and a table of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_server.process import Service
from lakemark_server.settings import Settings
from tests.lakes import Clock
from tests.stores import store_url
from tests.wire import Wire

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Service]:
    """A service without the Hive Metastore protocol. Expired writers are swept only when a test asks for it."""
    directory: Path = tmp_path_factory.mktemp("service")
    settings = Settings(
        store=store_url(directory),
        warehouse=str(directory / "warehouse"),
        grpc_port=0,
        hms_enabled=False,
        sweep_interval_s=3_600,
    )
    with Service(settings, clock=clock) as running:
        yield running


@pytest.fixture
def wire(service: Service) -> Iterator[Wire]:
    """The table is not created yet, because tests need different ones."""
    opened = Wire(service.grpc_address, f"t{next(_numbers)}")
    yield opened
    opened.close()
