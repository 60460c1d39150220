"""The whole service in this process, on free ports, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakemark import Client
from lakemark.client.calls import Backoff
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from tests.stores import store_url


@contextmanager
def running_service(directory: Path, clock: ClockMs = now_ms, **settings: Any) -> Iterator[Service]:
    """A service without the Hive Metastore protocol, with its data in ``directory``. ``settings``: further settings."""
    given: dict[str, Any] = {
        "store": store_url(directory),
        "warehouse": str(directory / "warehouse"),
        "grpc_port": 0,
        "hms_enabled": False,
        "sweep_interval_s": 0.05,
        "log_level": "error",
        **settings,
    }
    with Service(Settings(**given), clock=clock) as service:
        yield service


@contextmanager
def connected(service: Service) -> Iterator[Client]:
    """A client that gives up quickly."""
    with Client(service.grpc_address, 10, Backoff(0.01, 0.05, 3)) as client:
        yield client
