"""Collects the bytes of one connection until they are whole messages. No I/O: bytes in, messages out.

The end of an unframed message is found by walking it (``codec``), from its start each time that more bytes came.
Walking takes about a nanosecond a byte. So that a message which trickles in does not take the square of its size, a
message is walked at most eight times over as its bytes come, and after that only when ``retry_at`` has passed.
"""

from __future__ import annotations

from typing import NamedTuple

from lakemark_hms.wire.codec import CALL, ONEWAY, Header, TruncatedError, WireError, end_of_struct, read_header

_WALKS_MAX = 8
_WALK_SECONDS_PER_BYTE = 4e-9
_RETRY_SECONDS_MIN = 0.001


class Message(NamedTuple):
    """A whole request, which ends at ``data[end]``. Other messages may come before and behind it in ``data``."""

    header: Header
    data: bytes
    end: int

    @property
    def size(self) -> int:
        """How many bytes it keeps in memory."""
        return len(self.data)


class RejectedError(Exception):
    """The bytes can never become a message, so nothing behind them can be read either."""

    def __init__(self, header: Header | None, reason: str) -> None:
        super().__init__(reason)
        self.header = header


class Inbox:
    """Bytes received and not yet taken as messages; ``size`` is their number."""

    __slots__ = ("_at", "_chunks", "_header", "_message_bytes_max", "_walked", "_wanted", "retry_at", "size")

    def __init__(self, message_bytes_max: int) -> None:
        self.size = 0
        self.retry_at: float | None = None
        self._message_bytes_max = message_bytes_max
        self._chunks: list[bytes] = []
        self._at = 0  # how much of the first chunk is taken
        self._header: Header | None = None
        self._walked = 0
        self._wanted = 1  # a whole message needs at least so many bytes

    def feed(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.size += len(chunk)

    def take(self, now: float) -> Message | None:
        """The next message, or None if it is not complete yet. ``now`` is a monotonic time in seconds.

        Raises RejectedError, with the header where that could be read.
        """
        if self.size < self._wanted:
            return None
        if self._walked > _WALKS_MAX * self.size and self.size <= self._message_bytes_max:
            if self.retry_at is None:
                self.retry_at = now + max(_RETRY_SECONDS_MIN, self.size * _WALK_SECONDS_PER_BYTE)
            if now < self.retry_at:
                return None
        self.retry_at = None
        data = self._join()
        header = self._read_header(data)
        if header is None:
            return None
        missing = 0
        try:
            end = end_of_struct(data, header.body, self._message_bytes_max)
        except TruncatedError as error:
            missing, end = error.missing, len(data)
        except WireError as error:
            raise RejectedError(header, str(error)) from None
        if end + missing - self._at > self._message_bytes_max:
            raise RejectedError(header, f"the message is larger than {self._message_bytes_max} bytes")
        if missing:
            self._walked += self.size
            self._wanted = self.size + missing
            return None
        self._consume(data, end)
        return Message(header, data, end)

    def _read_header(self, data: bytes) -> Header | None:
        if self._header is None:
            try:
                self._header = read_header(data, self._at)
            except WireError as error:
                raise RejectedError(None, str(error)) from None
            if self._header is not None and self._header.kind not in (CALL, ONEWAY):
                raise RejectedError(self._header, f"a message of kind {self._header.kind} is not a call")
        return self._header

    def _join(self) -> bytes:
        if len(self._chunks) > 1:
            # Only here are bytes dropped that were taken already.
            self._chunks[0] = self._chunks[0][self._at :]
            shift, self._at = self._at, 0
            self._chunks = [b"".join(self._chunks)]
            if self._header is not None:
                self._header = self._header._replace(body=self._header.body - shift)
        return self._chunks[0]

    def _consume(self, data: bytes, end: int) -> None:
        self.size -= end - self._at
        self._at = end
        self._header = None
        self._walked = 0
        self._wanted = 1
        if end == len(data):
            self._chunks.clear()
            self._at = 0
