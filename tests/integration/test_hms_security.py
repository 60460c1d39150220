"""TLS and SASL PLAIN on the Metastore port, with Thrift's own client, openssl's library, and hostile peers."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TSSLSocket import TSSLSocket
from thrift.transport.TTransport import TBufferedTransport, TSaslClientTransport, TTransportException

from lakemark_core.errors import InvalidArgument
from lakemark_hms.wire import codec
from lakemark_hms.wire.dispatch import Dispatcher
from lakemark_hms.wire.layers import Certificates
from lakemark_hms.wire.limits import ServerSettings
from lakemark_hms.wire.sasl import BAD, COMPLETE, OK, START, framed
from lakemark_hms.wire.security import Security
from lakemark_hms.wire.security import plain as mechanisms
from lakemark_hms.wire.server import HmsServer
from lakemark_server.access import passwords
from lakemark_server.access.passwords import user_line
from lakemark_server.process import Service
from tests.certificates import Authority, Certificate
from tests.integration.grpc_server import connected, running_service
from tests.integration.hms_objects import table
from tests.tls_client import TlsClient

SECONDS = 20
SECRET = "open sesame: $ä"  # noqa: S105
Connect = Callable[..., Any]
Check = Callable[[str, str], bool]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    return authority.signed("service")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users"
    path.write_text(f"# who may\n\n{user_line('ann', SECRET)}\n{user_line('bob', 'builder')}\n")
    path.chmod(0o600)
    return path


@contextmanager
def serving(directory: Path, **settings: Any) -> Iterator[Service]:
    with running_service(directory, hms_enabled=True, hms_port=0, **settings) as running:
        yield running


def tls(own: Certificate) -> dict[str, str]:
    return {"hms_tls_certificate": str(own.certificate), "hms_tls_key": str(own.key)}


def plain(users: Path) -> dict[str, str]:
    return {"hms_auth": "plain", "users_file": str(users)}


def port_of(service: Service) -> int:
    return int(service.hms_uri.rpartition(":")[2])


@pytest.fixture
def connect() -> Iterator[Connect]:
    """A real client: Thrift's socket with or without TLS, its buffer or its SASL."""
    with ExitStack() as stack:

        def opened(service: Service, user: str = "", password: str = "", ca: Path | None = None, **tls: Any) -> Any:
            port = port_of(service)
            sock = TSocket("127.0.0.1", port)
            if ca is not None:
                sock = TSSLSocket("127.0.0.1", port, cert_reqs=ssl.CERT_REQUIRED, ca_certs=str(ca), **tls)
            transport: Any = TBufferedTransport(sock)
            if user:
                transport = TSaslClientTransport(
                    sock, "127.0.0.1", "hive", mechanism="PLAIN", username=user, password=password
                )
            stack.callback(transport.close)
            transport.open()
            return ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport, fallback=False))

        yield opened


def use(client: Any, name: str = "t") -> None:
    client.create_table(table(name))
    assert client.get_table("default", name).tableName == name
    assert name in client.get_all_tables("default")
    with pytest.raises(ttypes.NoSuchObjectException):
        client.get_table("default", "nothing")


@contextmanager
def bare(own: Certificate | None = None, check: Check | None = None, **limits: Any) -> Iterator[HmsServer]:
    """The socket server alone, with TLS, a check of passwords, or both."""
    certificates = None if own is None else Certificates(str(own.certificate), str(own.key))
    security = Security(certificates, None if check is None else mechanisms(check))
    with HmsServer(Dispatcher({}), settings=ServerSettings(**limits), security=security) as server:
        yield server


@contextmanager
def encrypted(server: HmsServer, authority: Authority) -> Iterator[tuple[TlsClient, socket.socket]]:
    """A connection with TLS, and its socket."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as sock:
        yield TlsClient(authority, sock.sendall, lambda: sock.recv(65536)), sock


def until(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


class Gate:
    """A check that nobody passes, and that lasts until ``open`` is set."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Semaphore(0), threading.Event()
        self.asked: list[str] = []

    def __call__(self, user: str, _password: str) -> bool:
        self.asked.append(user)
        self.entered.release()
        self.open.wait(SECONDS)
        return False


