"""Changes of recorded messages: most stay messages, and mean something else; the others are broken in many ways."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Final

from lakemark_hms.wire import codec

_NUMBERS: Final = (0, 1, -1, 2, 127, 255, 65_535, 2**31 - 1, -(2**31), 2**24)
_WIDE: Final = (*_NUMBERS, 2**63 - 1, -(2**63), 2**40)
_TEXTS: Final = (
    b"", b"default", b"t", b"@", b"@hive#default", b"t@v1", b"%", b"*", b"|", b"'", b"\0", b"/", b"..", b"\xff\xfe",
    b"lakemark.type", b"lake", b"dt=1", b"a" * 300, b"file:/dev/null/x", b"transient_lastDdlTime", b"and or not ((((",
)  # fmt: skip
_SIZE_MAX: Final = 64_000


class Mutations:
    """Endless, and the same for the same seed."""

    def __init__(self, messages: Sequence[bytes], seed: int) -> None:
        self._messages = messages
        self._random = random.Random(seed)
        self._kinds = (
            self._flip, self._flip, self._number, self._wide_number, self._text, self._text, self._text, self._cut,
            self._repeat, self._splice, self._other_body, self._type, self._nothing,
        )  # fmt: skip

    def next(self) -> bytes:
        message = bytearray(self._pick())
        for _ in range(self._random.choice((1, 1, 1, 2, 4))):
            message = self._random.choice(self._kinds)(message) or message
        return bytes(message[:_SIZE_MAX])

    def _pick(self) -> bytes:
        return self._random.choice(self._messages)

    def _at(self, message: bytearray, width: int = 1) -> int:
        """A place, mostly behind the name of the method, so that the call is one of it."""
        body = 12 + int.from_bytes(message[4:8])  # of headers with a version
        low = 0 if self._random.random() < 0.05 or body >= len(message) - width else body
        return self._random.randint(low, max(low, len(message) - width))

    def _flip(self, message: bytearray) -> bytearray:
        at = self._at(message)
        if at < len(message):
            message[at] ^= 1 << self._random.randrange(8)
        return message

    def _number(self, message: bytearray) -> bytearray:
        at = self._at(message, 4)
        message[at : at + 4] = struct.pack("!i", self._random.choice(_NUMBERS))
        return message

    def _wide_number(self, message: bytearray) -> bytearray:
        at = self._at(message, 8)
        message[at : at + 8] = struct.pack("!q", self._random.choice(_WIDE))
        return message

    def _text(self, message: bytearray) -> bytearray:
        """Another text in the place of one, with its length."""
        places = []
        at = message.find(b"\x0b\x00", 12)
        while 0 <= at < len(message) - 8:
            (size,) = struct.unpack_from("!i", message, at + 3)
            if 0 <= size <= len(message) - at - 7:
                places.append((at + 3, size))
            at = message.find(b"\x0b\x00", at + 1)
        if not places:
            return message
        at, size = self._random.choice(places)
        text = self._random.choice(_TEXTS)
        if self._random.random() < 0.3:
            text = bytes(message[at + 4 : at + 4 + size]) + text
        message[at : at + 4 + size] = struct.pack("!i", len(text)) + text
        return message

    def _cut(self, message: bytearray) -> bytearray:
        at = self._at(message)
        del message[at : at + self._random.choice((1, 2, 4, 8, 50))]
        return message

    def _repeat(self, message: bytearray) -> bytearray:
        at = self._at(message)
        part = message[at : at + self._random.choice((1, 4, 7, 30, 200))]
        message[at:at] = part * self._random.choice((1, 1, 2, 20))
        return message

    def _splice(self, message: bytearray) -> bytearray:
        other = self._pick()
        start = self._random.randrange(len(other))
        at = self._at(message)
        message[at:at] = other[start : start + 100]
        return message

    def _other_body(self, message: bytearray) -> bytearray:
        """The arguments of another method."""
        other = self._pick()
        theirs = codec.read_header(other)
        try:
            mine = codec.read_header(bytes(message))
        except codec.WireError:  # it was changed there
            return message
        if mine is None or theirs is None:
            return message
        return message[: mine.body] + other[theirs.body :]

    def _type(self, message: bytearray) -> bytearray:
        at = self._at(message, 3)
        message[at : at + 3] = bytes([self._random.randrange(18), 0, self._random.randrange(20)])
        return message

    @staticmethod
    def _nothing(message: bytearray) -> bytearray:
        return message


def is_whole(message: bytes) -> bool:
    """Whether a server knows that the message has ended, or that it never can: it will answer or close."""
    try:
        header = codec.read_header(message)
        if header is None:
            return False
        if header.kind not in (codec.CALL, codec.ONEWAY):
            return True
        codec.end_of_struct(message, header.body)
    except codec.TruncatedError:
        return False
    except codec.WireError:
        return True
    return True
