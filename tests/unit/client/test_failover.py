"""Several services behind one client, and services that are away: which one is asked, and how often."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import ExitStack
from dataclasses import dataclass

import grpc
import pytest

from lakemark.client.calls import Backoff, Calls
from lakemark.client.client import Client
from lakemark.errors import TableNotFound, Unavailable, UnknownOutcome
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub, add_CatalogServiceServicer_to_server
from tests.unit.client.test_calls import Scripted

QUICK = Backoff(first_s=0.0, most_s=0.0, attempts_max=4)
PATIENT = Backoff(first_s=0.01, most_s=0.05, attempts_max=1_000)
"""gRPC connects again in its own time."""


@dataclass
class Node:
    """One service on a port of its own, which can be stopped and started again."""

    servicer: Scripted
    port: int
    server: grpc.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        add_CatalogServiceServicer_to_server(self.servicer, self.server)
        self.port = self.server.add_insecure_port(self.address)
        self.server.start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop(None).wait()
            self.server = None


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    made = (Node(Scripted(), 0), Node(Scripted(), 0))  # type: ignore[abstract] # the other methods are not called
    with ExitStack() as stack:
        for node in made:
            node.start()
            stack.callback(node.stop)
        yield made


@pytest.fixture
def unused() -> tuple[str, str]:
    """Addresses at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return f"127.0.0.1:{one.getsockname()[1]}", f"127.0.0.1:{other.getsockname()[1]}"


def both(nodes: tuple[Node, Node]) -> str:
    return ",".join(node.address for node in nodes)


def asked(nodes: tuple[Node, Node]) -> list[int]:
    return [len(node.servicer.request_ids) for node in nodes]


def test_the_first_one_is_asked_as_long_as_it_is_there(nodes: tuple[Node, Node]) -> None:
    with Client(both(nodes), 10, QUICK) as client:
        assert client.address == both(nodes)
        for _ in range(3):
            client.databases.create("db")
        nodes[0].servicer.script = [TableNotFound("there is no table db.t")]
        with pytest.raises(TableNotFound):
            client.databases.create("db")
    assert asked(nodes) == [4, 0]


def test_the_next_one_is_asked_when_it_is_away(nodes: tuple[Node, Node]) -> None:
    with Client(both(nodes), 60, PATIENT) as client:
        client.databases.create("db")
        nodes[0].stop()
        client.databases.create("db")
        client.databases.create("db")
        nodes[0].start()
        nodes[1].stop()
        client.databases.create("db")
    assert asked(nodes) == [2, 2]


def test_one_that_was_never_there_is_passed_over(nodes: tuple[Node, Node], unused: tuple[str, str]) -> None:
    with Client(f"{unused[0]},{nodes[0].address}", 10, QUICK) as client:
        assert client.databases.create("db").name == "made"


def test_what_one_may_have_done_is_asked_of_the_other_with_the_same_request_id(nodes: tuple[Node, Node]) -> None:
    nodes[0].servicer.script = [grpc.StatusCode.UNAVAILABLE]
    with Client(both(nodes), 10, QUICK) as client:
        assert client.databases.create("db").name == "made"
    assert asked(nodes) == [1, 1]
    assert nodes[0].servicer.request_ids == nodes[1].servicer.request_ids


def test_an_unknown_end_stays_unknown_when_all_are_away_afterwards(nodes: tuple[Node, Node]) -> None:
    def away(context: grpc.ServicerContext) -> pb.Database:
        nodes[1].stop()
        context.abort(grpc.StatusCode.UNAVAILABLE, "as if the process had been killed")
        raise AssertionError

    nodes[0].servicer._answer = away  # type: ignore[method-assign]
    with Client(both(nodes), 10, QUICK) as client, pytest.raises(UnknownOutcome):
        client.databases.create("db")
    assert set(nodes[0].servicer.request_ids) == {nodes[0].servicer.request_ids[0]}


def test_where_nobody_has_ever_listened_the_first_call_fails_at_once(unused: tuple[str, str]) -> None:
    """Waiting would not help: the name does not exist, or the machine runs no service."""
    for address, reason in (
        (unused[0], "connection refused"),
        (",".join(unused), "connection refused"),
        ("nowhere.invalid:9090", "no machine of this name"),
    ):
        pauses: list[float] = []
        calls = Calls(address, 10, Backoff(), pauses.append)
        with pytest.raises(Unavailable, match=rf"answers at {address}; .*'lakemark serve'.* \(.*{reason}\)"):
            calls(CatalogServiceStub(calls.channel).GetDatabase, pb.GetDatabaseRequest(name="db"))
        assert pauses == []
        calls.close()


def test_a_service_that_was_there_is_waited_for(nodes: tuple[Node, Node]) -> None:
    node = nodes[0]
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            node.start()
        time.sleep(seconds)

    calls = Calls(node.address, 60, PATIENT, pause)
    create = CatalogServiceStub(calls.channel).CreateDatabase
    calls(create, pb.CreateDatabaseRequest(request_id="1"), mutation=True)
    node.stop()
    assert calls(create, pb.CreateDatabaseRequest(request_id="2"), mutation=True).name == "made"
    assert len(pauses) >= 3
    assert node.servicer.request_ids == ["1", "2"]
    calls.close()


def test_an_error_is_an_answer_too(nodes: tuple[Node, Node]) -> None:
    node = nodes[0]
    node.servicer.script = [TableNotFound("there is no table db.t")]
    pauses: list[float] = []
    calls = Calls(node.address, 10, QUICK, pauses.append)
    create = CatalogServiceStub(calls.channel).CreateDatabase
    with pytest.raises(TableNotFound):
        calls(create, pb.CreateDatabaseRequest(), mutation=True)
    node.stop()
    with pytest.raises(Unavailable):
        calls(create, pb.CreateDatabaseRequest(), mutation=True)
    assert len(pauses) == QUICK.attempts_max - 1
    calls.close()