def knocking(port: int, user: str, password: str = "guess") -> socket.socket:  # noqa: S107
    """A client that has said who it is, and waits."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    sock.sendall(framed(START, b"PLAIN") + framed(COMPLETE, f"\0{user}\0{password}".encode()))
    return sock


def raw(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(service)), timeout=SECONDS)


def all_of(sock: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    pieces = []
    while piece := sock.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def test_tls(tmp_path: Path, own: Certificate, authority: Authority, connect: Connect) -> None:
    with serving(tmp_path, **tls(own)) as service:
        use(connect(service, ca=authority.ca))
        large = table("large", cols=", ".join(f"c{n} string" for n in range(20_000)))
        client = connect(service, ca=authority.ca)
        client.create_table(large)
        assert len(client.get_table("default", "large").sd.cols) == 20_000


def test_tls_and_passwords(
    tmp_path: Path, own: Certificate, authority: Authority, users: Path, connect: Connect
) -> None:
    with serving(tmp_path, **tls(own), **plain(users)) as service:
        use(connect(service, "ann", SECRET, ca=authority.ca))
        with pytest.raises(TTransportException, match="password is wrong"):
            connect(service, "ann", "guess", ca=authority.ca)


def test_passwords(
    tmp_path: Path, users: Path, connect: Connect, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, log_level="info", **plain(users)) as service, caplog.at_level(logging.DEBUG):
        use(connect(service, "ann", SECRET))
        use(connect(service, "bob", "builder"), "u")
        for user, password in (("ann", "builder"), ("carl", SECRET), ("ann", SECRET + " "), ("", "x\0y")):
            with pytest.raises(TTransportException, match=r"Bad SASL|password"):
                connect(service, user or "ann\0", password)
        client = connect(service, "ann", SECRET)
        large = table("large", cols=", ".join(f"c{n} string" for n in range(20_000)))
        client.create_table(large)
        for _ in range(3):
            assert len(client.get_table("default", "large").sd.cols) == 20_000
    said = caplog.text + "".join(capsys.readouterr())
    assert "user 'ann' logged in from 127.0.0.1" in said
    assert "refused the login of 127.0.0.1" in said
    assert SECRET not in said
    assert "builder" not in said


def test_who_has_logged_in_stays_who_they_are(tmp_path: Path, users: Path, connect: Connect) -> None:
    with serving(tmp_path, **plain(users)) as service:
        client = connect(service, "bob", "builder")
        client.set_ugi("ann", ["admins"])
        client.create_table(table("t"))
        with connected(service) as reader:
            (created,) = reader.events(kinds=["table_created"], follow=False)
        assert "bob" in created.by


def test_clients_without_what_is_asked_for_are_told(
    tmp_path: Path, own: Certificate, users: Path, connect: Connect
) -> None:
    call = codec.message_head("getName", codec.CALL, 7) + b"\0"
    with serving(tmp_path / "sasl", **plain(users)) as service:
        sock = raw(service)
        for piece in (call[:9], call[9:]):
            sock.sendall(piece)
        answer = all_of(sock)
        header = codec.read_header(answer)
        assert header is not None
        assert (header.kind, header.seqid) == (codec.EXCEPTION, 7)
        assert b"this port wants SASL" in answer
    with serving(tmp_path / "tls", **tls(own)) as service:
        sock = raw(service)
        sock.sendall(call)
        all_of(sock)  # an alert of TLS
        with pytest.raises((TTransportException, EOFError, OSError)):
            connect(service).getName()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (framed(START, b"GSSAPI"), b"there are: PLAIN"),
        (framed(START, b"PLAIN") * 2, b"not served"),
        (framed(OK, b"\0ann\0x"), b"begins with the name"),
        (framed(START, b"PLAIN") + framed(OK, b"ann x"), b"no response of PLAIN"),
        (framed(START, b"PLAIN") + framed(OK, b"\xff\0\xfe\0x"), b"no response of PLAIN"),
        (framed(START, b"PLAIN") + framed(OK, b"root\0ann\0x"), b"act for another"),
        (framed(START, b"PLAIN") + framed(OK, b"\0ann\0"), b"needs a user and a password"),
        (framed(START, b"PLAIN") + framed(OK, b"\0ann\0x") + b"more", b"too early"),
        (struct.pack("!BI", START, 1 << 30), b"wants SASL"),
        (b"GET / HTTP/1.1\r\n\r\n", b"wants SASL"),
    ],
)
def test_hostile_negotiations_end(tmp_path: Path, users: Path, connect: Connect, sent: bytes, reason: bytes) -> None:
    with serving(tmp_path, **plain(users)) as service:
        with raw(service) as sock:
            sock.sendall(sent)
            answer = all_of(sock)
            assert answer[0] == BAD
            assert reason in answer
        use(connect(service, "bob", "builder"))


def test_a_frame_that_is_too_large_ends_the_connection(tmp_path: Path, users: Path) -> None:
    with serving(tmp_path, **plain(users)) as service, raw(service) as sock:
        sock.sendall(framed(START, b"PLAIN") + framed(OK, b"\0bob\0builder"))
        assert sock.recv(100) == framed(COMPLETE, b"")
        sock.sendall(struct.pack("!I", (1 << 32) - 1) + b"x")
        assert all_of(sock) == b""


def test_messages_in_pieces_and_pieces_in_messages(tmp_path: Path, users: Path) -> None:
    """Frames need not be messages: the lengths may come apart, and a frame may have parts of two messages."""
    with serving(tmp_path, **plain(users)) as service, raw(service) as sock:
        sock.sendall(framed(START, b"PLAIN") + framed(COMPLETE, b"\0bob\0builder"))  # as Java's clients do
        assert sock.recv(100) == framed(COMPLETE, b"")
        calls = b"".join(codec.message_head("getName", codec.CALL, number) + b"\0" for number in range(5))
        cut = [calls[:3], calls[3:40], b"", calls[40:]]
        stream = b"".join(struct.pack("!I", len(piece)) + piece for piece in cut)
        for at in range(0, len(stream), 7):
            sock.sendall(stream[at : at + 7])
        received = b""
        for number in range(5):
            while len(received) < 4 or len(received) < 4 + struct.unpack_from("!I", received)[0]:
                received += sock.recv(65536)
            (size,) = struct.unpack_from("!I", received)
            header = codec.read_header(received[4 : 4 + size])
            assert header is not None
            assert header.seqid == number
            received = received[4 + size :]


def test_certificates_of_clients(tmp_path: Path, own: Certificate, authority: Authority, connect: Connect) -> None:
    known, stranger = authority.signed("known"), Authority(tmp_path / "other", "other").signed("stranger")
    with serving(tmp_path, **tls(own), hms_tls_client_ca=str(authority.ca)) as service:
        use(connect(service, ca=authority.ca, certfile=str(known.certificate), keyfile=str(known.key)))
        for files in ({}, {"certfile": str(stranger.certificate), "keyfile": str(stranger.key)}):
            with pytest.raises((TTransportException, OSError)):
                connect(service, ca=authority.ca, **files).getName()


def test_settings_that_cannot_be_are_refused(tmp_path: Path, own: Certificate, users: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("ann:plaintext\n")
    missing = str(tmp_path / "missing")
    for settings, reason in (
        ({"hms_auth": "plain"}, "go together"),
        ({"users_file": str(users)}, "go together"),
        ({"hms_auth": "plain", "users_file": str(broken)}, "line 1 of the file of users"),
        ({"hms_auth": "plain", "users_file": missing}, "cannot be read"),
        ({"hms_auth": "plain", "password_check": "nothing.there:check"}, "no package.module:function"),
        ({"hms_tls_certificate": missing}, "cannot be used"),
        ({"hms_tls_certificate": str(own.key), "hms_tls_key": str(own.key)}, "cannot be used"),
        ({"hms_tls_key": str(own.key)}, "need hms_tls_certificate"),
    ):
        with pytest.raises(InvalidArgument, match=reason), serving(tmp_path / reason.replace(" ", ""), **settings):
            pass


def only_dora(user: str, password: str) -> bool:
    """A check of somebody's own."""
    if user == "broken":
        raise RuntimeError("out of luck")
    return (user, password) == ("dora", "explorer")


