"""A receiver of webhooks on loopback: a real HTTP server that does what a test tells it to, and notes what arrives."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

WAIT_S: Final = 30.0
SECRET: Final = "whsec_bGFrZW1hcmstdGVzdC1sYWtlbWFyay10ZXN0LTAwMDE="  # noqa: S105 - of tests


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it arrived, and the status that it was answered with; 0: it was not."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    status: int

    @property
    def events(self) -> list[dict[str, Any]]:
        """The CloudEvents in it."""
        content = json.loads(self.body)
        return content if isinstance(content, list) else [content]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """``status`` 0: the request is not answered."""

    status: int
    act: Callable[[_Handler], None]


def answering(status: int, **headers: str) -> Behaviour:
    """Answers with this status; ``retry_after="1"`` is the header Retry-After."""

    def answer(handler: _Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return Behaviour(status, answer)


def _cut(handler: _Handler) -> None:
    """Resets the connection instead of answering."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.rfile.close()
    handler.connection.close()


def _hang(handler: _Handler) -> None:
    """Answers nothing until the receiver ends."""
    handler.receiver.ended.wait(WAIT_S)


def _drip(handler: _Handler) -> None:
    """Sends a byte of an answer now and then, and never the last one."""
    while not handler.receiver.ended.wait(0.05):
        try:
            handler.wfile.write(b"H")
            handler.wfile.flush()
        except OSError:
            break


cutting: Final = Behaviour(0, _cut)
hanging: Final = Behaviour(0, _hang)
dripping: Final = Behaviour(0, _drip)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def receiver(self) -> WebhookReceiver:
        server = self.server
        assert isinstance(server, _Server)
        return server.receiver

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        if len(body) < size:  # its sender died over it, and nobody waits for an answer
            self.close_connection = True
            return
        with self.receiver.lock:
            script = self.receiver.script
            behave = script.popleft() if script else self.receiver.otherwise
        self.receiver.note(Request(self.path, dict(self.headers), body, behave.status))
        behave.act(self)
        if not behave.status:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, receiver: WebhookReceiver) -> None:
        self.receiver = receiver
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *_: object) -> None:
        """Connections that tests cut are no news."""


class WebhookReceiver:
    """``script``: what it does with the next requests; ``otherwise``: with all others."""

    def __init__(self, *script: Behaviour) -> None:
        self.script = deque(script)
        self.otherwise: Behaviour = answering(204)
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self._changed = threading.Condition()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    @property
    def delivered(self) -> list[dict[str, Any]]:
        """The events of requests that were answered with 2xx, in order."""
        with self._changed:
            return [event for request in self.requests if 200 <= request.status < 300 for event in request.events]

    def note(self, request: Request) -> None:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Waits until the condition holds, which is looked at after each request."""
        with self._changed:
            assert self._changed.wait_for(condition, WAIT_S), f"{len(self.requests)} requests arrived"

    def __enter__(self) -> WebhookReceiver:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
