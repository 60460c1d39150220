"""The socket server of the bridge, with well-behaved clients, with others, and with many of both."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from hmsclient.genthrift.hive_metastore import ttypes as theirs
from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated
from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark.errors import LakemarkError, TableNotFound
from lakemark_hms.handlers.connection import Connection
from lakemark_hms.services import Services
from lakemark_hms.wire import codec, splice
from lakemark_hms.wire.dispatch import Call, Dispatcher
from lakemark_hms.wire.limits import ServerSettings
from lakemark_hms.wire.server import HmsServer
from lakemark_thrift import services, ttypes
from lakemark_thrift.base import DeclaredError
from lakemark_thrift.services import METHODS, Method
from tests.unit.hms.wire import samples

SECONDS = 20


class Toy:
    """Handlers over a dictionary of serialized tables. ``gate`` blocks ``get_config_value``."""

    def __init__(self) -> None:
        self.tables: dict[str, bytes] = {}
        self.partitions: list[bytes] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()

    def get_table(self, call: Call) -> bytes:
        name = call.read(services.get_table_args).tbl_name or ""
        if name not in self.tables:
            raise TableNotFound(f"there is no table {name}")
        return splice.reply_struct(call.name, call.seqid, self.tables[name])

    def create_table(self, call: Call) -> None:
        (table,) = call.cut(ttypes.Table, 1)
        if table.value.tableName in self.tables:
            raise ttypes.AlreadyExistsException(f"{table.value.tableName} exists")
        self.tables[table.value.tableName or ""] = table.raw

    def add_partitions(self, call: Call) -> int:
        found = call.cut(ttypes.Partition, 1)
        self.partitions += [partition.raw for partition in found]
        return len(found)

    def get_partitions(self, call: Call) -> bytes:
        return splice.reply_struct_list(call.name, call.seqid, self.partitions)

    def get_config_value(self, call: Call) -> str:
        self.entered.release()
        assert self.gate.wait(SECONDS)
        return str(call.args.defaultValue)

    def fail(self, _call: Call) -> None:
        raise RuntimeError("out of luck")

    def handlers(self) -> dict[str, Callable[[Call], object]]:
        return {
            **Connection(cast(Services, None)).handlers(),
            "getName": lambda _call: "toy",
            "get_table": self.get_table,
            "create_table": self.create_table,
            "add_partitions": self.add_partitions,
            "get_partitions": self.get_partitions,
            "get_config_value": self.get_config_value,
            "getMetaConf": self.fail,
            "get_all_tables": lambda _call: sorted(self.tables),
            "get_role_names": lambda call: [str(call.session.user), *call.session.groups],
            "get_database": lambda _call: None,
            "get_all_databases": lambda _call: [7],
        }


def to_declared(method: Method, error: Exception) -> DeclaredError | None:
    if isinstance(error, TableNotFound) and ttypes.NoSuchObjectException in method.exceptions:
        return ttypes.NoSuchObjectException(str(error))
    return ttypes.MetaException(str(error)) if isinstance(error, LakemarkError) else None


@contextmanager
def serving(**limits: Any) -> Iterator[SimpleNamespace]:
    toy = Toy()
    server = HmsServer(Dispatcher(toy.handlers(), to_declared), settings=ServerSettings(**limits))
    with server:
        try:
            yield SimpleNamespace(toy=toy, server=server, port=server.port)
        finally:
            toy.gate.set()


@pytest.fixture
def running() -> Iterator[SimpleNamespace]:
    with serving() as served:
        yield served


@contextmanager
def hive(port: int, protocol: type = TBinaryProtocolAccelerated) -> Iterator[Any]:
    transport = TBufferedTransport(TSocket("127.0.0.1", port))
    transport.open()
    try:
        yield ThriftHiveMetastore.Client(protocol(transport))
    finally:
        transport.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def receive(sock: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    found = []
    while chunk := sock.recv(65536):
        found.append(chunk)
    return b"".join(found)


def read_reply(sock: socket.socket, into: bytearray | None = None) -> tuple[codec.Header, bytes]:
    """The next reply: its header, and its struct."""
    data = into if into is not None else bytearray()
    while True:
        header = codec.read_header(bytes(data))
        if header is not None:
            try:
                end = codec.end_of_struct(bytes(data), header.body)
            except codec.TruncatedError:
                pass
            else:
                body = bytes(data[header.body : end])
                del data[:end]
                return header, body
        chunk = sock.recv(1 << 20)
        assert chunk, "the server closed the connection"
        data += chunk


def application_error(body: bytes) -> tuple[int, str]:
    found = codec.decode_struct(ApplicationError, body)
    return found.type or 0, found.message or ""


class ApplicationError(DeclaredError):
    thrift_spec = (None, (1, 11, "message", "UTF8", None), (2, 8, "type", None, None))
    type: int | None = None


def ping(seqid: int = 1) -> bytes:
    return codec.encode_call("getName", seqid, services.getName_args())


def assert_serves(port: int) -> None:
    with connect(port) as sock:
        sock.sendall(ping(77))
        header, _ = read_reply(sock)
        assert (header.name, header.kind, header.seqid) == ("getName", codec.REPLY, 77)


# ---- clients that behave


@pytest.mark.parametrize("protocol", [TBinaryProtocol, TBinaryProtocolAccelerated])
def test_hives_own_bindings_create_and_read_a_table(running: SimpleNamespace, protocol: type) -> None:
    with hive(running.port, protocol) as client:
        assert client.getName() == "toy"
        assert client.set_ugi("ada", ["staff", "hive"]) == ["staff", "hive", "ada"]
        assert client.get_role_names() == ["ada", "staff", "hive"]
        table = theirs.Table(tableName="t", dbName="d", sd=theirs.StorageDescriptor(location="file:/t"))
        assert client.create_table(table) is None
        assert client.get_table("d", "t").sd.location == "file:/t"
        assert client.get_all_tables("d") == ["t"]


def test_errors_arrive_as_what_the_method_declares(running: SimpleNamespace) -> None:
    with hive(running.port) as client:
        with pytest.raises(theirs.NoSuchObjectException) as missing:  # mapped
            client.get_table("d", "nowhere")
        assert missing.value.message == "there is no table nowhere"
        client.create_table(theirs.Table(tableName="t"))
        with pytest.raises(theirs.AlreadyExistsException):  # raised as such
            client.create_table(theirs.Table(tableName="t"))


def test_other_errors_arrive_as_application_errors(running: SimpleNamespace) -> None:
    cases: list[tuple[Callable[[Any], object], int, str]] = [
        (lambda client: client.getMetaConf("x"), TApplicationException.INTERNAL_ERROR, "out of luck"),
        (lambda client: client.get_database("d"), TApplicationException.MISSING_RESULT, "get_database"),
        (lambda client: client.get_all_databases(), TApplicationException.INTERNAL_ERROR, "cannot be encoded"),
        (lambda client: client.get_indexes("d", "t", 1), TApplicationException.UNKNOWN_METHOD, "get_indexes"),
    ]
    with hive(running.port) as client:
        for call, number, word in cases:
            with pytest.raises(TApplicationException, match=word) as error:
                call(client)
            assert error.value.type == number
        assert client.getName() == "toy"  # the connection is still good


def test_a_method_that_nobody_ever_heard_of(running: SimpleNamespace) -> None:
    with connect(running.port) as sock:
        args = codec.encode_struct(services.create_table_args(samples.table()))
        sock.sendall(codec.message_head("get_flying_carpets", codec.CALL, 5) + args + ping(6))
        buffer = bytearray()
        header, body = read_reply(sock, buffer)
        assert (header.kind, header.seqid) == (codec.EXCEPTION, 5)
        assert application_error(body) == (
            codec.UNKNOWN_METHOD,
            "the method get_flying_carpets is not served here",
        )
        assert read_reply(sock, buffer)[0].seqid == 6


def test_one_way_calls_get_no_reply(running: SimpleNamespace) -> None:
    with connect(running.port) as sock:
        for kind in (codec.ONEWAY, codec.CALL):
            sock.sendall(codec.encode_call("shutdown", 1, services.shutdown_args(), kind) + ping(2))
            assert read_reply(sock)[0].seqid == 2
        sock.sendall(codec.encode_call("unheard_of", 1, services.shutdown_args(), codec.ONEWAY) + ping(3))
        assert read_reply(sock)[0].seqid == 3
    assert_serves(running.port)


def test_unknown_fields_survive(running: SimpleNamespace) -> None:
    raw = codec.encode_struct(samples.table("t"))[:-1] + samples.join({901: (11, splice.string_value("of Hive 9"))})
    with connect(running.port) as sock:
        body = b"".join(splice.struct(splice.struct_field(1, raw)))
        sock.sendall(codec.message_head("create_table", codec.CALL, 1) + body)
        assert read_reply(sock) == (codec.Header("create_table", codec.REPLY, 1, 24), b"\0")
        sock.sendall(codec.encode_call("get_table", 2, services.get_table_args("d", "t")))
        assert read_reply(sock)[1] == b"".join(splice.struct(splice.struct_field(0, raw)))


def test_headers_without_a_version_are_understood(running: SimpleNamespace) -> None:
    with connect(running.port) as sock:
        sock.sendall(b"\0\0\0\7getName\1\0\0\0\x09\0")
        assert read_reply(sock)[0] == ("getName", codec.REPLY, 9, 19)


def test_pipelined_calls_are_answered_in_order(running: SimpleNamespace) -> None:
    stream = b"".join(ping(number) for number in range(2000))
    with connect(running.port) as sock, ThreadPoolExecutor(1) as sender:
        sent = sender.submit(sock.sendall, stream)
        buffer = bytearray()
        for number in range(2000):
            assert read_reply(sock, buffer)[0].seqid == number
        sent.result()


def test_reading_goes_on_after_more_was_sent_than_is_read_ahead() -> None:
    with serving(read_ahead_bytes_max=1000) as served, connect(served.port) as sock:
        sock.sendall(codec.encode_call("get_config_value", 0, services.get_config_value_args("a", "b")))
        assert served.toy.entered.acquire(timeout=SECONDS)
        sock.sendall(b"".join(ping(number) for number in range(1, 200)))
        for _ in range(2):  # by then the loop has read them, and has stopped reading
            assert_serves(served.port)
        served.toy.gate.set()
        buffer = bytearray()
        for number in range(200):
            assert read_reply(sock, buffer)[0].seqid == number
        sock.sendall(ping(9))
        assert read_reply(sock)[0].seqid == 9


def test_a_message_in_small_pieces(running: SimpleNamespace) -> None:
    args = services.add_partitions_args([samples.partition(day) for day in range(1, 20)])
    message = codec.encode_call("add_partitions", 4, args)
    with connect(running.port) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(message), 7):
            sock.sendall(message[at : at + 7])
        assert read_reply(sock)[1] == codec.encode_struct(services.add_partitions_result(19))


def test_a_client_that_sends_no_more_still_gets_its_answers(running: SimpleNamespace) -> None:
    with connect(running.port) as sock:
        sock.sendall(ping(1) + ping(2) + ping(3)[:5])
        sock.shutdown(socket.SHUT_WR)
        data = receive(sock)
    assert data == codec.encode_reply(METHODS["getName"], 1, "toy") + codec.encode_reply(METHODS["getName"], 2, "toy")


# ---- clients that do not


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "TLS"),
        (b"\x00\x00\x00\x19\x80\x01\x00\x01\x00\x00\x00\x07getName", "frames"),
        (b"\xff" * 100, "starts with"),
        (b"\x80\x01\x00\x01\x7f\xff\xff\xffx", "2147483647"),
    ],
)
def test_garbage_closes_the_connection_and_is_logged_once(
    running: SimpleNamespace, caplog: pytest.LogCaptureFixture, data: bytes, word: str
) -> None:
    with caplog.at_level(logging.WARNING), connect(running.port) as sock:
        peer = "{}:{}".format(*sock.getsockname())
        sock.sendall(data)
        with suppress(ConnectionResetError):
            assert receive(sock) == b""
    messages = [record.getMessage() for record in caplog.records if peer in record.getMessage()]
    assert len(messages) == 1
    assert word in messages[0]
    assert_serves(running.port)


@pytest.mark.parametrize(
    "body",
    [
        b"\x0b\x00\x01\x7f\xff\xff\xff",  # a string of 2 GB
        b"\x0f\x00\x01\x0c\x7f\xff\xff\xff",  # a list of two thousand million
        b"\x0b\x00\x01\xff\xff\xff\xff",
        b"\x0c\x00\x01" * 10_000,
        b"\x77\x00\x01",
    ],
)
def test_a_malformed_call_is_told_so_and_the_connection_closed(running: SimpleNamespace, body: bytes) -> None:
    with connect(running.port) as sock:
        sock.sendall(codec.message_head("get_table", codec.CALL, 11) + body)
        buffer = bytearray()
        header, struct = read_reply(sock, buffer)
        assert (header.name, header.kind, header.seqid) == ("get_table", codec.EXCEPTION, 11)
        assert application_error(struct)[0] == codec.PROTOCOL_ERROR
        sock.sendall(b"more" * 1000)  # is thrown away
        assert receive(sock) == b""
    assert_serves(running.port)


def test_a_reply_as_request_is_refused(running: SimpleNamespace) -> None:
    with connect(running.port) as sock:
        sock.sendall(codec.encode_reply(METHODS["getName"], 3, "x"))
        assert application_error(read_reply(sock)[1])[0] == codec.INVALID_MESSAGE_TYPE
        assert receive(sock) == b""


def test_messages_above_the_limit_are_refused() -> None:
    with serving(message_bytes_max=10_000) as served, connect(served.port) as sock:
        sock.sendall(ping(1))
        read_reply(sock)
        sock.sendall(codec.encode_call("getMetaConf", 2, services.getMetaConf_args("k" * 20_000)))
        number, text = application_error(read_reply(sock)[1])
        assert (number, "10000" in text) == (codec.PROTOCOL_ERROR, True)


def test_half_a_message_does_not_hold_the_connection_for_ever() -> None:
    with serving(message_seconds_max=0.3) as served, connect(served.port) as idle, connect(served.port) as half:
        idle.sendall(ping(1))
        read_reply(idle)
        half.sendall(ping()[:-3])
        assert receive(half) == b""
        idle.sendall(ping(2))  # between messages there is no hurry
        assert read_reply(idle)[0].seqid == 2


def test_unfinished_requests_are_limited_together() -> None:
    half = codec.message_head("getMetaConf", codec.CALL, 1) + b"\x0b\x00\x01\x00\x20\x00\x00" + b"x" * 900_000
    with serving(received_bytes_max=2_000_000, read_ahead_bytes_max=100_000) as served:
        socks = [connect(served.port) for _ in range(4)]
        for sock in socks:
            sock.sendall(ping())
            read_reply(sock)
        assert served.server.connections == 4
        for sock in socks:
            sock.sendall(half)
        patience = threading.Event()
        for _ in range(200):
            if served.server.connections <= 2:
                break
            patience.wait(0.05)
        assert 0 < served.server.connections <= 2
        for sock in socks:
            sock.close()
        assert_serves(served.port)


def test_a_client_that_goes_away_during_its_call(running: SimpleNamespace) -> None:
    with connect(running.port) as sock:
        sock.sendall(codec.encode_call("get_config_value", 1, services.get_config_value_args("a", "b")))
        assert running.toy.entered.acquire(timeout=SECONDS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closes with a reset
    running.toy.gate.set()
    assert_serves(running.port)


# ---- many of them


def test_500_idle_connections_and_work() -> None:
    with serving(workers=4) as served:
        idle = [connect(served.port) for _ in range(500)]
        for sock in idle:
            sock.sendall(ping())
        for sock in idle:
            read_reply(sock)
        served.toy.tables["t"] = codec.encode_struct(ttypes.Table("t"))

        def work(_: int) -> int:
            with hive(served.port) as client:
                return sum(client.get_table("d", "t").tableName == "t" for _ in range(50))

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(work, range(16))) == 800
        assert served.server.connections >= 500
        for sock in idle:
            sock.sendall(ping(5))
        for sock in idle:
            assert read_reply(sock)[0].seqid == 5
            sock.close()


def test_connections_above_the_limit_are_closed() -> None:
    with serving(connections_max=3) as served:
        socks = [connect(served.port) for _ in range(3)]
        for sock in socks:
            sock.sendall(ping())
            read_reply(sock)
        with connect(served.port) as late:
            assert receive(late) == b""
        socks.pop().close()
        for sock in socks:
            sock.sendall(ping(2))
            assert read_reply(sock)[0].seqid == 2
            sock.close()


def test_slow_calls_of_one_connection_hold_up_no_other() -> None:
    with serving(workers=2) as served, connect(served.port) as slow:
        slow.sendall(codec.encode_call("get_config_value", 1, services.get_config_value_args("a", "b")) + ping(2))
        assert served.toy.entered.acquire(timeout=SECONDS)
        assert_serves(served.port)
        served.toy.gate.set()
        buffer = bytearray()
        assert [read_reply(slow, buffer)[0].seqid for _ in range(2)] == [1, 2]


def test_a_slow_reader_gets_all_of_a_large_reply_and_holds_up_nobody(running: SimpleNamespace) -> None:
    stored = codec.encode_struct(samples.partition())
    running.toy.partitions = [stored] * 20_000
    request = codec.encode_call("get_partitions", 1, services.get_partitions_args("d", "t"))
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.settimeout(SECONDS)
        sock.connect(("127.0.0.1", running.port))
        sock.sendall(request * 3)
        for _ in range(3):
            assert_serves(running.port)
        expected = splice.reply_struct_list("get_partitions", 1, running.toy.partitions)
        left = 3 * len(expected)
        first = b""
        while left:
            chunk = sock.recv(1 << 20)
            first += chunk[: len(expected) - len(first)]
            left -= len(chunk)
        assert first == expected


def test_a_client_that_never_reads_is_dropped() -> None:
    with serving(write_stall_seconds_max=0.3) as served, socket.socket() as sock:
        served.toy.partitions = [codec.encode_struct(samples.partition())] * 50_000
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.settimeout(SECONDS)
        sock.connect(("127.0.0.1", served.port))
        sock.sendall(codec.encode_call("get_partitions", 1, services.get_partitions_args("d", "t")))
        sock.recv(1)
        patience = threading.Event()
        for _ in range(200):
            if served.server.connections == 0:
                break
            patience.wait(0.05)
        assert served.server.connections == 0


# ---- the end


def test_stop_lets_running_calls_end() -> None:
    with serving() as served, connect(served.port) as busy, connect(served.port) as idle:
        idle.sendall(ping())
        read_reply(idle)
        busy.sendall(codec.encode_call("get_config_value", 1, services.get_config_value_args("a", "kept")))
        assert served.toy.entered.acquire(timeout=SECONDS)
        stopper = threading.Thread(target=served.server.stop)
        stopper.start()
        assert receive(idle) == b""
        with pytest.raises(OSError, match=r"refused|reset"):
            connect(served.port)
        served.toy.gate.set()
        assert receive(busy) == codec.encode_reply(METHODS["get_config_value"], 1, "kept")
        stopper.join(SECONDS)
        assert not stopper.is_alive()
        assert served.server.connections == 0


def test_stop_does_not_wait_longer_than_it_is_told() -> None:
    with serving() as served, connect(served.port) as busy:
        busy.sendall(codec.encode_call("get_config_value", 1, services.get_config_value_args("a", "b")))
        assert served.toy.entered.acquire(timeout=SECONDS)
        served.server.stop(deadline_seconds=0.1)
        assert receive(busy) == b""


def test_servers_may_share_a_port() -> None:
    """As several processes on one store do: each gets some of the connections, and those who stay get all."""
    with serving(shared_port=True) as first:
        second = HmsServer(
            Dispatcher(Toy().handlers(), to_declared), port=first.port, settings=ServerSettings(shared_port=True)
        )
        with second, ExitStack() as stack:
            for _ in range(64):
                client = stack.enter_context(hive(first.port))
                assert client.getName() == "toy"
            assert first.server.connections + second.connections == 64
            assert min(first.server.connections, second.connections) > 0
        for _ in range(16):
            with hive(first.port) as client:
                client.getName()


def test_a_port_that_is_not_shared_is_taken() -> None:
    with serving() as first, pytest.raises(OSError, match="in use"):
        HmsServer(Dispatcher(Toy().handlers(), to_declared), port=first.port, settings=ServerSettings(shared_port=True))


def test_a_server_that_never_started_can_be_stopped() -> None:
    HmsServer(Dispatcher({})).stop()


def test_handlers_of_unknown_methods_are_a_defect() -> None:
    with pytest.raises(ValueError, match="get_flying_carpets"):
        Dispatcher({"get_flying_carpets": lambda _call: None})
