"""Answers that are there before a call is made: what the socket server needs of who keeps them.

The server asks twice. When bytes have come, it asks on its loop, before it looks at them at all (``at_once``): answers
are known by the bytes of their requests, and one is given only if nothing has to be waited for. Otherwise, when the
request is whole, it asks for the answer that is kept (``kept``, ``now``), and lets one thread find out which answers
hold, for all calls that wait at that time (``answers``). If one does not hold, the call is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from lakemark_hms.wire.inbox import Message

REQUEST_BYTES_MAX = 4_096
"""Larger requests are not looked up."""

Kept: TypeAlias = Any
"""An answer that may have become old. Only who keeps it looks inside."""


class ReadyAnswers(Protocol):
    """Thread-safe. Nothing raises."""

    def at_once(self, request: bytes) -> bytes | None:
        """The whole reply, as fresh as if the call were made now; None: it takes longer, or these bytes are no single
        request."""

    def kept(self, message: Message) -> Kept | None:
        """The answer to the request that is kept."""

    def now(self, kept: Kept, seqid: int) -> bytes | None:
        """As ``at_once``, the whole reply of a kept answer."""

    def answers(self, asked: Sequence[tuple[Kept, Message]]) -> Sequence[bytes | None]:
        """The whole replies to those whose kept answers are as fresh as if the calls were made now. May wait."""


def request_key(message: Message) -> bytes | None:
    """The request without its sequence number; None if it is too large, or written in the old form.

    ``at_once`` makes the same of the bytes of a request: what it has a key for is whole, and alone.
    """
    header = message.header
    length = len(header.name)  # ASCII, which the header was checked for
    begin = header.body - 12 - length
    data = message.data
    if begin < 0 or message.end - begin > REQUEST_BYTES_MAX or data[begin : begin + 4] != b"\x80\x01\x00\x01":
        return None
    return data[begin : header.body - 4] + data[header.body : message.end]
