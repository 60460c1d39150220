"""SASL GSSAPI on the Metastore port: a real KDC, Thrift's client with the system's library, and hostile peers."""

from __future__ import annotations

import base64
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TSaslClientTransport, TTransportException

from lakemark_core.errors import InvalidArgument
from lakemark_hms.wire import codec
from lakemark_hms.wire.sasl import BAD, COMPLETE, OK, START, framed
from lakemark_server.access.passwords import user_line
from lakemark_server.access.token_format import Identifier, Token
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service
from tests.integration.hms_objects import table
from tests.kdc import REALM, SERVICE, Kdc, running_kdc

SECONDS = 20
SECRET = "open sesame"  # noqa: S105
Connect = Callable[..., Any]
QOPS = {"auth": 1, "auth-int": 2, "auth-conf": 4}


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with running_kdc() as running:
        yield running


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    return kdc.keytab(SERVICE)


@pytest.fixture(autouse=True)
def _environment(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)


@contextmanager
def serving(directory: Path, keytab: Path, **settings: Any) -> Iterator[Service]:
    given = {"hms_auth": "kerberos", "hms_kerberos_principal": SERVICE, "hms_kerberos_keytab": str(keytab), **settings}
    with running_service(directory, hms_enabled=True, hms_port=0, **given) as running:
        yield running


def port_of(service: Service) -> int:
    return int(service.hms_uri.rpartition(":")[2])


class Recorded(TSocket):
    """A socket that keeps what is sent and received."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.seen = b""

    def read(self, size: int) -> bytes:
        data: bytes = super().read(size)
        self.seen += data
        return data

    def write(self, data: bytes) -> None:
        self.seen += data
        super().write(data)


@pytest.fixture
def connect(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Thrift's client, whose SASL is the system's Kerberos library. ``seen``: what crossed the network."""
    pytest.importorskip("kerberos", reason="no client of Kerberos here: scripts/setup --kerberos brings it")
    with ExitStack() as stack:

        def opened(
            service: Service, user: str = "ann", host: str = "localhost", service_name: str = "hive", **sasl: Any
        ) -> Any:
            monkeypatch.setenv("KRB5CCNAME", str(kdc.tickets(user)))
            sock = Recorded("127.0.0.1", port_of(service))
            given = {"mechanism": "GSSAPI", **sasl}
            transport = TSaslClientTransport(sock, host, service_name, **given)
            stack.callback(transport.close)
            transport.open()
            client = ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport, fallback=False))
            client.sock = sock
            return client

        yield opened


class Peer:
    """A client by hand, with the tickets of a user."""

    def __init__(self, service: Service, tickets: Path) -> None:
        import gssapi

        self.sock = socket.create_connection(("127.0.0.1", port_of(service)), timeout=SECONDS)
        os.environ["KRB5CCNAME"] = str(tickets)
        name = gssapi.Name(SERVICE, gssapi.NameType.kerberos_principal)
        flag = gssapi.RequirementFlag
        wanted = flag.mutual_authentication | flag.integrity | flag.confidentiality
        self.context = gssapi.SecurityContext(
            name=name, usage="initiate", flags=wanted | flag.replay_detection | flag.out_of_sequence_detection
        )

    def answer(self) -> tuple[int, bytes]:
        status, size = struct.unpack("!BI", self.take(5))
        return status, self.take(size)

    def take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def rest(self) -> bytes:
        pieces = []
        while piece := self.sock.recv(65536):
            pieces.append(piece)
        return b"".join(pieces)

    def offered(self) -> bytes:
        """Presents the ticket; gives what the service offers: a byte of qualities, and three of a size."""
        self.sock.sendall(framed(START, b"GSSAPI") + framed(OK, self.context.step()))
        status, token = self.answer()
        assert status == OK, token
        assert self.context.step(token) is None
        self.sock.sendall(framed(OK, b""))
        status, token = self.answer()
        assert status == OK, token
        offer: bytes = self.context.unwrap(token).message
        return offer

    def choose(self, qop: str, acting: bytes = b"", size: int = 65536) -> None:
        chosen = bytes([QOPS[qop]]) + size.to_bytes(3, "big") + acting
        self.sock.sendall(framed(OK, self.context.wrap(chosen, False).message))

    def logged_in(self, qop: str) -> Peer:
        self.offered()
        self.choose(qop)
        assert self.answer() == (COMPLETE, b"")
        return self


