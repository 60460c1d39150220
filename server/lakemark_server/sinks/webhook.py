"""Webhooks: events as CloudEvents JSON in HTTP POST requests, signed (docs/sinks.md)."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import urllib3.connection
import urllib3.exceptions

from lakemark_core.errors import LakemarkError
from lakemark_core.messages.cloud_events import BATCH_CONTENT_TYPE, CONTENT_TYPE, cloud_event_json, event_id
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.context.clock import ClockMs
from lakemark_server.sinks.addresses import Endpoint, Network, endpoints
from lakemark_server.sinks.backoff import retry_after_s
from lakemark_server.sinks.delivery import DeliveryAborted, DeliveryFailed, EventRefused
from lakemark_server.sinks.signatures import signed_headers

BODY_BYTES_MAX: Final = 4 << 20
"""Of a request. A single event that is larger cannot be delivered."""
BATCH_EVENTS_MAX: Final = 100
_ANSWER_BYTES_MAX: Final = 64 << 10
_IDLE_S_MAX: Final = 30.0
_LOCATION_CHARS_MAX: Final = 200
_LOST: Final = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)
_Connection = urllib3.connection.HTTPConnection


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Where and how events are sent. ``headers`` and ``keys`` are secrets. ``timeout_s`` is that of one attempt."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    keys: Sequence[bytes] = field(repr=False)
    batch: bool
    timeout_s: float


@dataclass(frozen=True, slots=True)
class WebhookPolicy:
    """What the operator of the service allows: networks that are not public, and HTTP without TLS.

    ``ca_file``: PEM file of certificates to trust beside those of the machine; "": none.
    """

    networks: tuple[Network, ...] = ()
    plain_http: bool = False
    ca_file: str = ""

    def tls(self) -> ssl.SSLContext:
        """Raises OSError if the file cannot be read."""
        context = ssl.create_default_context()
        if self.ca_file:
            context.load_verify_locations(self.ca_file)
        return context


class WebhookSender:
    """A ``Sender``."""

    def __init__(self, target: WebhookTarget, policy: WebhookPolicy, clock: ClockMs) -> None:
        self.events_max = BATCH_EVENTS_MAX if target.batch else 1
        self._target, self._policy, self._clock = target, policy, clock
        parts = urlsplit(target.url)
        self._host = parts.hostname or ""
        self._tls = parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._host_header = parts.netloc
        self._connection: _Connection | None = None
        self._used_s = 0.0
        self._aborted = threading.Event()

    def send(self, events: Sequence[Event], *, resent: bool = False) -> int:
        """One POST request. Raises DeliveryFailed, EventRefused, DeliveryAborted."""
        body, count = self._body(events)
        first, last = event_id(events[0]), event_id(events[count - 1])
        message_id = f"{events[0].catalog}-{first}" + ("" if count == 1 else f"..{last}")
        headers = {
            **self._target.headers,
            "Host": self._host_header,
            "Content-Type": f"{BATCH_CONTENT_TYPE if self._target.batch else CONTENT_TYPE}; charset=utf-8",
            "User-Agent": "lakemark",
            **({"lakemark-resent": "true"} if resent else {}),
            **signed_headers(self._target.keys, message_id, self._clock() // 1_000, body),
        }
        try:
            status, told = self._post(body, headers)
        except LakemarkError as error:
            raise DeliveryFailed(error.message, events=count) from error
        except _LOST as error:
            if self._aborted.is_set():
                raise DeliveryAborted("the sink was stopped") from error
            raise DeliveryFailed(self._in_words(error), events=count) from error
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise DeliveryFailed(
                _refusal(status, told.get("Location", "")),
                events=count,
                retry_after_s=retry_after_s(told.get("Retry-After"), self._clock()),
            )
        return count

    def abort(self) -> None:
        """As ``Sender`` says."""
        self._aborted.set()
        _cut(self._connection)

    def close(self) -> None:
        """As ``Sender`` says."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _body(self, events: Sequence[Event]) -> tuple[bytes, int]:
        """The body, and how many events are in it."""
        texts: list[bytes] = []
        size = 2
        for event in events[: self.events_max]:
            text = cloud_event_json(event).encode()
            if size + len(text) + 1 > BODY_BYTES_MAX:
                if texts:
                    break
                raise EventRefused(
                    f"the event has {len(text):,} bytes as JSON; a request of a webhook has at most {BODY_BYTES_MAX:,}"
                )
            texts.append(text)
            size += len(text) + 1
        return (b"[" + b",".join(texts) + b"]" if self._target.batch else texts[0]), len(texts)

    def _post(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
        """Status and headers of the answer. Tries again at once if an old connection turns out to be closed."""
        until_s = time.monotonic() + self._target.timeout_s
        connection = self._open_connection()
        if connection is not None:
            try:
                return self._ask(connection, body, headers, until_s)
            except (ConnectionError, http.client.RemoteDisconnected, urllib3.exceptions.ProtocolError):
                if time.monotonic() >= until_s or self._aborted.is_set():
                    raise
        return self._ask(self._connect(until_s), body, headers, until_s)

    def _open_connection(self) -> _Connection | None:
        """The last connection, unless it was closed or has not been used for a while."""
        connection = self._connection
        if connection is None:
            return None
        if time.monotonic() - self._used_s <= _IDLE_S_MAX and connection.is_connected:
            return connection
        self.close()
        return None

    def _connect(self, until_s: float) -> _Connection:
        """A connection to one of the addresses that the name has now and that are allowed."""
        lost: Exception = TimeoutError("timed out")
        for endpoint in endpoints(self._host, self._port, self._policy.networks):
            left_s = until_s - time.monotonic()
            if left_s <= 0 or self._aborted.is_set():
                break
            connection = self._connection = self._made(endpoint, left_s)
            try:
                with self._watched(connection, until_s):
                    connection.connect()
            except _LOST as error:
                lost = error
                self.close()
            else:
                return connection
        raise lost

    def _made(self, endpoint: Endpoint, timeout_s: float) -> _Connection:
        if not self._tls:
            return _Connection(endpoint.address, endpoint.port, timeout=timeout_s)
        return urllib3.connection.HTTPSConnection(
            endpoint.address,
            endpoint.port,
            timeout=timeout_s,
            ssl_context=self._policy.tls(),
            server_hostname=self._host,  # the certificate is that of the name, wherever it is
        )

    def _ask(
        self, connection: _Connection, body: bytes, headers: Mapping[str, str], until_s: float
    ) -> tuple[int, Mapping[str, str]]:
        """One request on the connection, which is kept if it can be used again."""
        reusable = False
        try:
            with self._watched(connection, until_s):
                connection.timeout = max(0.001, until_s - time.monotonic())
                connection.request("POST", self._path, body, headers, preload_content=False, decode_content=False)
                response = connection.getresponse()
                with contextlib.suppress(*_LOST):  # what counts has arrived
                    reusable = len(response.read(_ANSWER_BYTES_MAX)) < _ANSWER_BYTES_MAX
                    response.release_conn()
            return response.status, response.headers
        finally:
            self._used_s = time.monotonic()
            if not reusable:
                self.close()

    @contextlib.contextmanager
    def _watched(self, connection: _Connection, until_s: float) -> Iterator[None]:
        """Cuts the connection when the time is over: a socket's own time-out begins anew with every byte."""
        timer = threading.Timer(max(0.0, until_s - time.monotonic()), _cut, (connection,))
        timer.daemon = True
        timer.start()
        try:
            if self._aborted.is_set():
                raise ConnectionAbortedError("the sink was stopped")
            yield
        except _LOST as error:
            if time.monotonic() >= until_s:
                raise TimeoutError("timed out") from error
            raise
        finally:
            timer.cancel()

    def _in_words(self, error: Exception) -> str:
        place = f"{self._host}:{self._port}"
        # It counts as one of the time-outs, too.
        if isinstance(error, urllib3.exceptions.NewConnectionError | ConnectionRefusedError):
            return f"{place} cannot be connected to: {_reason(error)}"
        if isinstance(error, TimeoutError | urllib3.exceptions.TimeoutError):
            return f"{place} did not answer within {self._target.timeout_s:g} s"
        if isinstance(error, ssl.SSLError | urllib3.exceptions.SSLError):
            return f"{place} offers no TLS that can be trusted: {_reason(error)}"
        return f"{place} cut the connection before it answered: {_reason(error)}"


def _reason(error: Exception) -> str:
    return str(error.__cause__ or error) or type(error).__name__


def _cut(connection: _Connection | None) -> None:
    sock = getattr(connection, "sock", None)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _refusal(status: int, location: str) -> str:
    try:
        answer = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        answer = str(status)
    if 300 <= status < 400 and location.isprintable():
        return f"the answer is {answer}: redirects are not followed; it leads to {location[:_LOCATION_CHARS_MAX]!r}"
    return f"the answer is {answer}; only 2xx counts as delivered"