def test_a_check_of_somebodys_own(tmp_path: Path, connect: Connect) -> None:
    named = f"{only_dora.__module__}:{only_dora.__name__}"
    with serving(tmp_path, hms_auth="plain", password_check=named) as service:
        use(connect(service, "dora", "explorer"))
        for user in ("dora", "broken"):
            with pytest.raises(TTransportException, match="password is wrong"):
                connect(service, user, "x")


def test_who_never_logs_in_is_closed(tmp_path: Path, users: Path, own: Certificate) -> None:
    """Nothing waits for ever in a handshake, however it was begun."""
    with serving(tmp_path, **tls(own), **plain(users)) as service:
        assert service.hms is not None
        server = service.hms._server
        server._settings = server._settings.__class__(message_seconds_max=0.3)
        silent, begun = raw(service), raw(service)
        begun.sendall(b"\x16\x03\x01")
        assert all_of(silent) == all_of(begun) == b""


def test_what_comes_after_the_end_of_tls_is_not_received(own: Certificate, authority: Authority) -> None:
    with bare(own) as server, encrypted(server, authority) as (client, sock):
        sock.sendall(client.ended())
        assert until(lambda: not server.connections)
        with pytest.raises(OSError, match=r"reset|pipe"):  # noqa: PT012
            for _ in range(1000):
                sock.sendall(b"x" * 65536)