def until(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def use(client: Any, name: str = "t") -> None:
    client.create_table(table(name))
    assert client.get_table("default", name).tableName == name


def call(seqid: int = 7) -> bytes:
    return codec.message_head("getName", codec.CALL, seqid) + b"\0"


def test_a_ticket_logs_in(tmp_path: Path, keytab: Path, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), serving(tmp_path, keytab) as service:
        client = connect(service)
        client.set_ugi("root", ["admins"])
        use(client)
        with connected(service) as reader:
            (created,) = reader.events(kinds=["table_created"], follow=False)
        assert "ann" in created.by
        use(connect(service, "bob/admin"), "u")
    assert "user 'ann' logged in from 127.0.0.1" in caplog.text
    assert "user 'bob' logged in" in caplog.text


@pytest.mark.parametrize("qop", QOPS)
def test_what_clients_may_choose(tmp_path: Path, keytab: Path, connect: Connect, qop: str) -> None:
    """Replies are many frames: the client takes 64 KiB in one."""
    with serving(tmp_path, keytab, hms_sasl_qop=["auth", qop]) as service:
        client = connect(service, qops=[qop.encode()])
        client.create_table(table("large", cols=", ".join(f"column_{n} string" for n in range(20_000))))
        for _ in range(3):
            assert len(client.get_table("default", "large").sd.cols) == 20_000
        plain = b"column_19999" in client.sock.seen
        assert plain == (qop != "auth-conf")


def test_the_service_may_ask_for_more_than_a_login(tmp_path: Path, keytab: Path, kdc: Kdc, connect: Connect) -> None:
    with serving(tmp_path, keytab, hms_sasl_qop=["auth-conf"]) as service:
        use(connect(service))
        peer = Peer(service, kdc.tickets("ann"))
        assert peer.offered()[0] == QOPS["auth-conf"]
        peer.choose("auth")
        status, why = peer.answer()
        assert status == BAD
        assert b"did not choose one of the offered qualities: auth-conf" in why


def test_passwords_and_tickets_on_one_port(tmp_path: Path, keytab: Path, connect: Connect) -> None:
    users = tmp_path / "users"
    users.write_text(user_line("carl", SECRET))
    users.chmod(0o600)
    with serving(tmp_path, keytab, hms_auth="plain+kerberos", users_file=str(users)) as service:
        use(connect(service))
        use(connect(service, mechanism="PLAIN", username="carl", password=SECRET), "u")


@pytest.mark.parametrize("acting", ["ann", f"ann@{REALM}"])
def test_a_client_may_name_itself(tmp_path: Path, keytab: Path, connect: Connect, acting: str) -> None:
    with serving(tmp_path, keytab) as service:
        use(connect(service, authorization_id=acting))


@pytest.mark.parametrize("acting", ["bob", "hive", "ann@OTHER.TEST", "ann/admin", "Ann"])
def test_nobody_acts_for_another(tmp_path: Path, keytab: Path, connect: Connect, acting: str) -> None:
    refused = pytest.raises(TTransportException, match=rf"ann@{REALM} may not act for another user")
    with serving(tmp_path, keytab) as service, refused:
        connect(service, authorization_id=acting)


def test_an_outdated_keytab(tmp_path: Path, kdc: Kdc, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    own = f"other/localhost@{REALM}"
    keytab = kdc.keytab(own)
    kdc.new_key(own)
    with caplog.at_level(logging.INFO), serving(tmp_path, keytab, hms_kerberos_principal=own) as service:
        with pytest.raises(TTransportException, match=f"the ticket is none for {own}, or its keytab has another key"):
            connect(service)  # with a ticket for another service
        import gssapi

        peer = Peer(service, kdc.tickets("ann"))
        peer.context = gssapi.SecurityContext(
            name=gssapi.Name(own, gssapi.NameType.kerberos_principal), usage="initiate"
        )
        peer.sock.sendall(framed(START, b"GSSAPI") + framed(OK, peer.context.step()))
        status, why = peer.answer()
        assert (status, b"its keytab has another key" in why) == (BAD, True)
    assert "refused the login of 127.0.0.1" in caplog.text


def test_a_clock_that_differs(tmp_path: Path, keytab: Path, kdc: Kdc) -> None:
    """The file of tickets tells by how much the client's clock differs from the KDC's: here it lies, by an hour."""
    with serving(tmp_path, keytab) as service:
        Peer(service, kdc.tickets("ann")).offered()  # which brings the ticket for the service into the file
        data = bytearray(kdc.tickets("ann").read_bytes())
        assert data[:8] == b"\x05\x04\0\x0c\0\x01\0\x08"
        data[8:12] = struct.pack("!i", 3600)
        skewed = kdc.directory / "skewed.tickets"
        skewed.write_bytes(data)
        peer = Peer(service, skewed)
        peer.sock.sendall(framed(START, b"GSSAPI") + framed(OK, peer.context.step()))
        status, why = peer.answer()
        assert status == BAD
        assert b"the clocks of the client and of this service differ" in why


def test_a_ticket_is_not_taken_twice(tmp_path: Path, keytab: Path, kdc: Kdc) -> None:
    with serving(tmp_path, keytab) as service:
        first, second = Peer(service, kdc.tickets("ann")), Peer(service, kdc.tickets("ann"))
        begin = framed(START, b"GSSAPI") + framed(OK, first.context.step())
        first.sock.sendall(begin)
        assert first.answer()[0] == OK
        second.sock.sendall(begin)
        status, why = second.answer()
        assert (status, why) == (BAD, b"the ticket was used before")


def test_tokens_for_who_has_a_ticket(tmp_path: Path, keytab: Path, connect: Connect) -> None:
    """The names are principals, as Hive's clients send them; Spark names the service as the renewer."""
    with serving(tmp_path, keytab) as service:
        ann, hive = connect(service), connect(service, "hive/elsewhere")
        token = ann.get_delegation_token(f"ann@{REALM}", f"hive/_HOST@{REALM}")
        parts = Token.of(token)
        own = Identifier.decoded(parts.identifier)
        assert (own.owner, own.renewer) == ("ann", "hive")
        name, password = (base64.b64encode(part).decode() for part in parts[:2])
        digest = {"mechanism": "DIGEST-MD5", "username": name, "password": password}
        use(connect(service, host="default", service_name="null", **digest))
        assert hive.renew_delegation_token(token) > own.issued_ms
        hive.cancel_delegation_token(token)
        with pytest.raises(TTransportException, match="was cancelled"):
            connect(service, host="default", service_name="null", **digest)
        for owner, renewer, reason in (
            (f"bob@{REALM}", "", "nobody may act for another user"),
            ("ann@OTHER.TEST", "", "is no principal of"),
            ("ann", "hive/_HOST@OTHER.TEST", "is no principal of"),
        ):
            with pytest.raises(ttypes.MetaException, match=reason):
                ann.get_delegation_token(owner, renewer)


def test_there_are_no_tokens_where_all_has_to_be_protected(tmp_path: Path, keytab: Path, connect: Connect) -> None:
    with serving(tmp_path, keytab, hms_sasl_qop=["auth-conf"]) as service:
        with pytest.raises(ttypes.MetaException, match="auth in hms_sasl_qop"):
            connect(service).get_delegation_token("ann", "")
        with pytest.raises(TTransportException, match="there are: GSSAPI"):
            connect(service, host="default", service_name="null", mechanism="DIGEST-MD5")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (framed(START, b"NTLM"), b"there are: GSSAPI, DIGEST-MD5"),
        (framed(START, b"PLAIN"), b"there are: GSSAPI, DIGEST-MD5"),
        (framed(START, b"GSSAPI") + framed(OK, b""), b"begins with a ticket"),
        (framed(START, b"GSSAPI") + framed(OK, b"no ticket at all"), b"Kerberos does not accept"),
        (framed(START, b"GSSAPI") + framed(OK, b"x" * 65_536), b"Kerberos does not accept"),
        (framed(START, b"GSSAPI") + struct.pack("!BI", OK, 65_537), b"wants SASL"),
        (framed(START, b"GSSAPI") + framed(OK, b"x") + framed(OK, b"y"), b"too early"),
    ],
)
def test_hostile_negotiations_end(
    tmp_path: Path, keytab: Path, kdc: Kdc, connect: Connect, sent: bytes, reason: bytes
) -> None:
    with serving(tmp_path, keytab) as service:
        peer = Peer(service, kdc.tickets("ann"))
        peer.sock.sendall(sent)
        status, why = peer.answer()
        assert status == BAD
        assert reason in why
        assert peer.rest() == b""
        use(connect(service))


