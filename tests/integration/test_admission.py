"""Overload over real gRPC: admitted requests finish, others are told at once when to retry, nothing is lost.

A gate in the domain holds requests, so that what is full stays full until the test opens it.
"""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from lakemark import Client
from lakemark.cli.app import run
from lakemark.client.calls import Backoff
from lakemark.errors import InvalidArgument, Overloaded, QuotaExceeded
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1.admin_pb2 import Quota
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from tests.stores import store_url
from tests.wire import Refused, Wire, refused

WAIT_S = 60.0
CLIENTS = 64


class Gate:
    """Holds calls of one method of the catalog until it is opened; ``entered`` counts those that reached it."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch, method: str = "create_database") -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()
        self.names: list[str] = []
        original: Callable[..., Any] = getattr(service.catalog, method)

        def held(record: Any, *arguments: Any, **named: Any) -> Any:
            self.names.append(record.name)
            self.entered.release()
            assert self.opened.wait(WAIT_S)
            return original(record, *arguments, **named)

        monkeypatch.setattr(service.catalog, method, held)

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=WAIT_S)


@contextmanager
def serving(directory: Path, **limits: Any) -> Iterator[Service]:
    given: dict[str, Any] = {
        "store": store_url(directory),
        "warehouse": str(directory / "warehouse"),
        "grpc_port": 0,
        "hms_enabled": False,
        "sweep_interval_s": 3_600.0,
    }
    with Service(Settings(**given, **limits)) as service:
        yield service


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Service]:
    """Two threads, one more for reads, and room for two waiting requests."""
    with serving(tmp_path, grpc_threads=2, grpc_reserved_threads=1, grpc_waiting_max=2) as service:
        yield service


@pytest.fixture
def wire(tiny: Service) -> Iterator[Wire]:
    opened = Wire(tiny.grpc_address)
    yield opened
    opened.close()


def creation(wire: Wire, name: str, timeout: float = WAIT_S, description: str = "") -> Any:
    """A call that is on its way."""
    database = c.Database(name=name, description=description)
    return wire.catalog.CreateDatabase.future(c.CreateDatabaseRequest(database=database), timeout=timeout)


def pending(service: Service, count: int) -> None:
    """Returns when so many requests run or wait in the main lane. There is no event for that, so it polls."""
    for _ in range(100_000):
        if service.grpc._lanes.main.pending >= count:
            return
        threading.Event().wait(0.001)
    raise AssertionError("the requests never came")


def names(wire: Wire) -> list[str]:
    return [name for name in wire.catalog.ListDatabases(c.ListDatabasesRequest()).names if name != "default"]


def test_a_flood_is_refused_at_once_while_what_is_in_flight_finishes(
    tiny: Service, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.create()
    instant = wire.open().instant
    gate = Gate(tiny, monkeypatch)
    wires = [Wire(tiny.grpc_address, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(CLIENTS)]

    with ThreadPoolExecutor(CLIENTS) as pool:

        def ask(number: int) -> Refused | None:
            try:
                creation(wires[number], f"db{number}").result()
            except grpc.RpcError as error:
                return Refused(error)
            return None

        asked: dict[Future[Refused | None], int] = {pool.submit(ask, number): number for number in range(CLIENTS)}
        gate.wait(2)
        answers = as_completed(asked, timeout=WAIT_S)
        told = [next(answers).result() for _ in range(CLIENTS - 4)]

        for one in told:
            assert one is not None
            assert one.status is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (one.detail.code, one.detail.outcome) == ("overloaded", "retryable")
            assert 20 <= int(one.detail.details["retry_after_ms"]) <= 6_250
            assert one.pushback_ms == one.detail.details["retry_after_ms"]
        assert names(wire) == [], "reads are answered meanwhile"
        beat = wire.timeline.Heartbeat(t.HeartbeatRequest(table=wire.table, instants=[instant]), timeout=WAIT_S)
        assert list(beat.lost) == [], "and leases are renewed"

        gate.opened.set()
        passed = [f"db{asked[future]}" for future in answers if future.result() is None]

    assert len(passed) == 4
    assert names(wire) == sorted(passed) == sorted(gate.names), "no more and no less than was acknowledged"
    for one_wire in wires:
        one_wire.close()


def test_clients_come_back_until_all_is_done(tiny: Service, wire: Wire) -> None:
    def work(number: int) -> None:
        with Client(tiny.grpc_address, WAIT_S, Backoff(0.01, 0.05, 1)) as client:
            client.databases.create(f"db{number}")

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(work, range(CLIENTS)))
    assert len(names(wire)) == CLIENTS


def test_a_request_that_waits_is_dropped_when_its_client_goes(
    tiny: Service, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(tiny, monkeypatch)
    running = [creation(wire, name) for name in ("a", "b")]
    gate.wait(2)
    gone = creation(wire, "gone")
    pending(tiny, 3)
    late = creation(wire, "late", timeout=1.0)
    pending(tiny, 4)
    with pytest.raises(grpc.RpcError) as over:
        late.result()
    assert over.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    gone.cancel()

    with refused("overloaded"):  # they are not here any more, but their places are taken until a thread finds out
        creation(wire, "third").result()
    gate.opened.set()
    for call in running:
        call.result()
    creation(wire, "last").result()

    assert sorted(gate.names) == ["a", "b", "last"], "what nobody waits for is not begun"
    assert names(wire) == ["a", "b", "last"]


def test_a_request_whose_time_is_over_is_not_begun_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service's own limit has passed at once here: the answer comes from the service, which knows that nothing
    happened."""
    with serving(tmp_path, request_s_max=1e-9) as service:
        wire = Wire(service.grpc_address)
        gate = Gate(service, monkeypatch)
        with refused("deadline_exceeded", "before it was carried out") as told:
            creation(wire, "x").result()
        assert (told().status, told().detail.outcome) == (grpc.StatusCode.DEADLINE_EXCEEDED, "retryable")
        assert gate.names == []
        wire.close()