def test_a_reply_comes_though_its_client_has_ended_tls(own: Certificate, authority: Authority) -> None:
    with bare(own) as server, encrypted(server, authority) as (client, sock):
        sock.sendall(client.sent(codec.message_head("getName", codec.CALL, 7) + b"\0") + client.ended())
        header = codec.read_header(client.received(all_of(sock)))
        assert header is not None
        assert header.seqid == 7
        assert until(lambda: not server.connections)


def test_a_bad_record_while_the_password_is_checked_leaves_nothing(own: Certificate, authority: Authority) -> None:
    check = Gate()
    with bare(own, check) as server, encrypted(server, authority) as (client, sock):
        sock.sendall(client.sent(framed(START, b"PLAIN") + framed(COMPLETE, b"\0ann\0x")))
        assert check.entered.acquire(timeout=SECONDS)
        sock.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        all_of(sock)  # the server has seen it
        check.open.set()
        assert until(lambda: not server.connections)


def test_the_passwords_of_clients_that_have_left_are_not_checked() -> None:
    check = Gate()
    with bare(check=check) as server, ExitStack() as stack:
        for user in ("first", "second"):  # a thread each
            stack.enter_context(knocking(server.port, user))
            assert check.entered.acquire(timeout=SECONDS)
        for _ in range(5):
            knocking(server.port, "gone").close()
        assert until(lambda: sum(one.eof for one in list(server._connections)) == 5)
        check.open.set()
        assert until(lambda: not server.connections)
    assert check.asked == ["first", "second"]


def test_too_many_that_wait_from_one_address_are_told() -> None:
    check = Gate()
    with bare(check=check, peer_logins_max=1) as server, ExitStack() as stack:
        for user in ("first", "second"):
            stack.enter_context(knocking(server.port, user))
            assert check.entered.acquire(timeout=SECONDS)
        waiting = stack.enter_context(knocking(server.port, "third"))
        assert until(lambda: sum(one.running for one in list(server._connections)) == 3)
        with knocking(server.port, "fourth") as refused:
            answer = all_of(refused)
        check.open.set()
        assert answer[0] == BAD
        assert b"try again" in answer
        assert b"password is wrong" in all_of(waiting)
    assert check.asked == ["first", "second", "third"]


def test_who_is_known_does_not_wait_behind_guesses(
    tmp_path: Path, users: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, **plain(users)) as service, ExitStack() as stack:
        connect(service, "ann", SECRET)
        check = Gate()
        monkeypatch.setattr(passwords, "_derived", lambda *_: check("", "") or b"")
        stack.callback(check.open.set)
        for _ in range(2):
            stack.enter_context(knocking(port_of(service), "carl"))
            assert check.entered.acquire(timeout=SECONDS)
        stack.enter_context(knocking(port_of(service), "carl"))
        use(connect(service, "ann", SECRET))
        assert len(check.asked) == 2  # no guess has ended
