"""One accepted socket, and its state between the loop and the workers.

The loop reads; workers run calls and write their replies. ``running`` says who owns the connection's next step. While
it is set, from when a call is handed over until its reply is written, that is the worker, or the loop if it writes the
rest of a reply for which the socket had no room. Only the loop closes a socket, and only while nothing runs, so that no
worker can write to a file descriptor that was given to another connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from lakemark_hms.wire.dispatch import Session
from lakemark_hms.wire.inbox import Inbox
from lakemark_hms.wire.layers import Layer
from lakemark_hms.wire.sasl import SaslLayer


class Connection:
    __slots__ = (
        "broken",
        "closed",
        "counted",
        "deadline",
        "eof",
        "host",
        "inbox",
        "interest",
        "layer",
        "lock",
        "out",
        "receive",
        "rejected",
        "running",
        "sasl",
        "session",
        "sock",
        "used_at",
    )

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        message_bytes_max: int,
        layer: Layer | None = None,
        sasl: SaslLayer | None = None,
    ) -> None:
        self.sock = sock
        self.layer = layer  # between the socket and the protocol
        self.sasl = sasl  # the one among these that has to log the client in
        # The bytes of calls that came; None if none of these have come. Raises BlockingIOError, OSError, LayerError.
        self.receive: Callable[[int], bytes | None] = sock.recv if layer is None else self._receive
        self.session = Session(peer)
        self.host = peer.rpartition(":")[0]
        self.inbox = Inbox(message_bytes_max)
        self.counted = 0  # of ``held``, in the server's sum
        self.lock = threading.Lock()
        self.running = False  # guarded by lock
        self.out: memoryview | None = None  # the rest of a reply that the socket did not take
        self.interest = 0  # what the selector watches it for
        self.eof = False  # the peer sends no more
        self.broken = False  # nothing can be written any more
        self.rejected = False  # further bytes are dropped
        self.closed = False
        self.deadline: float | None = None  # when the loop gives up on what it waits for
        self.used_at = time.monotonic()  # when bytes were last read or written

    @property
    def open(self) -> bool:
        """Whether calls may come: the handshakes are over."""
        return self.layer is None or self.layer.open

    @property
    def ended(self) -> bool:
        """Whether the peer has said that nothing more comes, though its socket is open."""
        return self.layer is not None and self.layer.ended

    @property
    def held(self) -> int:
        """Bytes that were received and are not worked on."""
        return self.inbox.size if self.sasl is None else self.inbox.size + self.sasl.held

    def _receive(self, size: int) -> bytes | None:
        if self.ended:
            return b""
        data = self.sock.recv(size)
        if not data or self.layer is None:
            return data
        try:
            plain = self.layer.received(data)
        finally:
            self.say()
        return b"" if self.ended and not plain else plain or None

    def say(self) -> None:
        """Sends what a handshake has to say. Only while no reply is sent."""
        try:
            own = self.layer.answers() if self.layer is not None else b""
        except OSError:  # of TLS
            self.broken = True
            return
        if own and self._send(own) is not None:
            self.broken = True  # so little has room in any honest client's window

    def write(self, reply: bytes) -> memoryview | None:
        """Writes what the socket takes now. Returns the rest, or None; if the socket fails there is no rest."""
        if self.layer is not None:
            try:
                reply = self.layer.sent(reply)
            except OSError:  # of TLS
                self.broken = True
                return None
        return self._send(reply)

    def resume(self) -> memoryview | None:
        """Writes more of the rest that ``write`` has left; returns what it returns."""
        return None if self.out is None else self._send(self.out)

    def _send(self, rest: bytes | memoryview) -> memoryview | None:
        try:
            while (sent := self.sock.send(rest)) < len(rest):
                rest = memoryview(rest)[sent:]
        except (BlockingIOError, InterruptedError):
            return memoryview(rest)
        except OSError:
            self.broken = True
        return None

    def finish(self, rest: memoryview | None) -> bool:
        """Ends a call in the worker that ran it. Returns whether the loop has to attend to the connection."""
        with self.lock:
            if rest is not None and not self.broken:
                self.out = rest
                return True
            self.running = False
            return self.broken or self.eof or self.inbox.size > 0

    def abort(self) -> None:
        """Makes reads and writes fail from now on, without closing the socket."""
        self.broken = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
