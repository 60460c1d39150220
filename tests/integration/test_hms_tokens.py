"""Delegation tokens on the Metastore port: Thrift's client logs in with them by DIGEST-MD5, and hostile peers try."""

from __future__ import annotations

import base64
import hashlib
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore, ttypes
from structlog.testing import capture_logs
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TSaslClientTransport, TTransportException

from lakemark_hms.wire.sasl import BAD, COMPLETE, OK, START, framed
from lakemark_server.access.passwords import user_line
from lakemark_server.access.token_format import Identifier, Token
from lakemark_server.kv import keys_below
from lakemark_server.process import Service
from lakemark_server.store.keyspace import TOKENS
from tests.integration.grpc_server import connected, running_service
from tests.integration.hms_objects import table
from tests.lakes import Clock

SECONDS = 20
DAY_MS = 86_400_000
SECRET = "open sesame"  # noqa: S105
Connect = Callable[..., Any]


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users"
    path.write_text("".join(f"{user_line(name, SECRET)}\n" for name in ("ann", "bob", "yarn")))
    path.chmod(0o600)
    return path


@contextmanager
def serving(directory: Path, users: Path, **settings: Any) -> Iterator[Service]:
    given = {"hms_auth": "plain", "users_file": str(users), "sweep_interval_s": 3_600, **settings}
    with running_service(directory, hms_enabled=True, hms_port=0, **given) as running:
        yield running


def port_of(service: Service) -> int:
    return int(service.hms_uri.rpartition(":")[2])


def raw(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(service)), timeout=SECONDS)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Thrift's client: with a user and the password that all have, with a token, or with neither."""
    with ExitStack() as stack:

        def opened(service: Service, user: str = "", token: str = "") -> Any:
            sock = TSocket("127.0.0.1", port_of(service))
            transport: Any = TBufferedTransport(sock)
            if user:
                transport = TSaslClientTransport(
                    sock, "127.0.0.1", "hive", mechanism="PLAIN", username=user, password=SECRET
                )
            elif token:
                parts = Token.of(token)
                transport = TSaslClientTransport(
                    sock,
                    "default",
                    "null",
                    mechanism="DIGEST-MD5",
                    username=base64.b64encode(parts.identifier).decode(),
                    password=base64.b64encode(parts.password).decode(),
                )
            stack.callback(transport.close)
            transport.open()
            return ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport, fallback=False))

        yield opened