def test_bytes_in_flight_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path, max_inflight_bytes=1 << 20) as service:
        wire = Wire(service.grpc_address)
        gate = Gate(service, monkeypatch)
        large = "x" * 90_000
        held = [creation(wire, f"db{number}", description=large) for number in range(11)]
        gate.wait(11)
        with refused("overloaded", "are being worked on", "above the limit of 1,048,576") as told:
            creation(wire, "more", description=large).result()
        assert told().detail.details["limit"] == "max_inflight_bytes"
        gate.opened.set()
        for call in held:
            call.result()
        creation(wire, "more", description=large).result()
        assert service.inflight.now == 0
        wire.close()


class Large:
    """The decoded form of a request."""


@pytest.mark.parametrize("error", [InvalidArgument, RuntimeError])
def test_a_request_that_fails_is_forgotten_at_once(
    tiny: Service, wire: Wire, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Not only when the collector finds its cycles: until then refused requests would fill the memory."""
    left: list[weakref.ref[Large]] = []

    def failing(*_: Any, **__: Any) -> None:
        request = Large()
        left.append(weakref.ref(request))
        raise error("no")

    monkeypatch.setattr(tiny.catalog, "create_database", failing)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(grpc.RpcError):
            creation(wire, "x").result()
        for _ in range(5_000):
            if left[0]() is None:
                break
            threading.Event().wait(0.001)  # the service is still on its way out of the call
        assert left[0]() is None
    finally:
        gc.enable()


def test_a_tenant_that_may_send_nothing_keeps_its_leases_and_its_operator(tiny: Service, wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    with Client(tiny.grpc_address, 0.01 * WAIT_S) as client:
        client.quotas.set("hive", requests_per_second=0, request_burst=0)
        with pytest.raises(Overloaded, match="quota of 0 requests a second") as told:
            client.databases.list()
        assert told.value.details["limit"] == "requests_per_second"
        beat = wire.timeline.Heartbeat(t.HeartbeatRequest(table=wire.table, instants=[instant]))
        assert list(beat.lost) == []
        with refused("overloaded", "catalog 'hive'"):
            wire.open()
        assert client.quotas.get().usage["refused_requests"] >= 2

        wire.catalog.ListDatabases(c.ListDatabasesRequest(catalog="other"))
        client.quotas.clear("hive", "requests_per_second", "request_burst")
        assert client.databases.list() == ["default"]


def test_concurrency_of_a_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path, quota_concurrent_requests=8) as service:
        wire = Wire(service.grpc_address)
        gate = Gate(service, monkeypatch)
        held = [creation(wire, f"db{number}") for number in range(7)]
        gate.wait(7)
        with refused("overloaded", "7 requests of catalog 'hive' wait or run", "its quota of concurrent requests is 8"):
            creation(wire, "more").result()
        assert names(wire) == [], "the last place is for reads"
        gate.opened.set()
        for call in held:
            call.result()
        assert service.tenants.seen("hive") == (0, 1)
        wire.close()


def test_quotas_over_the_wire_and_in_the_command_line(
    tiny: Service, wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    def lakemark(*arguments: str) -> Any:
        assert run(["--json", "--server", tiny.grpc_address, "quota", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    assert lakemark("set", "hive", "tables=1", "requests_per_second=0.5e3")["own"] == {
        "tables": 1,
        "requests_per_second": 500.0,
    }
    wire.create()
    with refused("quota_exceeded", "1 tables", "its quota is 1") as told:
        Wire(tiny.grpc_address, "second").create()
    assert told().status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert told().detail.outcome == "fatal"

    shown = lakemark("show", "hive")
    assert (shown["limits"]["tables"], shown["usage"]["tables"]) == (1, 1)
    assert [one["catalog"] for one in lakemark("show")] == ["hive"]
    assert lakemark("clear", "hive", "tables")["own"] == {"requests_per_second": 500.0}
    assert lakemark("clear", "hive")["own"] == {}

    assert run(["--server", tiny.grpc_address, "quota", "show"]) == 0
    assert "open_instants" in capsys.readouterr().out
    assert run(["--server", tiny.grpc_address, "quota", "set", "hive", "tabels=1"]) == 64
    assert run(["--server", tiny.grpc_address, "quota", "set", "hive", "tables=-1"]) == 64
    assert run(["--server", tiny.grpc_address, "quota", "set", "hive", "tables=many"]) == 2
    assert run(["--server", tiny.grpc_address, "quota", "set", "hive", "tables=1.5"]) == 64


def test_a_repeated_change_of_a_quota_happens_once(tiny: Service) -> None:
    quotas = tiny.catalog.quotas
    quotas.set("hive", Quota(tables=5), request_id="one")
    quotas.set("hive", Quota(tables=6), request_id="two")
    assert quotas.set("hive", Quota(tables=5), request_id="one").own == Quota(tables=6)


def test_the_client_gets_the_quota_error(tiny: Service) -> None:
    with Client(tiny.grpc_address, WAIT_S) as client:
        client.quotas.set(databases=1)
        with pytest.raises(QuotaExceeded) as told:
            client.databases.create("more")
        assert told.value.details["limit"] == "databases"
