"""A whole running service, and clients that send what no honest client would, by gRPC and by Thrift."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_server.process import Service
from tests.integration.attacks.thrift_client import Client, thrift_client
from tests.integration.grpc_server import running_service
from tests.integration.hms_raw import Raw
from tests.wire import Wire


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path, hms_enabled=True, hms_port=0) as running:
        yield running


@pytest.fixture
def wire(service: Service) -> Iterator[Wire]:
    opened = Wire(service.grpc_address)
    yield opened
    opened.close()


@pytest.fixture
def raw(service: Service) -> Iterator[Raw]:
    assert service.hms is not None
    opened = Raw(service.hms.port)
    yield opened
    opened.close()


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with thrift_client(service) as opened:
        yield opened
