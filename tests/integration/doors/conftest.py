"""A service with doors, its clock, clients of its Metastore, and a second Metastore on the same store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakemark_hms.bridge import HmsBridge
from lakemark_hms.doors.facade import DoorFacade
from lakemark_hms.lake.facet import SparkFacet
from lakemark_server.doors.service import Doors
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline.service import Timeline
from tests.integration.doors.statements import Another, Later, SparkClient, port_of
from tests.stores import store_url


@pytest.fixture
def clock() -> Later:
    return Later()


@pytest.fixture
def service(tmp_path: Path, clock: Later) -> Iterator[Service]:
    settings = Settings(store=store_url(tmp_path), warehouse=str(tmp_path / "wh"), grpc_port=0, hms_port=0)
    with Service(settings, clock=clock) as running:
        yield running


@pytest.fixture
def another(service: Service, clock: Later) -> Iterator[Another]:
    """The port of a Metastore on the same store, which shares nothing else with the first one."""
    with ExitStack() as stack:

        def started() -> int:
            snapshots = Snapshots(service.store)
            timeline = Timeline(service.store, snapshots, clock)
            doors = DoorFacade(Doors(service.store, timeline, snapshots, clock), snapshots)
            bridge = HmsBridge(service.catalog, SparkFacet(snapshots), timeline=timeline, doors=doors)
            return stack.enter_context(bridge).port

        yield started


@pytest.fixture
def spark(service: Service) -> Iterator[Callable[..., SparkClient]]:
    opened: list[SparkClient] = []

    def one(user: str = "ann") -> SparkClient:
        opened.append(SparkClient(port_of(service), user))
        return opened[-1]

    yield one
    for client in opened:
        client.close()