def until(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def test_a_token_logs_in(tmp_path: Path, users: Path, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), capture_logs() as logs, serving(tmp_path, users) as service:
        token = connect(service, "ann").get_delegation_token("ann", "yarn")
        client = connect(service, token=token)
        client.set_ugi("root", ["admins"])
        client.create_table(table("t"))
        with connected(service) as reader:
            (created,) = reader.events(kinds=["table_created"], follow=False)
        assert "ann" in created.by
        with pytest.raises(ttypes.MetaException, match="gets no other one"):
            client.get_delegation_token("ann", "yarn")
        client.cancel_delegation_token(token)
        with pytest.raises(TTransportException, match="was cancelled"):
            connect(service, token=token)
    (issued,) = (line for line in logs if line["event"] == "issued a delegation token")
    assert (issued["owner"], issued["renewer"]) == ("ann", "yarn")
    said = f"{caplog.text} {logs}"
    assert said.count("user 'ann' logged in") == 2
    parts = Token.of(token)
    for secret in (token, base64.b64encode(parts.password).decode(), parts.password.hex(), repr(parts.password)):
        assert secret not in said


def test_who_gets_tokens(tmp_path: Path, users: Path, connect: Connect) -> None:
    with serving(tmp_path, users, hms_tokens_max=2) as service:
        ann = connect(service, "ann")
        with pytest.raises(ttypes.MetaException, match="ann gets no delegation token for bob: nobody may act"):
            ann.get_delegation_token("bob", "yarn")
        with pytest.raises(ttypes.MetaException, match="needs the owner"):
            ann.get_delegation_token("", "yarn")
        with pytest.raises(ttypes.MetaException, match="at most 256 characters"):
            ann.get_delegation_token("ann", "y" * 300)
        for _ in range(2):
            ann.get_delegation_token("ann", "")
        with pytest.raises(ttypes.MetaException, match="ann has 2 delegation tokens"):
            ann.get_delegation_token("ann", "")


def test_who_renews_and_cancels(tmp_path: Path, users: Path, connect: Connect) -> None:
    clock = Clock()
    with serving(tmp_path, users, clock=clock) as service:
        ann, bob, yarn = (connect(service, name) for name in ("ann", "bob", "yarn"))
        token = ann.get_delegation_token("ann", "yarn")
        clock.advance(1_000)
        assert yarn.renew_delegation_token(token) == clock.ms + DAY_MS
        for client in (ann, bob, connect(service, token=token)):
            with pytest.raises(ttypes.MetaException, match="only yarn may"):
                client.renew_delegation_token(token)
        with pytest.raises(ttypes.MetaException, match="bob may not cancel"):
            bob.cancel_delegation_token(token)
        with pytest.raises(ttypes.MetaException, match="this is no delegation token"):
            ann.cancel_delegation_token("nothing")
        yarn.cancel_delegation_token(token)
        with pytest.raises(ttypes.MetaException, match="was cancelled"):
            ann.cancel_delegation_token(token)


def test_a_token_outlives_the_process_and_then_expires(tmp_path: Path, users: Path, connect: Connect) -> None:
    clock = Clock()
    with serving(tmp_path, users, clock=clock) as service:
        token = connect(service, "ann").get_delegation_token("ann", "yarn")
    clock.advance(DAY_MS - 1)
    with serving(tmp_path, users, clock=clock, sweep_interval_s=0.05) as service:
        connect(service, token=token).create_table(table("t"))
        clock.advance(1)
        with pytest.raises(TTransportException, match="has expired"):
            connect(service, token=token)
        with pytest.raises(ttypes.MetaException, match="has expired"):
            connect(service, "yarn").renew_delegation_token(token)
        assert until(lambda: not any(keys_below(service.store, TOKENS)))


def test_forged_tokens(tmp_path: Path, users: Path, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path, users) as service:
        text = connect(service, "ann").get_delegation_token("ann", "yarn")
        token, own = Token.of(text), Identifier.decoded(Token.of(text).identifier)
        with pytest.raises(TTransportException, match="the delegation token is not valid"):
            connect(service, token=token._replace(password=b"\0" * 20).text())
        for identifier in (replace(own, owner="root").encoded(), replace(own, number=own.number ^ 1).encoded()):
            with pytest.raises(TTransportException, match="was never given out here"):
                connect(service, token=token._replace(identifier=identifier).text())
        with pytest.raises(TTransportException, match="this is no delegation token"):
            connect(service, token=token._replace(identifier=b"\1nothing").text())
        connect(service, token=text)
    assert "the password of a token of ann is wrong" in caplog.text


def test_without_logins_there_are_no_tokens(tmp_path: Path, connect: Connect) -> None:
    with running_service(tmp_path, hms_enabled=True, hms_port=0) as service:
        client = connect(service)
        for ask in (
            lambda: client.get_delegation_token("ann", "yarn"),
            lambda: client.renew_delegation_token("x"),
            lambda: client.cancel_delegation_token("x"),
        ):
            with pytest.raises(ttypes.MetaException, match="delegation tokens stand for logins by SASL"):
                ask()


class Peer:
    """A client by hand, which answers the challenge as RFC 2831 says, or a little otherwise."""

    def __init__(self, service: Service, token: str) -> None:
        self.sock = raw(service)
        self.sock.sendall(framed(START, b"DIGEST-MD5") + framed(OK, b""))
        status, challenge = self.answer()
        assert status == OK
        self.nonce = challenge.split(b'nonce="')[1].split(b'"')[0].decode()
        parts = Token.of(token)
        self.name, self.password = (base64.b64encode(part).decode() for part in parts[:2])

    def answer(self) -> tuple[int, bytes]:
        data = b""
        while len(data) < 5 or len(data) < 5 + struct.unpack_from("!BI", data)[1]:
            piece = self.sock.recv(65536)
            if not piece:
                raise EOFError
            data += piece
        return data[0], data[5:]

    def said(self, **changes: str) -> bytes:
        given = {
            "username": self.name,
            "realm": "default",
            "nonce": self.nonce,
            "cnonce": 'a"b\\c',
            "nc": "00000001",
            "qop": "auth",
            "digest-uri": "null/default",
            "charset": "utf-8",
            **{name.replace("_", "-"): value for name, value in changes.items()},
        }
        first = hashlib.md5(f"{given['username']}:{given['realm']}:{self.password}".encode()).digest()  # noqa: S324
        first += f":{given['nonce']}:{given['cnonce']}".encode()
        if "authzid" in given:
            first += f":{given['authzid']}".encode()
        second = f"AUTHENTICATE:{given['digest-uri']}".encode()
        hashes = [hashlib.md5(one).hexdigest() for one in (first, second)]  # noqa: S324
        text = ":".join([hashes[0], given["nonce"], given["nc"], given["cnonce"], given["qop"], hashes[1]])
        given.setdefault("response", hashlib.md5(text.encode()).hexdigest())  # noqa: S324
        bare = ("nc", "qop", "charset", "response")
        quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in given.items()}
        parts = [f"{name}={value}" if name in bare else f'{name}="{value}"' for name, value in quoted.items()]
        return framed(OK, ",".join(parts).encode())


