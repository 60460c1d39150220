"""Look-ups that are answered from memory are as fresh as others, whoever changes what they are about."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    EnvironmentContext,
    MetaException,
    NoSuchObjectException,
    Partition,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark_hms.admission import Admission
from lakemark_hms.bridge import HmsBridge
from lakemark_hms.lake.facet import SparkFacet
from lakemark_hms.wire import codec
from lakemark_proto.v1.admin_pb2 import Quota
from lakemark_server.admission.pressure import InflightBytes
from lakemark_server.admission.tenants import Tenants
from lakemark_server.catalog.service import Catalog
from lakemark_server.kv import Store, open_store
from lakemark_server.metrics.process import REQUESTS
from lakemark_server.snapshots.service import Snapshots
from lakemark_thrift.services import METHODS
from tests.integration import hms_objects as objects
from tests.integration.conftest import Client, Connect
from tests.stores import store_url
from tests.work import counted

WAIT_S = 60.0


@pytest.fixture
def other(store: Store, tmp_path: Path, warehouse: Path) -> Iterator[HmsBridge]:
    """Another process on the store, where a store has room for one; else another bridge, which has its own memory."""
    with ExitStack() as stack:
        theirs = store
        if store.name != "sqlite":
            theirs = open_store(store_url(tmp_path))
            stack.callback(theirs.close)
        yield stack.enter_context(HmsBridge(Catalog(theirs, str(warehouse))))


def request(name: str, seqid: int = 1, /, **arguments: Any) -> bytes:
    return codec.encode_call(name, seqid, METHODS[name].args(**arguments))


GET = request("get_table", 1, dbname="default", tbl_name="t")


def received(connection: socket.socket, replies: int) -> list[tuple[codec.Header, bytes]]:
    """So many whole replies, each with its header and its struct."""
    data, all_replies = b"", []
    while len(all_replies) < replies:
        try:
            header = codec.read_header(data, 0)
            end = codec.end_of_struct(data, header.body) if header is not None else 0
        except codec.TruncatedError:
            header = None
        if header is None:
            chunk = connection.recv(1 << 20)
            assert chunk, "the server closed the connection"
            data += chunk
            continue
        all_replies.append((header, data[header.body : end]))
        data = data[end:]
    assert data == b""
    return all_replies


@pytest.fixture
def plain(hms: HmsBridge) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", hms.port), timeout=WAIT_S) as connection:
        yield connection


def test_the_store_is_not_read_again_as_long_as_nothing_changes(client: Client, store: Store) -> None:
    client.create_table(objects.table("t"))
    for _ in range(2):
        first = client.get_table("default", "t"), client.get_database("default")
    with counted(store) as work:
        assert all((client.get_table("default", "t"), client.get_database("default")) == first for _ in range(5))
    assert work.keys == 0
    client.create_table(objects.table("u"))
    with counted(store) as work:
        assert client.get_table("default", "t") == first[0]
        assert client.get_table("default", "t") == first[0]
    assert work.keys <= 3, "what was read is compared at most once"


def alter(client: Client, change: Callable[[Any], object], name: str = "t") -> None:
    shown = client.get_table("default", name)
    change(shown)
    client.alter_table_with_environment_context("default", name, shown, EnvironmentContext({}))


CHANGES: Sequence[tuple[str, Callable[[Client], object]]] = [
    ("a parameter", lambda c: alter(c, lambda t: t.parameters.update(a="1"))),
    ("a column", lambda c: alter(c, lambda t: t.sd.cols.append(objects.columns("c date")[0]))),
    ("dropped", lambda c: c.drop_table("default", "t", True)),
    ("made again", lambda c: c.create_table(objects.table("t", cols="z int"))),
    ("renamed", lambda c: alter(c, lambda t: setattr(t, "tableName", "t2"))),
    ("named back", lambda c: alter(c, lambda t: setattr(t, "tableName", "t"), "t2")),
    ("its database", lambda c: c.alter_database("default", objects.database("default", description="other"))),
]


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except (NoSuchObjectException, MetaException) as error:
        return type(error)


def answers(client: Client) -> list[object]:
    return [outcome(lambda: client.get_table("default", "t")), outcome(lambda: client.get_database("default"))]


@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
def test_every_change_is_seen_at_once(client: Client, other: HmsBridge, here: bool) -> None:
    """Compared with a bridge that keeps nothing."""
    client.create_table(objects.table("t"))
    with ExitStack() as stack:
        theirs = connect_to(other, stack)
        unkept = connect_to(stack.enter_context(HmsBridge(other.services.catalog, kept_bytes_max=0)), stack)
        for what, change in CHANGES:
            before = answers(unkept)
            for kept in (client, theirs):
                assert [answers(kept), answers(kept)] == [before, before], what
            change(client if here else theirs)
            after = answers(unkept)
            assert after != before, what
            for kept in (theirs, client):
                assert [answers(kept), answers(kept)] == [after, after], what


PARTITION_CHANGES: Sequence[tuple[str, Callable[[Client], object]]] = [
    ("added", lambda c: c.add_partition(objects.partition(["a", "3"], of="t"))),
    ("many added", lambda c: c.add_partitions([objects.partition(["a", str(n)], of="t") for n in range(10, 2_000)])),
    ("altered", lambda c: c.alter_partition("default", "t", altered(c.get_partition("default", "t", ["a", "1"])))),
    ("dropped", lambda c: c.drop_partition("default", "t", ["a", "2"], True)),
    ("one that was looked up dropped", lambda c: c.drop_partition("default", "t", ["a", "1"], True)),
    ("made again", lambda c: c.append_partition("default", "t", ["a", "1"])),
    ("the table renamed", lambda c: alter(c, lambda t: setattr(t, "tableName", "t2"))),
]


def altered(one: Partition) -> Partition:
    one.parameters["altered"] = "1"
    return one


def partitions(client: Client) -> list[object]:
    calls: list[Callable[[], object]] = [
        lambda: client.get_partitions_by_filter("default", "t", "p = 'a' and q < 5", -1),
        lambda: client.get_partitions_by_filter("default", "t", "q > 1990", -1),
        lambda: client.get_partition("default", "t", ["a", "1"]),
        lambda: client.get_partition_by_name("default", "t", "p=a/q=1"),
    ]
    return [outcome(call) for call in calls]


@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
def test_every_change_of_partitions_is_seen_at_once(client: Client, other: HmsBridge, here: bool) -> None:
    client.create_table(objects.table("t", keys="p string, q int"))
    client.add_partitions([objects.partition(["a", str(number)], of="t") for number in range(3)])
    with ExitStack() as stack:
        theirs = connect_to(other, stack)
        unkept = connect_to(stack.enter_context(HmsBridge(other.services.catalog, kept_bytes_max=0)), stack)
        for what, change in PARTITION_CHANGES:
            before = partitions(unkept)
            for kept in (client, theirs):
                assert [partitions(kept), partitions(kept), partitions(kept)] == [before] * 3, what
            change(client if here else theirs)
            after = partitions(unkept)
            assert after != before, what
            for kept in (theirs, client):
                assert [partitions(kept), partitions(kept)] == [after, after], what


def test_partitions_are_answered_from_memory(client: Client, store: Store) -> None:
    client.create_table(objects.table("t", keys="p string, q int"))
    client.add_partitions([objects.partition(["a", str(number)], of="t") for number in range(3)])
    for _ in range(4):
        first = partitions(client)
    with counted(store) as work:
        assert partitions(client) == first
    assert work.keys == 0


def connect_to(bridge: HmsBridge, stack: ExitStack) -> Client:
    transport = TBufferedTransport(TSocket("127.0.0.1", bridge.port))
    transport.open()
    stack.callback(transport.close)
    return Client(TBinaryProtocolAccelerated(transport, fallback=False))


def test_no_answer_is_older_than_what_was_acknowledged_before_it_was_asked_for(
    connect: Connect, other: HmsBridge
) -> None:
    """Strict serializability of one object: a reader sees at least what every writer had acknowledged before."""
    connect().create_table(objects.table("t", parameters={"n": "0"}))
    acknowledged, wrong, stop = [0], list[str](), threading.Event()

    def write(client: Client, numbers: range) -> None:
        try:
            for number in numbers:
                alter(client, lambda table, n=str(number): table.parameters.update(n=n))  # type: ignore[misc]
                acknowledged[0] = number
        finally:
            stop.set()

    def read(client: Client) -> None:
        newest = 0
        while not stop.is_set():
            least = max(acknowledged[0], newest)
            newest = int(client.get_table("default", "t").parameters["n"])
            if newest < least:
                wrong.append(f"{newest} was answered after {least}")
                return

    with ExitStack() as stack:
        readers = [connect(), connect(), connect_to(other, stack), connect_to(other, stack)]
        writer = connect_to(other, stack)
        threads = [threading.Thread(target=read, args=(client,)) for client in readers]
        threads.append(threading.Thread(target=write, args=(writer, range(1, 150))))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert acknowledged == [149]


def test_replies_have_the_number_of_their_request_and_the_order_of_all(client: Client, plain: socket.socket) -> None:
    client.create_table(objects.table("t"))
    numbers = [7, -1, 2**31 - 1, 0]
    requests = [request("get_table", number, dbname="default", tbl_name="t") for number in numbers]
    for one in requests:  # alone, each in one piece
        plain.sendall(one)
        assert len(received(plain, 1)) == 1
    missing = request("get_table", 99, dbname="default", tbl_name="none")
    plain.sendall(b"".join([*requests, missing, *requests]))
    replies = received(plain, 9)
    assert [header.seqid for header, _ in replies] == [*numbers, 99, *numbers]
    assert len({body for header, body in replies if header.seqid != 99}) == 1


def test_a_request_may_come_in_any_pieces(client: Client, plain: socket.socket) -> None:
    client.create_table(objects.table("t"))
    plain.sendall(GET)
    [(_, whole)] = received(plain, 1)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for cut in range(1, len(GET)):
        plain.sendall(GET[:cut])
        plain.sendall(GET[cut:] + GET[:cut])
        plain.sendall(GET[cut:])
        assert [body for _, body in received(plain, 2)] == [whole] * 2


def test_a_one_way_call_gets_no_reply(client: Client, plain: socket.socket) -> None:
    client.create_table(objects.table("t"))
    plain.sendall(GET)
    received(plain, 1)
    plain.sendall(GET[:3] + bytes([codec.ONEWAY]) + GET[4:])
    plain.sendall(request("getName", 5))
    assert [header.name for header, _ in received(plain, 1)] == ["getName"]


def test_a_client_that_does_not_read_gets_all_of_its_replies_later(client: Client, hms: HmsBridge) -> None:
    client.create_table(objects.table("t", parameters={"long": "x" * 100_000}))
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.settimeout(WAIT_S)
        slow.connect(("127.0.0.1", hms.port))
        for number in range(200):
            slow.sendall(request("get_table", number, dbname="default", tbl_name="t"))
        assert client.get_table("default", "t").parameters["long"][:3] == "xxx", "nobody else waits"
        assert [header.seqid for header, _ in received(slow, 200)] == list(range(200))


def test_lake_tables_are_shown_as_they_are_now(catalog: Catalog, store: Store) -> None:
    facet = SparkFacet(Snapshots(store, 1 << 20))
    with ExitStack() as stack:
        kept, unkept = (
            connect_to(stack.enter_context(HmsBridge(catalog, facet, kept_bytes_max=size)), stack)
            for size in (1 << 20, 0)
        )
        kept.create_table(objects.table("t", parameters={"lakemark.type": "lake"}, cols="a int"))
        for column in ("b", "c"):
            shown = kept.get_table("default", "t")
            with counted(store) as work:
                assert kept.get_table("default", "t") == shown == unkept.get_table("default", "t")
            assert work.keys > 0, "the one that keeps nothing has read"
            shown.sd.cols.append(objects.columns(f"{column} int")[0])
            unkept.alter_table("default", "t", shown)
            assert kept.get_table("default", "t") == unkept.get_table("default", "t") != shown
        for _ in range(3):
            kept.get_table("default", "t")
        with counted(store) as work:
            kept.get_table("default", "t")
        assert work.keys == 0
        unkept.drop_table("default", "t", False)
        with pytest.raises(NoSuchObjectException):
            kept.get_table("default", "t")


def test_answers_count_against_the_quota_and_in_the_metrics(catalog: Catalog) -> None:
    def observed() -> int:
        return sum(sum(one.counts) for one in REQUESTS.buckets() if one.labels == ("hms", "get_table"))

    admission = Admission(Tenants(catalog.quotas.of), InflightBytes(1 << 30), WAIT_S)
    with HmsBridge(catalog, admission=admission) as bridge, ExitStack() as stack:
        client = connect_to(bridge, stack)
        client.create_table(objects.table("t"))
        before = observed()
        for _ in range(10):
            client.get_table("default", "t")
        assert observed() - before == 10
        catalog.quotas.set("hive", Quota(requests_per_second=0, request_burst=3))
        outcomes = []
        for _ in range(6):
            try:
                client.get_table("default", "t")
                outcomes.append("answered")
            except Exception as error:
                outcomes.append(type(error).__name__)
        assert outcomes == ["answered"] * 3 + ["TApplicationException"] * 3


def test_memory_is_bounded(catalog: Catalog) -> None:
    with HmsBridge(catalog, kept_bytes_max=20_000) as bridge, ExitStack() as stack:
        client = connect_to(bridge, stack)
        for number in range(20):
            client.create_table(objects.table(f"t{number}"))
        kept = bridge._kept
        assert kept is not None
        for number in range(20):
            assert client.get_table("default", f"t{number}").tableName == f"t{number}"
            assert 0 < kept.size_bytes <= 20_000
        client.create_table(objects.table("large", parameters={"long": "x" * 90_000}))
        client.get_table("default", "large")
        assert kept.size_bytes <= 20_000
