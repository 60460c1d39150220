"""Overload on the Metastore port: admitted calls finish, others get an error with a reason and may retry."""

from __future__ import annotations

import gc
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from hmsclient.genthrift.hive_metastore.ttypes import Database, Partition, StorageDescriptor, Table
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark.errors import InvalidArgument
from lakemark_hms.admission import Admission, tenant_of
from lakemark_hms.bridge import HmsBridge
from lakemark_hms.wire import codec
from lakemark_hms.wire.dispatch import Call, Session
from lakemark_hms.wire.inbox import Message
from lakemark_hms.wire.limits import ServerSettings
from lakemark_proto.v1.admin_pb2 import Quota
from lakemark_server.admission.pressure import InflightBytes
from lakemark_server.admission.tenants import Tenants
from lakemark_server.catalog.service import Catalog
from lakemark_thrift import ttypes
from lakemark_thrift.services import METHODS

Client: TypeAlias = ThriftHiveMetastore.Client
WAIT_S = 60.0
CLIENTS = 32


@contextmanager
def serving(
    catalog: Catalog, inflight: InflightBytes | None = None, **limits: Any
) -> Iterator[tuple[HmsBridge, Callable[[], Client]]]:
    """A bridge with these settings, and a function that opens a connection to it."""
    admission = Admission(Tenants(catalog.quotas.of), inflight or InflightBytes(1 << 30), WAIT_S)
    settings = ServerSettings(**limits)
    with HmsBridge(catalog, settings=settings, admission=admission) as bridge, ExitStack() as stack:

        def connect() -> Client:
            transport = TBufferedTransport(TSocket("127.0.0.1", bridge.port))
            transport.open()
            stack.callback(transport.close)
            return Client(TBinaryProtocolAccelerated(transport, fallback=False))

        yield bridge, connect