def test_the_negotiation_by_hand(tmp_path: Path, users: Path, connect: Connect) -> None:
    with serving(tmp_path, users) as service:
        token = connect(service, "ann").get_delegation_token("ann", "yarn")
        for changes in ({}, {"authzid": Peer(service, token).name}, {"digest_uri": "NULL/default"}):
            peer = Peer(service, token)
            peer.sock.sendall(peer.said(**changes))
            status, last = peer.answer()
            assert (status, last[:8], len(last)) == (COMPLETE, b"rspauth=", 40)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nonce": "another"}, b"another challenge"),
        ({"nonce": "ä"}, b"another challenge"),
        ({"nc": "00000002"}, b"not for the realm"),
        ({"realm": "other"}, b"not for the realm"),
        ({"digest_uri": "hive/elsewhere"}, b"not for the realm"),
        ({"qop": "auth-conf"}, b"use TLS, or Kerberos"),
        ({"authzid": "root"}, b"nobody may act for another"),
        ({"cnonce": ""}, b"none of DIGEST-MD5"),
        ({"username": ""}, b"none of DIGEST-MD5"),
        ({"username": "ann"}, b"no identifier"),
        ({"username": "ä"}, b"the delegation token"),
        ({"response": "0" * 32}, b"not valid"),
        ({"response": "ä"}, b"not valid"),
    ],
)
def test_wrong_responses(tmp_path: Path, users: Path, connect: Connect, changes: dict[str, str], reason: bytes) -> None:
    with serving(tmp_path, users) as service:
        token = connect(service, "ann").get_delegation_token("ann", "yarn")
        peer = Peer(service, token)
        peer.sock.sendall(peer.said(**changes))
        status, why = peer.answer()
        assert status == BAD
        assert reason in why
        connect(service, token=token)


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"\0",
        b'username="',
        b'username="a",username="b"',
        b"username=a b",
        b'username="\xff"',
        b",".join(b"%c=x" % letter for letter in range(ord("a"), ord("z"))),
        b"a=" * 30_000,
        b'"' * 60_000,
        b" " * 60_000,
        b'x="' + b"\\" * 60_000,
    ],
)
def test_what_is_no_response(tmp_path: Path, users: Path, connect: Connect, response: bytes) -> None:
    with serving(tmp_path, users) as service:
        token = connect(service, "ann").get_delegation_token("ann", "yarn")
        peer = Peer(service, token)
        peer.sock.sendall(framed(OK, response))
        assert peer.answer() == (BAD, b"the response is none of DIGEST-MD5")
        connect(service, token=token)


def test_a_client_that_answers_before_it_is_asked(tmp_path: Path, users: Path) -> None:
    with serving(tmp_path, users) as service, raw(service) as sock:
        sock.sendall(framed(START, b"DIGEST-MD5") + framed(OK, b'username="x"'))
        assert b"begins with the challenge" in sock.recv(1000)