def test_a_negotiation_that_goes_wrong_late(tmp_path: Path, keytab: Path, kdc: Kdc) -> None:
    with serving(tmp_path, keytab, hms_sasl_qop=["auth", "auth-int"]) as service:
        for late, reason in (
            (b"no token", b"Kerberos does not accept"),
            (b"", b"Kerberos does not accept"),
        ):
            peer = Peer(service, kdc.tickets("ann"))
            peer.offered()
            peer.sock.sendall(framed(OK, late))
            status, why = peer.answer()
            assert (status, reason in why) == (BAD, True)
        peer = Peer(service, kdc.tickets("ann"))
        peer.offered()
        peer.choose("auth-int", size=10)
        status, why = peer.answer()
        assert (status, b"too small for auth-int" in why) == (BAD, True)
        peer = Peer(service, kdc.tickets("ann"))
        peer.offered()
        peer.sock.sendall(framed(OK, peer.context.wrap(b"\x01", False).message))  # without a size
        assert peer.answer()[0] == BAD


def test_frames_that_are_not_as_they_were_protected(
    tmp_path: Path, keytab: Path, kdc: Kdc, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path, keytab, hms_sasl_qop=["auth-int", "auth-conf"]) as service:

        def sent(qop: str, change: Callable[[Any], bytes]) -> bytes:
            peer = Peer(service, kdc.tickets("ann")).logged_in(qop)
            frame = change(peer.context)
            peer.sock.sendall(struct.pack("!I", len(frame)) + frame)
            return peer.rest()

        assert sent("auth-int", lambda context: context.wrap(call(), False).message[:-1]) == b""
        assert sent("auth-int", lambda _: call()) == b""
        assert sent("auth-int", lambda _: b"") == b""
        assert "was not as its client has protected it" in caplog.text
        assert sent("auth-conf", lambda context: context.wrap(call(), False).message) == b""
        assert "came as plain text" in caplog.text
        peer = Peer(service, kdc.tickets("ann")).logged_in("auth-int")
        frame = peer.context.wrap(call(), False).message
        peer.sock.sendall(struct.pack("!I", len(frame)) + frame)
        (size,) = struct.unpack("!I", peer.take(4))
        assert codec.read_header(peer.context.unwrap(peer.take(size)).message) is not None
        peer.sock.sendall(struct.pack("!I", len(frame)) + frame)
        assert peer.rest() == b""
        assert "duplicate" in caplog.text


