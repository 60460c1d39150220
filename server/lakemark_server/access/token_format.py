"""Delegation tokens as Hadoop writes them, so that its clients can read, keep and present them."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final, NamedTuple

KIND: Final = "HIVE_DELEGATION_TOKEN"
_VERSION: Final = 0
_TEXT_BYTES_MAX: Final = 4_096
TOKEN_CHARACTERS_MAX: Final = 32_768


@dataclass(frozen=True, slots=True)
class Identifier:
    """What a token says of itself. Times are in milliseconds; ``number`` and ``key_id`` have 31 bits."""

    owner: str
    renewer: str
    real_user: str
    issued_ms: int
    last_ms: int
    number: int
    key_id: int

    def encoded(self) -> bytes:
        """As ``AbstractDelegationTokenIdentifier`` of Hadoop writes it."""
        texts = b"".join(_text(text.encode()) for text in (self.owner, self.renewer, self.real_user))
        numbers = b"".join(_number(one) for one in (self.issued_ms, self.last_ms, self.number, self.key_id))
        return bytes([_VERSION]) + texts + numbers

    @classmethod
    def decoded(cls, data: bytes) -> Identifier:
        """Raises ValueError."""
        reader = _Reader(data)
        if reader.take(1) != bytes([_VERSION]):
            raise ValueError("an unknown version")
        texts = [reader.bytes_().decode() for _ in range(3)]
        numbers = [reader.number() for _ in range(4)]
        reader.end()
        return cls(*texts, *numbers)  # type: ignore[arg-type]  # three texts, then four numbers


class Token(NamedTuple):
    """An identifier with its password. ``service`` is for its holder, who finds the token by it."""

    identifier: bytes
    password: bytes
    kind: str = KIND
    service: str = ""

    def text(self) -> str:
        """As Hadoop's ``Token.encodeToUrlString``."""
        parts = (self.identifier, self.password, self.kind.encode(), self.service.encode())
        return base64.urlsafe_b64encode(b"".join(_text(part) for part in parts)).rstrip(b"=").decode()

    @classmethod
    def of(cls, text: str) -> Token:
        """Raises ValueError."""
        if len(text) > TOKEN_CHARACTERS_MAX:
            raise ValueError("too long")
        plain = text.strip().rstrip("=").replace("+", "-").replace("/", "_")
        try:
            reader = _Reader(base64.b64decode(plain + "=" * (-len(plain) % 4), b"-_", validate=True))
        except binascii.Error as error:
            raise ValueError("no base 64") from error
        identifier, password = reader.bytes_(), reader.bytes_()
        kind, service = reader.bytes_().decode(), reader.bytes_().decode()
        reader.end()
        return cls(identifier, password, kind, service)


def _number(value: int) -> bytes:
    """Hadoop's WritableUtils.writeVLong: small ones in one byte, else their size and sign, then their bytes."""
    if -112 <= value <= 127:
        return value.to_bytes(1, "big", signed=True)
    negative = value < 0
    plain = ~value if negative else value
    size = (plain.bit_length() + 7) // 8
    return ((-120 if negative else -112) - size).to_bytes(1, "big", signed=True) + plain.to_bytes(size, "big")


def _text(data: bytes) -> bytes:
    return _number(len(data)) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise ValueError("it ends too early")
        self._at += size
        return piece

    def number(self) -> int:
        first = int.from_bytes(self.take(1), "big", signed=True)
        if first >= -112:
            return first
        negative = first < -120
        plain = int.from_bytes(self.take(-first - (120 if negative else 112)), "big")
        return ~plain if negative else plain

    def bytes_(self) -> bytes:
        size = self.number()
        if not 0 <= size <= _TEXT_BYTES_MAX:
            raise ValueError("a part is too long")
        return self.take(size)

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError("there is more behind it")
