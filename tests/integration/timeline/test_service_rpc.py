"""What all methods of the gRPC service share: health, reflection, and errors that fit into the trailer."""

from __future__ import annotations

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from lakemark.errors import LakemarkError, by_code
from lakemark_proto.v1 import catalog_pb2, snapshot_pb2, timeline_pb2
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.process import Service
from lakemark_server.rpc.errors import shortened, wire_cost
from tests.lakes import Clock, file
from tests.wire import Refused, Wire, refused

MODULES = (catalog_pb2, timeline_pb2, snapshot_pb2)
SERVICES = sorted(service.full_name for module in MODULES for service in module.DESCRIPTOR.services_by_name.values())


def call(wire: Wire, service: str, method: str) -> object:
    """The method with an empty request."""
    return wire.channel.unary_unary(f"/lakemark.v1.{service}/{method}")(b"")


METHODS = [
    (service.name, method.name)
    for module in MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


@pytest.mark.parametrize(("kind", "method"), METHODS)
def test_each_method_is_there(wire: Wire, kind: str, method: str) -> None:
    """An empty request gets a response or an error with a reason."""
    try:
        call(wire, kind, method)
    except grpc.RpcError as error:
        one = Refused(error)
    else:
        return
    assert one.detail.code in {"invalid_argument", "invalid_name", "database_not_found"}, one
    assert len(one.text.split()) > 3, one


def test_no_such_method(wire: Wire) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        wire.channel.unary_unary("/lakemark.v1.TimelineService/Nothing")(b"")
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]


def test_a_request_that_is_no_message(wire: Wire) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        wire.channel.unary_unary("/lakemark.v1.TimelineService/Commit")(b"\xff\xff\xff")
    assert raised.value.code() in {grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT}  # type: ignore[attr-defined]
    wire.create()


def test_health(wire: Wire) -> None:
    stub = health_pb2_grpc.HealthStub(wire.channel)
    for name in ("", *SERVICES):
        assert stub.Check(health_pb2.HealthCheckRequest(service=name)).status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as raised:
        stub.Check(health_pb2.HealthCheckRequest(service="nothing"))
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]


def test_reflection(wire: Wire) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(wire.channel)
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="lakemark.v1.TimelineService"),
    ]
    listed, described = stub.ServerReflectionInfo(iter(asked))
    names = {one.name for one in listed.list_services_response.service}
    assert set(SERVICES) <= names
    assert b"OpenInstant" in described.file_descriptor_response.file_descriptor_proto[0]


@pytest.mark.parametrize("letter", ["x", "漢", "\n"])
def test_long_errors_reach_a_client_with_default_limits(service: Service, letter: str) -> None:
    """A trailer above the client's limit would hide the error behind a transport error."""
    wire = Wire(service.grpc_address)
    wire.table.table = letter * 3_000
    with refused("table_not_found", letter * 20, "…"):
        wire.snapshot()
    with refused("invalid_name"):
        wire.create()
    wire.close()


def test_long_details_reach_a_client_too(wire: Wire) -> None:
    wire.create()
    slow, fast = (wire.open(timeline_pb2.OVERWRITE_PARTITIONS) for _ in range(2))
    months = [10**8 + n for n in range(900)]
    for number, at in enumerate(range(0, 900, 300), 1):
        given = [file(fast.instant, f"g{month}", month) for month in months[at : at + 300]]
        wire.stage(fast.instant, number, *given)
    wire.commit(fast.instant)
    for number, at in enumerate(range(0, 900, 300), 1):
        given = [file(slow.instant, f"g{month}", month) for month in months[at : at + 300]]
        wire.stage(slow.instant, number, *given)
    with refused("commit_conflict", "and 895 more") as found:
        wire.commit(slow.instant)
    assert found().detail.details["partitions"].startswith("m=100000000,m=100000001")
    assert found().detail.details["read_version"] == "0"


@pytest.mark.parametrize("text", ["", "plain", "x" * 500, "漢" * 100, "\n" * 100, "a漢" * 100])
def test_texts_are_shortened_to_what_they_cost(text: str) -> None:
    short = shortened(text, 100)
    assert wire_cost(short) <= 100
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))
    assert wire_cost(text) > 100 or short == text


def test_a_message_above_the_limit_is_refused(service: Service) -> None:
    wire = Wire(service.grpc_address, "too_large")
    wire.create()
    instant = wire.open().instant
    large = p.DataFiles(arrow=b"\0" * (service.settings.grpc_message_bytes_max + 1))
    with pytest.raises(grpc.RpcError) as raised:
        wire.timeline.StageFiles(t.StageFilesRequest(table=wire.table, instant=instant, added=large, sequence=1))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    wire.close()


def test_a_defect_is_internal_and_shows_no_traceback(
    wire: Wire, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise ZeroDivisionError("secret")

    wire.create()
    monkeypatch.setattr(service.timeline, "open", broken)
    with refused("internal", "OpenInstant failed by a defect") as found:
        wire.open()
    assert "secret" not in found().text
    assert found().status is grpc.StatusCode.INTERNAL


def test_codes_of_the_wire_are_those_of_the_tree(wire: Wire) -> None:
    with refused("table_not_found") as found:
        wire.snapshot()
    kind: type[LakemarkError] = by_code(found().detail.code)
    assert kind.grpc_status == found().status.name
    assert kind.outcome.value == found().detail.outcome


def test_a_policy_that_is_not_known(wire: Wire) -> None:
    with refused("invalid_argument", "'nonsense' is not a policy"):
        wire.create("nonsense")


def test_the_policy_that_counts_is_that_of_the_commit(wire: Wire, clock: Clock) -> None:
    wire.create("partition")
    one, two = wire.open().instant, wire.open().instant
    wire.catalog.SetTableProperties(
        c.SetTablePropertiesRequest(name=wire.table, set={"lakemark.conflict.policy": "table"})
    )
    wire.commit(one)
    with refused("commit_conflict", "one writer at a time"):
        wire.commit(two)
