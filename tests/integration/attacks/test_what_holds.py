"""What was tried and is refused, or stays where it belongs."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from pathlib import Path

import grpc
import pytest
from thrift.Thrift import TException

from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import events_pb2 as e
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1.events_pb2_grpc import EventServiceStub
from tests.integration.attacks.thrift_client import Client
from tests.integration.hms_objects import partition, path, table
from tests.lakes import file
from tests.wire import Wire


@pytest.mark.parametrize("value", ["../../../x", "..", "a/b", "%2e%2e", "\n", "\x1b[31m", "a=b", ""])
def test_partition_values_do_not_lead_out_of_their_table(client: Client, tmp_path: Path, value: str) -> None:
    client.create_table(table("t", keys="d string"))
    home = path(client.get_table("default", "t").sd.location)
    before = {each for each in tmp_path.rglob("*") if home not in each.parents}
    try:
        place = path(client.add_partition(partition([value], of="t")).sd.location)
    except TException:
        pass
    else:
        assert place.resolve().parent == home.resolve()
    assert {each for each in tmp_path.rglob("*") if home not in each.parents} == before


def test_dots_and_slashes_of_locations_are_resolved(client: Client, wire: Wire, tmp_path: Path) -> None:
    client.create_table(table("warehouse_table", location=f"file://{tmp_path}//a/../b/./c//"))
    assert client.get_table("default", "warehouse_table").sd.location == f"file:{tmp_path}/b/c"
    assert wire.create(location=f"{tmp_path}/x/../y/./z/").location == f"file:{tmp_path}/y/z"


def test_of_a_link_in_a_dropped_directory_only_the_link_goes(client: Client, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    client.create_table(table("t"))
    home = path(client.get_table("default", "t").sd.location)
    (home / "link").symlink_to(outside)
    client.drop_table("default", "t", True)
    assert not home.exists()
    assert (outside / "kept").read_text() == "x"


def outcome(call: Callable[[], object]) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as error:
        return error.code()  # type: ignore[attr-defined,no-any-return]
    return grpc.StatusCode.OK


@pytest.mark.parametrize("token", ["forged", "a" * 10_000, "\x00", "1.2.3", "é", "../..", "AAAA"])
def test_forged_page_tokens_are_refused_or_only_names(wire: Wire, token: str) -> None:
    wire.create()
    instant = wire.open().instant
    wire.commit(instant, file(instant, "a"))
    calls = (
        lambda: wire.plan(page_token=token),
        lambda: wire.snapshots.ListFileSlices(s.ListFileSlicesRequest(table=wire.table, page_token=token)),
        lambda: wire.catalog.ListTables(c.ListTablesRequest(database="default", page_token=token)),
        lambda: wire.catalog.ListDatabases(c.ListDatabasesRequest(page_token=token)),
        lambda: wire.catalog.ListDroppedTables(c.ListDroppedTablesRequest(page_token=token)),
        lambda: EventServiceStub(wire.channel).ListConsumers(e.ListConsumersRequest(page_token=token)),
    )
    for call in calls:
        assert outcome(call).name in ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")


def test_what_clients_send_is_escaped_in_the_log(client: Client, wire: Wire) -> None:
    lines = io.StringIO()
    with redirect_stderr(lines):
        client.create_table(table("t", keys="d string"))
        for text in ("\x1b[31mred\x1b[0m", "a\nfake line"):
            for call in (
                lambda text=text: client.get_table("default", text),
                lambda text=text: client.get_partitions_by_filter("default", "t", f'd = "{text}', -1),
                lambda text=text: client.create_table(table("u", location=f"/tmp/{text}")),  # noqa: S108
                lambda text=text: wire.create(location=text),
            ):
                with suppress(TException, grpc.RpcError):
                    call()
    assert "\x1b" not in lines.getvalue()
    assert "\nfake line" not in lines.getvalue()
