"""A service that may deliver to loopback and tries again soon, a client of it, and a receiver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lakemark import Client
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service
from tests.webhooks import WebhookReceiver

SINK_SETTINGS: Final[dict[str, Any]] = {
    "webhook_networks": ["127.0.0.0/8"],
    "webhook_plain_http": True,
    "sink_look_s": 0.02,
    "sink_first_pause_s": 0.02,
    "sink_longest_pause_s": 0.1,
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path, **SINK_SETTINGS) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with connected(service) as made:
        yield made


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as running:
        yield running
