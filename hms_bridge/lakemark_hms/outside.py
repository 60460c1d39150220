"""A client of a Hive Metastore outside, by the generated code that the facade itself is made of."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from thrift.protocol import fastbinary
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from lakemark_core.errors import FailedPrecondition, Unavailable
from lakemark_hms.wire.codec import CALL, EXCEPTION, decode_struct, encode_call, encode_struct, read_i32
from lakemark_server.listeners.addresses import parse_addresses
from lakemark_thrift.base import DeclaredError, Struct
from lakemark_thrift.services import METHODS
from lakemark_thrift.ttypes import NoSuchObjectException

TIMEOUT_S: Final = 60.0
CONNECT_S: Final = 10.0
IDLE_S: Final = 60.0
"""After which a connection is not used again."""
REPLY_BYTES_MAX: Final = 1 << 30
_USER: Final = "lakemark"
_VERSION_1: Final = 0x80010000
_NAME_BYTES_MAX: Final = 1 << 10

# It logs each failed attempt to connect as an error; whoever makes the call is told by an exception.
logging.getLogger("thrift.transport.TSocket").setLevel(logging.CRITICAL)


class OutsideUnavailable(Unavailable):
    """The outside Metastore does not answer; ``uri`` (detail) is its address."""

    code = "outside_unavailable"


class OutsideRefused(FailedPrecondition):
    """The outside Metastore refused a call. Details: ``uri``, ``method``, ``error`` (the name of its exception)."""

    code = "outside_refused"


class Call(NamedTuple):
    """A call of a method of the contract; ``args`` are by the names that the contract gives them."""

    method: str
    args: dict[str, Any]


class Metastore:
    """One connection at a time to one of the addresses, opened at the first call and again after a failure.

    Thread-safe: calls wait for each other. ``timeout_s`` holds for each wait for the peer. A call whose connection
    breaks is not repeated, because it may have been carried out.
    """

    def __init__(self, uri: str, timeout_s: float = TIMEOUT_S) -> None:
        self.uri = uri
        self.calls = 0
        self._addresses = parse_addresses(uri)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._used_s = 0.0
        self._socket: TSocket | None = None
        self._transport: TBufferedTransport | None = None

    def call(self, method: str, **args: Any) -> Any:
        """What the method returns. Raises OutsideUnavailable, OutsideRefused."""
        return self.run(Call(method, args))

    def run(self, call: Call) -> Any:
        """Makes the call. Raises OutsideUnavailable, OutsideRefused."""
        with self._lock:
            if time.monotonic() - self._used_s > IDLE_S:
                self._close()  # the peer, or something between, may have dropped it silently
            self._used_s = time.monotonic()
            fresh = self._transport is None
            try:
                return self._run(call)
            except (OSError, TTransportException, EOFError) as error:
                self._close()
                if fresh:
                    raise self._away(error) from error
            # A connection that was idle may have been closed by the peer. Reads are simply asked again.
            if not call.method.startswith("get_"):
                raise self._away(EOFError("the connection broke"))
            try:
                return self._run(call)
            except (OSError, TTransportException, EOFError) as error:
                self._close()
                raise self._away(error) from error

    def find(self, method: str, **args: Any) -> Any:
        """Like ``call``, but None if the Metastore says that there is no such object."""
        try:
            return self.call(method, **args)
        except OutsideRefused as error:
            if error.details["error"] == NoSuchObjectException.__name__:
                return None
            raise

    def close(self) -> None:
        with self._lock:
            self._close()

    def interrupt(self) -> None:
        """Makes a call that another thread waits for fail."""
        opened = self._socket
        if opened is not None:
            with contextlib.suppress(OSError, AttributeError):  # closed meanwhile
                opened.handle.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- the wire -----------------------------------------------------------------------------------------------------

    def _run(self, call: Call) -> Any:
        if self._transport is None:
            self._transport = self._connected()
            self._exchange(self._transport, Call("set_ugi", {"user_name": _USER, "group_names": []}))
        return self._exchange(self._transport, call)

    def _connected(self) -> TBufferedTransport:
        last: Exception | None = None
        for host, port in self._addresses:
            opened = TSocket(host, port)
            opened.setTimeout(min(self._timeout_s, CONNECT_S) * 1_000)
            try:
                opened.open()
                opened.setTimeout(self._timeout_s * 1_000)
            except (OSError, TTransportException) as error:
                last = error
                continue
            self._socket = opened
            return TBufferedTransport(opened, 1 << 16)
        raise last or EOFError("no address")

    def _exchange(self, transport: TBufferedTransport, call: Call) -> Any:
        method = METHODS[call.method]
        self.calls += 1
        transport.write(encode_call(call.method, self.calls & 0x7FFFFFFF, method.args(**call.args), CALL))
        transport.flush()
        version = read_i32(transport.readAll(4), 0) & 0xFFFFFFFF
        length = read_i32(transport.readAll(4), 0)
        if version & 0xFFFF0000 != _VERSION_1 or not 0 <= length <= _NAME_BYTES_MAX:
            raise EOFError("what answers there does not speak the Metastore's protocol")
        transport.readAll(length + 4)  # name and sequence number
        if version & 0xFF == EXCEPTION:
            text = self._received(transport, ApplicationError).message or "no reason was given"
            raise self._refused(call, "TApplicationException", text)
        assert method.result is not None  # noqa: S101 - one-way methods are not called
        result = self._received(transport, method.result)
        for name in result.__slots__:
            error = getattr(result, name)
            if isinstance(error, DeclaredError):
                raise self._refused(call, type(error).__name__, error.message or "no reason was given")
        return getattr(result, "success", None)

    @staticmethod
    def _received(transport: TBufferedTransport, kind: type[Any]) -> Any:
        """Decodes a struct in C, which asks for more bytes as it needs them."""
        value = kind()
        try:
            fastbinary.decode_binary(value, _Protocol(transport), [kind, kind.thrift_spec])
        except (TypeError, ValueError, OverflowError) as error:
            raise EOFError(f"the answer cannot be read: {error}") from error
        return value

    def _refused(self, call: Call, error: str, text: str) -> OutsideRefused:
        return OutsideRefused(
            f"the Metastore at {self.uri} refused {call.method}: {text.strip().splitlines()[0]} ({error})",
            uri=self.uri,
            method=call.method,
            error=error,
        )

    def _away(self, error: Exception) -> OutsideUnavailable:
        reason = " ".join(str(error).split()) or type(error).__name__
        return OutsideUnavailable(f"the Metastore at {self.uri} does not answer: {reason}", uri=self.uri)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None


class ApplicationError(Struct):
    """Thrift's own error: an unknown method, or a failure that the method does not declare."""

    __slots__ = ("message", "number")
    thrift_spec = (None, (1, 11, "message", "UTF8", None), (2, 8, "number", None, None))

    def __init__(self, message: str | None = None, number: int | None = None) -> None:
        self.message = message
        self.number = number


class _Protocol:
    """What the C codec reads from."""

    __slots__ = ("container_length_limit", "string_length_limit", "trans")

    def __init__(self, transport: TBufferedTransport) -> None:
        self.trans = transport
        self.string_length_limit = REPLY_BYTES_MAX
        self.container_length_limit = REPLY_BYTES_MAX


def copy_of(value: Any) -> Any:
    """An independent copy of a struct."""
    return decode_struct(type(value), encode_struct(value))