@pytest.fixture
def gate(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(catalog, monkeypatch)


class Gate:
    """Holds ``create_database`` calls until it is opened."""

    def __init__(self, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()
        original = catalog.create_database

        def held(*arguments: Any, **named: Any) -> Any:
            self.entered.release()
            assert self.opened.wait(WAIT_S)
            return original(*arguments, **named)

        monkeypatch.setattr(catalog, "create_database", held)


def test_a_flood_is_refused_at_once_while_what_is_in_flight_finishes(catalog: Catalog, gate: Gate) -> None:
    with (
        serving(catalog, workers=1, reserved_workers=1, waiting_max=2) as (_, connect),
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        clients = [connect() for _ in range(CLIENTS)]

        def ask(number: int) -> str:
            try:
                clients[number].create_database(Database(name=f"db{number}"))
            except TApplicationException as error:
                return str(error)
            return ""

        asked: dict[Future[str], int] = {pool.submit(ask, number): number for number in range(CLIENTS)}
        assert gate.entered.acquire(timeout=WAIT_S)
        answers = as_completed(asked, timeout=WAIT_S)
        done = [next(answers) for _ in range(CLIENTS - 3)]
        for one in done:
            assert one.result() == "the service is full: 3 calls wait or run; try again in a second"
        assert connect().get_all_databases() == ["default"], "reads are answered meanwhile"

        gate.opened.set()
        passed = sorted(f"db{asked[future]}" for future in answers if not future.result())
        assert len(passed) == 3
        assert connect().get_all_databases() == [*passed, "default"]

        refused = asked[done[0]]
        clients[refused].create_database(Database(name=f"db{refused}"))
        assert f"db{refused}" in connect().get_all_databases(), "the connection of a refused call goes on"


def test_bytes_of_calls_that_run_are_bounded(catalog: Catalog, gate: Gate) -> None:
    inflight = InflightBytes(60_000)
    with serving(catalog, inflight) as (_, connect), ThreadPoolExecutor(1) as pool:
        held = pool.submit(connect().create_database, Database(name="a", description="x" * 40_000))
        assert gate.entered.acquire(timeout=WAIT_S)
        other = connect()
        with pytest.raises(TApplicationException, match="bytes are being worked on"):
            other.create_database(Database(name="b", description="x" * 40_000))
        gate.opened.set()
        held.result(WAIT_S)
        other.create_database(Database(name="b", description="x" * 40_000))
    assert inflight.now == 0


class Large:
    """The decoded form of a call."""


def test_a_call_that_fails_is_forgotten_at_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only when the collector finds its cycles."""
    left: list[weakref.ref[Large]] = []

    def failing(*_: Any, **__: Any) -> None:
        request = Large()
        left.append(weakref.ref(request))
        raise InvalidArgument("no")

    monkeypatch.setattr(catalog, "create_database", failing)
    with serving(catalog) as (_, connect):
        client = connect()
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(Exception, match="no"):
                client.create_database(Database(name="x"))
            client.get_all_databases()  # the calls of a connection run one after the other
            assert left[0]() is None
        finally:
            gc.enable()


def test_a_tenants_limits_hold_here_too(catalog: Catalog) -> None:
    with serving(catalog) as (_, connect):
        client = connect()
        catalog.quotas.set("hive", Quota(requests_per_second=0, request_burst=0))
        with pytest.raises(TApplicationException, match="catalog 'hive' sends more than its quota of 0 requests"):
            client.get_all_databases()
        client.set_ugi("me", [])
        catalog.quotas.set("hive", Quota(partitions_per_request=1, tables=1), clear_all=True)
        columns = [ttypes.FieldSchema(name="a", type="int")]
        serde = ttypes.SerDeInfo(serializationLib="x")
        storage = StorageDescriptor(location=f"{catalog.warehouse}/t", cols=columns, serdeInfo=serde)
        keys = [ttypes.FieldSchema(name="p", type="string")]
        client.create_table(Table(dbName="default", tableName="t", sd=storage, partitionKeys=keys, parameters={}))
        with pytest.raises(Exception, match="has 1 tables, its quota is 1"):
            client.create_table(Table(dbName="default", tableName="u", sd=storage, partitionKeys=keys, parameters={}))
        parts = [
            Partition(
                dbName="default", tableName="t", values=[value], sd=StorageDescriptor(cols=columns, serdeInfo=serde)
            )
            for value in "ab"
        ]
        with pytest.raises(
            Exception, match="the request is for 2 partitions; catalog 'hive' may have 1 in one request"
        ):
            client.add_partitions(parts)
        client.add_partitions(parts[:1])
        client.drop_table("default", "t", True)
        client.create_table(Table(dbName="default", tableName="u", sd=storage, partitionKeys=keys, parameters={}))


def test_connections_are_bounded_and_idle_ones_are_closed(catalog: Catalog) -> None:
    with serving(catalog, connections_max=1) as (bridge, connect):
        connect().get_all_databases()
        with socket.create_connection(("127.0.0.1", bridge.port), WAIT_S) as second:
            assert second.recv(1) == b""
    with (
        serving(catalog, idle_seconds_max=0.05) as (bridge, _),
        socket.create_connection(("127.0.0.1", bridge.port), WAIT_S) as idle,
    ):
        assert idle.recv(1) == b""


@pytest.mark.parametrize(
    ("method", "arguments", "tenant"),
    [
        ("get_all_databases", {}, "hive"),
        ("get_table", {"dbname": "db", "tbl_name": "t"}, "hive"),
        ("get_table", {"dbname": "@Other#db", "tbl_name": "t"}, "other"),
        ("get_table", {"dbname": "@broken", "tbl_name": "t"}, "hive"),
        ("get_table", {"dbname": "@" + "x" * 10_000 + "#db", "tbl_name": "t"}, "hive"),
        ("get_table_req", {"req": ttypes.GetTableRequest(dbName="db", tblName="t", catName="Other")}, "other"),
        ("get_table_req", {"req": ttypes.GetTableRequest(dbName="@one#db", tblName="t", catName="two")}, "one"),
        ("get_table_req", {}, "hive"),
        ("create_database", {"database": ttypes.Database(name="db", catalogName="other")}, "other"),
        ("create_table", {"tbl": ttypes.Table(dbName="db", tableName="t", catName="other")}, "other"),
    ],
)
def test_the_tenant_of_a_call(method: str, arguments: dict[str, Any], tenant: str) -> None:
    data = codec.message_head(method, codec.CALL, 1) + codec.encode_struct(METHODS[method].args(**arguments))
    header = codec.read_header(data)
    assert header is not None
    assert tenant_of(Call(METHODS[method], Message(header, data, len(data)), Session("peer"))) == tenant
