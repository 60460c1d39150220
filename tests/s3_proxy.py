"""A proxy between a client and an S3 server that counts requests by operation, and disturbs them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

Fault = Literal["slow down", "internal error", "delay", "cut before", "cut after"]
"""What a request meets.

* ``slow down``: answered 503 SlowDown, ``internal error``: answered 500; the server never sees the request;
* ``delay``: the answer comes late;
* ``cut before``: the connection is lost before the server sees the request, ``cut after``: instead of its answer.
"""

FAULTS: Final[tuple[Fault, ...]] = ("slow down", "internal error", "delay", "cut before", "cut after")
_REFUSALS: Final = {
    "slow down": (503, "Slow Down", "SlowDown", "Please reduce your request rate."),
    "internal error": (500, "Internal Server Error", "InternalError", "We encountered an internal error."),
}


@dataclass(frozen=True, slots=True)
class S3Request:
    """``operation`` is S3's name for it, such as ``PutObject``; ``path`` is ``/bucket/key`` as it was sent.

    ``account``: the id of the access key that signed it; "": it brings no signature.
    """

    operation: str
    path: str
    account: str = ""


@dataclass(frozen=True, slots=True)
class _Message:
    """A request or an answer: its first line and headers as sent, and its body as sent, chunks and all."""

    head: bytes
    body: bytes

    @property
    def first_line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")

    def header(self, name: str) -> str:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.decode("latin-1").partition(":")
            if key.strip().lower() == name:
                return value.strip()
        return ""


class S3Proxy:
    """Listens on a free port of loopback until ``close``, for the server at ``back`` (a URL).

    ``requests`` has all since ``clear``. The server gets the ``Host`` that the client has signed.
    """

    def __init__(self, back: str) -> None:
        parts = urlsplit(back)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._back = parts.hostname or "", parts.port or (443 if self._tls else 80)
        self._choose: Callable[[S3Request], Fault | None] = lambda _: None
        self.requests: list[S3Request] = []
        self.faults: Counter[Fault] = Counter()
        self.delay_s = 0.2
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="s3-proxy", daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20), self._loop
        ).result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def clear(self) -> None:
        self.requests = []
        self.faults = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """How many requests there were of each operation since ``clear``."""
        return dict(Counter(request.operation for request in list(self.requests)))

    @contextmanager
    def disturbing(self, choose: Callable[[S3Request], Fault | None]) -> Iterator[None]:
        """``choose`` tells what each request meets; it runs in the thread of the proxy."""
        self._choose = choose
        try:
            yield
        finally:
            self._choose = lambda _: None

    @contextmanager
    def failing_at_random(self, seed: int, share: float, faults: tuple[Fault, ...] = FAULTS) -> Iterator[None]:
        """A share of the requests meets one of ``faults``."""
        chance = random.Random(seed)
        with self.disturbing(lambda _: chance.choice(faults) if chance.random() < share else None):
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader, writer)) is not None:
                if not await self._answer(request, writer):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, message: _Message, writer: asyncio.StreamWriter) -> bool:
        """False: the connection is to be cut."""
        request = _named(message)
        self.requests.append(request)
        fault = self._choose(request)
        if fault is not None:
            self.faults[fault] += 1
        if fault == "cut before":
            return False
        if fault in _REFUSALS:
            writer.write(_refusal(*_REFUSALS[fault], head_only=message.first_line.startswith("HEAD ")))
            await writer.drain()
            return True
        if fault == "delay":
            await asyncio.sleep(self.delay_s)
        answer = await self._forward(message)
        if fault == "cut after":
            return False
        writer.write(answer.head + answer.body)
        await writer.drain()
        return True

    async def _forward(self, message: _Message) -> _Message:
        """The server's answer; with a connection for each request, since servers for tests close it anyway."""
        reader, writer = await asyncio.open_connection(*self._back, ssl=self._tls, limit=1 << 20)
        try:
            writer.write(message.head + message.body)
            await writer.drain()
            return await _read_answer(reader, head_only=message.first_line.startswith("HEAD "))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Message | None:
    head = await _read_head(reader)
    if head is None:
        return None
    message = _Message(head, b"")
    if message.header("expect").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.lower().startswith(b"expect:"))
    return _Message(head, await _read_body(reader, message, to_end=False))


async def _read_answer(reader: asyncio.StreamReader, *, head_only: bool) -> _Message:
    head = await _read_head(reader)
    if head is None:
        raise ConnectionError("the server has closed the connection")
    message = _Message(head, b"")
    status = int(message.first_line.split(" ")[1])
    bodyless = head_only or status in (204, 304)
    body = b"" if bodyless else await _read_body(reader, message, to_end=True)
    # The connection to the client stays open, whatever that of the server does.
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
    if not bodyless and not message.header("content-length") and not message.header("transfer-encoding"):
        lines.append(b"Content-Length: %d" % len(body))
    lines[0] = lines[0].replace(b"HTTP/1.0", b"HTTP/1.1")
    return _Message(b"\r\n".join(lines) + b"\r\n\r\n", body)


async def _read_head(reader: asyncio.StreamReader) -> bytes | None:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None


async def _read_body(reader: asyncio.StreamReader, message: _Message, *, to_end: bool) -> bytes:
    """As sent. ``to_end``: a body of no known length goes on until the connection ends."""
    if message.header("transfer-encoding").lower() == "chunked":
        chunks = bytearray()
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            chunks += line + await reader.readexactly(size + 2)
            if not size:
                return bytes(chunks)
    if length := message.header("content-length"):
        return await reader.readexactly(int(length))
    return await reader.read() if to_end else b""


def _refusal(status: int, reason: str, code: str, text: str, *, head_only: bool) -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + (b"" if head_only else body)


def _named(message: _Message) -> S3Request:
    method, target, _ = message.first_line.split(" ")
    parts = urlsplit(target)
    operation = _operation(method, parts.path, parse_qs(parts.query, keep_blank_values=True), message)
    account = message.header("authorization").partition("Credential=")[2].partition("/")[0]
    return S3Request(operation, parts.path, account)


def _operation(method: str, path: str, query: dict[str, list[str]], message: _Message) -> str:
    has_key = bool(path.strip("/").partition("/")[2])
    if "uploads" in query:
        return "CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"
    if "uploadId" in query:
        return {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}.get(
            method, "ListParts"
        )
    if method == "POST" and "delete" in query:
        return "DeleteObjects"
    if method == "GET" and not has_key:
        return "GetBucketLocation" if "location" in query else "ListObjects" if path.strip("/") else "ListBuckets"
    if method == "PUT" and message.header("x-amz-copy-source"):
        return "CopyObject"
    kind = "Object" if has_key else "Bucket"
    return {"GET": "Get", "HEAD": "Head", "PUT": "Put", "DELETE": "Delete", "POST": "Post"}[method] + kind
