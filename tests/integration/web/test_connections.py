"""Peers that open connections and say nothing, speak slowly, or take nothing: nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from lakemark_web.connection_limits import ConnectionLimits
from lakemark_web.connections import http_server
from tests.integration.grpc_server import running_service
from tests.integration.web.conftest import SETTINGS, Site

HOST, OTHER = "127.0.0.1", "127.0.0.2"
WAIT_S = 30.0
REQUEST = b"GET /service HTTP/1.1\r\nhost: localhost\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
LARGE = 64 << 20
Opened = Callable[[int, str], socket.socket]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """A connection to a port from an address of this machine."""
    with ExitStack() as stack:

        def connect(port: int, source: str = HOST) -> socket.socket:
            return stack.enter_context(socket.create_connection((HOST, port), WAIT_S, (source, 0)))

        yield connect


def is_closed(sock: socket.socket) -> bool:
    """Whether the peer closes it, sooner or later."""
    try:
        while sock.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def answered(sock: socket.socket, times: int = 1) -> bool:
    """Whether so many answers of ``Answering`` come."""
    answers = b""
    while answers.count(b"\r\n\r\nxx") < times:
        chunk = sock.recv(1 << 16)
        if not chunk:
            return False
        answers += chunk
    return answers.count(b"HTTP/1.1 200 OK") == times


def is_open(sock: socket.socket) -> bool:
    sock.settimeout(0.1)
    try:
        return sock.recv(1) != b""
    except TimeoutError:
        return True
    finally:
        sock.settimeout(WAIT_S)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    limits = {"web_connections_max": 20, "web_peer_connections_max": 8}
    with running_service(tmp_path, **SETTINGS | limits) as service:
        site = Site(service)
        assert site.get("/service").status == 200
        yield site


def test_connections_that_say_nothing_keep_nobody_out(site: Site, opened: Opened) -> None:
    assert site.service.web
    port = site.service.web.port
    idle = [opened(port, OTHER) for _ in range(50)]
    assert all(map(is_closed, idle[:42])), "those that were idle longest"
    assert all(map(is_open, idle[42:]))
    own = [opened(port, HOST) for _ in range(50)]
    assert site.get("/service").status == 200, "from the same address"
    assert all(map(is_open, idle[42:])), "of another address, which has its share"
    assert is_closed(own[0])


def test_connections_with_half_a_request_go_for_others(site: Site, opened: Opened) -> None:
    assert site.service.web
    half = [opened(site.service.web.port, HOST) for _ in range(8)]
    for sock in half:
        sock.sendall(REQUEST[:20])
    assert site.get("/service").status == 200
    assert is_closed(half[0])


def test_in_a_full_house_of_open_pages_there_is_room_for_a_page(site: Site, opened: Opened) -> None:
    assert site.service.web
    streams = [opened(site.service.web.port, OTHER) for _ in range(8)]
    for sock in streams:
        sock.sendall(REQUEST.replace(b"/service", b"/live"))
    told = [sock.recv(15) for sock in streams]
    assert told.count(b"HTTP/1.1 200 OK") == 4
    assert told.count(b"HTTP/1.1 503 Se") == 4
    assert site.get("/service").status == 200


class Answering:
    """An application that answers when it is let, with as much as it is told."""

    def __init__(self, size_bytes: int = 2) -> None:
        self.gate, self.began, self.ended = threading.Event(), threading.Event(), threading.Event()
        self._body = b"x" * size_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.began.set()
        while (await receive()).get("more_body"):
            pass
        length = str(len(self._body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": self._body})
        self.ended.set()


@contextmanager
def serving(app: Any, **limits: Any) -> Iterator[int]:
    """The port of a server with such limits."""
    with socket.create_server((HOST, 0)) as listening:
        port: int = listening.getsockname()[1]
        server = http_server(app, ConnectionLimits(**limits))
        thread = threading.Thread(target=lambda: server.run(sockets=[listening]))
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_who_never_begins_is_closed(opened: Opened) -> None:
    with serving(Answering(), message_seconds_max=0.2) as port:
        assert is_closed(opened(port, HOST))


@pytest.mark.parametrize("after", ["", "a request"])
@pytest.mark.parametrize(
    "slowly", [b"GET / HTTP/1.1\r\nx: " + b"y" * 1_000, b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\n\r\n"]
)
def test_a_request_that_comes_byte_by_byte_is_not_waited_for(opened: Opened, slowly: bytes, after: str) -> None:
    with serving(Answering(), message_seconds_max=0.3) as port:
        sock = opened(port, HOST)
        if after:
            sock.sendall(GET)
            assert answered(sock)
        begun = time.monotonic()
        sent = slowly + b"z" * 8_999
        with pytest.raises(ConnectionError):  # noqa: PT012 - it is closed at some byte
            for at in range(len(sent)):
                sock.sendall(sent[at : at + 1])
                time.sleep(0.005)
        assert time.monotonic() - begun < 5


def test_a_body_that_nobody_reads_is_not_taken_for_ever(opened: Opened) -> None:
    """As after a refusal of a form that is too large."""

    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    with serving(refusing, message_seconds_max=0.3) as port:
        sock = opened(port, HOST)
        sock.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n")
        begun = time.monotonic()
        with pytest.raises(ConnectionError):  # noqa: PT012 - it is closed at some byte
            while True:
                sock.sendall(b"x")
                time.sleep(0.005)
        assert time.monotonic() - begun < 5


def test_an_answer_that_takes_long_to_make_is_waited_for(opened: Opened) -> None:
    class Slow(Answering):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await asyncio.to_thread(self.gate.wait, WAIT_S)
            await super().__call__(scope, receive, send)

    app = Slow()
    with serving(app, message_seconds_max=0.1, keep_alive_seconds_max=0.1) as port:
        sock = opened(port, HOST)
        sock.sendall(GET)
        assert is_open(sock)
        assert is_open(sock)
        app.gate.set()
        assert answered(sock)


def test_who_does_not_take_the_answer_is_closed(opened: Opened) -> None:
    app = Answering(LARGE)
    with serving(app, write_stall_seconds_max=0.3, keep_alive_seconds_max=0.1) as port:
        sock = opened(port, HOST)
        sock.sendall(GET)
        assert app.ended.wait(WAIT_S)
        time.sleep(1.0)
        received = 0
        with contextlib.suppress(ConnectionError):
            while chunk := sock.recv(1 << 20):
                received += len(chunk)
        assert received < LARGE, "what was on the way, and no more"


def test_after_an_answer_the_connection_ends_when_nothing_comes(opened: Opened) -> None:
    with serving(Answering(), keep_alive_seconds_max=0.2) as port:
        sock = opened(port, HOST)
        for _ in range(3):
            sock.sendall(GET)
            assert answered(sock)
        assert is_closed(sock)


def test_requests_in_a_row_are_all_answered(opened: Opened) -> None:
    with serving(Answering()) as port:
        sock = opened(port, HOST)
        sock.sendall(GET * 20)
        assert answered(sock, 20)
        assert is_open(sock)