def test_protected_frames_in_pieces(tmp_path: Path, keytab: Path, kdc: Kdc) -> None:
    with serving(tmp_path, keytab, hms_sasl_qop=["auth-conf"]) as service:
        peer = Peer(service, kdc.tickets("ann")).logged_in("auth-conf")
        calls = b"".join(call(number) for number in range(5))
        stream = b""
        for piece in (calls[:3], calls[3:40], calls[40:]):
            frame = peer.context.wrap(piece, True).message
            stream += struct.pack("!I", len(frame)) + frame
        for at in range(0, len(stream), 7):
            peer.sock.sendall(stream[at : at + 7])
        for number in range(5):
            (size,) = struct.unpack("!I", peer.take(4))
            header = codec.read_header(peer.context.unwrap(peer.take(size)).message)
            assert header is not None
            assert header.seqid == number


def test_frames_that_never_end_take_no_room_for_ever(tmp_path: Path, keytab: Path, kdc: Kdc) -> None:
    with serving(tmp_path, keytab, hms_sasl_qop=["auth-int"]) as service:
        assert service.hms is not None
        server = service.hms._server
        too_large = Peer(service, kdc.tickets("ann")).logged_in("auth-int")
        too_large.sock.sendall(struct.pack("!I", (1 << 32) - 1) + b"x")
        assert too_large.rest() == b""
        begun = Peer(service, kdc.tickets("ann")).logged_in("auth-int")
        begun.sock.sendall(struct.pack("!I", 1 << 20) + b"x" * 1000)
        assert until(lambda: server._received == 1000)
        begun.sock.close()
        assert until(lambda: server._received == 0 and not server.connections)
        settings = server._settings
        server._settings = settings.__class__(received_bytes_max=50_000)
        greedy = Peer(service, kdc.tickets("ann")).logged_in("auth-int")
        greedy.sock.sendall(struct.pack("!I", 1 << 20) + b"x" * 60_000)
        assert greedy.rest() == b""
        server._settings = settings.__class__(message_seconds_max=0.3)
        slow = Peer(service, kdc.tickets("ann")).logged_in("auth-int")
        slow.sock.sendall(struct.pack("!I", 1 << 20) + b"x")
        assert slow.rest() == b""
        assert until(lambda: server._received == 0)


def test_settings_that_cannot_be_are_refused(tmp_path: Path, keytab: Path, kdc: Kdc) -> None:
    users = tmp_path / "users"
    users.write_text(user_line("carl", SECRET))
    for settings, reason in (
        ({"hms_kerberos_principal": ""}, "go together"),
        ({"hms_kerberos_keytab": ""}, "go together"),
        ({"hms_auth": "none"}, "go together"),
        ({"hms_kerberos_principal": "hive"}, "is not service/host@REALM"),
        ({"hms_kerberos_principal": f"hive@{REALM}"}, "is not service/host@REALM"),
        ({"hms_kerberos_principal": f"spark/_HOST@{REALM}"}, f"cannot be used for spark/{socket.getfqdn().lower()}@"),
        ({"hms_kerberos_keytab": str(tmp_path / "missing")}, "missing cannot be used for hive/localhost"),
        ({"hms_kerberos_keytab": str(users)}, "cannot be used for hive/localhost"),
        (
            {"hms_auth": "plain+kerberos", "users_file": str(users), "hms_sasl_qop": ["auth-conf"]},
            "PLAIN protects nothing",
        ),
    ):
        directory = tmp_path / str(abs(hash(reason)))
        with pytest.raises(InvalidArgument, match=reason), serving(directory, keytab, **settings):
            pass
