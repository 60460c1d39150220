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

from lakemark_hms.wire.dispatch import Session
from lakemark_hms.wire.inbox import Inbox


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
        "lock",
        "out",
        "rejected",
        "running",
        "session",
        "sock",
        "used_at",
    )

    def __init__(self, sock: socket.socket, peer: str, message_bytes_max: int) -> None:
        self.sock = sock
        self.session = Session(peer)
        self.host = peer.rpartition(":")[0]
        self.inbox = Inbox(message_bytes_max)
        self.counted = 0  # bytes of the inbox in the server's sum
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

    def write(self, data: bytes | memoryview) -> memoryview | None:
        """Writes what the socket takes now. Returns the rest, or None; if the socket fails there is no rest."""
        rest = data
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
