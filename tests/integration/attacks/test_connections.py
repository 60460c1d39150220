"""Peers that open connections and say nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakemark_hms.bridge import HmsBridge
from lakemark_hms.wire.limits import ServerSettings
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_server.catalog.service import Catalog
from tests.integration.grpc_server import running_service
from tests.integration.hms_raw import Raw
from tests.wire import Wire

Opened = Callable[[HmsBridge, str], socket.socket]
HOST, OTHER = "127.0.0.1", "127.0.0.2"
WAIT_S = 60.0


@pytest.fixture
def opened() -> Iterator[Opened]:
    """A connection from an address of this machine."""
    with ExitStack() as stack:

        def connect(bridge: HmsBridge, source: str = HOST) -> socket.socket:
            made = socket.create_connection((HOST, bridge.port), WAIT_S, (source, 0))
            return stack.enter_context(made)

        yield connect


def serving(catalog: Catalog, **limits: float) -> HmsBridge:
    given = {"idle_seconds_min": 0.0, **limits}
    return HmsBridge(catalog, settings=ServerSettings(**given))  # type: ignore[arg-type]


def ask(bridge: HmsBridge) -> None:
    honest = Raw(bridge.port)
    assert honest.call("get_all_databases").success == ["default"]
    honest.close()


def is_open(sock: socket.socket) -> bool:
    sock.settimeout(0.1)
    try:
        return sock.recv(1) != b""
    except TimeoutError:
        return True
    finally:
        sock.settimeout(WAIT_S)


def test_idle_connections_of_one_address_keep_nobody_out(catalog: Catalog, opened: Opened) -> None:
    with serving(catalog, connections_max=20, peer_connections_max=8) as bridge:
        idle = [opened(bridge, OTHER) for _ in range(50)]
        for sock in idle[:42]:
            assert sock.recv(1) == b"", "those that were idle longest are closed"
        assert all(map(is_open, idle[42:]))
        ask(bridge)


def test_in_a_full_house_the_longest_idle_of_the_peer_with_most_connections_goes(
    catalog: Catalog, opened: Opened
) -> None:
    with serving(catalog, connections_max=10) as bridge:
        quiet = opened(bridge, HOST)
        idle = [opened(bridge, OTHER) for _ in range(9)]
        for number in range(3):
            ask(bridge)
            assert idle[number].recv(1) == b""
            idle.append(opened(bridge, OTHER))
        assert is_open(quiet), "it is idle longest, but is its peer's only one"


def test_connections_that_were_just_used_do_not_go(catalog: Catalog, opened: Opened) -> None:
    with serving(catalog, connections_max=3, idle_seconds_min=600.0) as bridge:
        first = [opened(bridge, HOST) for _ in range(3)]
        assert opened(bridge, HOST).recv(1) == b""
        assert all(map(is_open, first))


@pytest.mark.timeout(120)
def test_idle_connections_of_grpc_go_and_are_bounded(tmp_path: Path) -> None:
    with running_service(tmp_path, grpc_connections_max=5, grpc_idle_s_max=2.0) as service, ExitStack() as stack:
        host, port = service.grpc_address.split(":")
        idle = [stack.enter_context(socket.create_connection((host, int(port)), WAIT_S)) for _ in range(8)]
        for sock in idle:
            while sock.recv(1 << 10):  # until the service closes it
                pass
        wire = Wire(service.grpc_address)
        assert list(wire.catalog.ListDatabases(c.ListDatabasesRequest()).names) == ["default"]
        wire.close()
