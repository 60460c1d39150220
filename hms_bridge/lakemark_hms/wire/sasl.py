"""SASL as Thrift carries it: a negotiation in frames with a status, then calls and replies in frames with a length.

A mechanism is a conversation: it is given what the client says, and gives a challenge, or what has to be checked to
know who the client is. Only checks may wait, so they are run elsewhere, and the layer is told how they ended. There is
no security layer of SASL itself: TLS protects what is sent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from lakemark_hms.wire import codec
from lakemark_hms.wire.layers import LayerError

START, OK, BAD, ERROR, COMPLETE = 1, 2, 3, 4, 5
_HEAD: Final = struct.Struct("!BI")
_LENGTH: Final = struct.Struct("!I")
_NEGOTIATION_BYTES_MAX: Final = 64 << 10
_NAME_BYTES_MAX: Final = 20
_FRAME_BYTES_MAX: Final = 8 << 20  # Thrift's clients take 16 MB by default
_FAILED: Final = "the user does not exist, or the password is wrong"


@dataclass(frozen=True, slots=True)
class Check:
    """Finds out who the client is.

    ``user``: who it is, if that is known already; ``run`` is not needed then. ``run`` gives the user, or None if it is
    nobody whom it may be; it may wait, and never raises.
    """

    user: str | None
    run: Callable[[], str | None]


class Conversation(Protocol):
    """One negotiation by one mechanism."""

    def next(self, response: bytes) -> bytes | Check:
        """A challenge, or the check that ends the negotiation. Raises LayerError."""


Mechanisms: TypeAlias = Mapping[str, Callable[[], Conversation]]
"""What begins a conversation, by the names that clients ask for."""


class Plain:
    """The mechanism PLAIN (RFC 4616): a name and a password.

    ``check`` may wait, and ``known`` may not; both may raise what they like.
    """

    def __init__(
        self,
        check: Callable[[str, str], bool],
        known: Callable[[str, str], bool],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._check = check
        self._known = known
        self._on_error = on_error

    def next(self, response: bytes) -> bytes | Check:
        try:
            acting, user, password = response.decode().split("\0")
        except ValueError:
            raise LayerError("the response is none of PLAIN", framed(BAD, b"no response of PLAIN")) from None
        if not user or not password or acting not in ("", user):
            why = "PLAIN needs a user and a password, and nobody may act for another user"
            raise LayerError(why, framed(BAD, why.encode()))

        def asked(check: Callable[[str, str], bool]) -> str | None:
            try:
                return user if check(user, password) is True else None
            except Exception as error:  # a check of somebody else's
                self._on_error(error)
                return None

        return Check(asked(self._known), lambda: asked(self._check))


class SaslLayer:
    """``message_bytes_max``: of a frame, which holds a message or a part of one."""

    ended: Final = False  # SASL has no word for it

    def __init__(self, mechanisms: Mechanisms, message_bytes_max: int) -> None:
        self.open = False
        self._mechanisms = mechanisms
        self._bytes_max = message_bytes_max
        self._conversation: Conversation | None = None
        self._check: Check | None = None
        self._checking = False
        self._kept = b""
        self._left = 0  # of the frame that is being received
        self._own = b""

    def check(self) -> Check | None:
        """What has to be run to know who the client is, once."""
        if self._check is None or self._checking:
            return None
        self._checking = True
        return self._check

    def end(self, user: str | None, why: str = _FAILED) -> None:
        """Ends the negotiation; ``answers`` tells the client. Without a user the connection is to be closed then."""
        self.open = user is not None
        self._own = framed(COMPLETE, b"") if self.open else framed(BAD, why.encode())

    def received(self, data: bytes) -> bytes:
        return self._frames(data) if self.open else self._negotiate(data)

    def sent(self, data: bytes) -> bytes:
        if not self.open:
            return data
        pieces = []
        for at in range(0, len(data), _FRAME_BYTES_MAX):
            piece = data[at : at + _FRAME_BYTES_MAX]
            pieces += [_LENGTH.pack(len(piece)), piece]
        return b"".join(pieces)

    def answers(self) -> bytes:
        own, self._own = self._own, b""
        return own

    def _negotiate(self, data: bytes) -> bytes:
        if self._check is not None:  # the client has to wait for the end of the negotiation
            raise LayerError("the client said more before the negotiation had ended")
        self._kept += data
        if self._kept[:1] == b"\x80":
            self._tell_without_sasl()
            return b""
        while len(self._kept) >= _HEAD.size:
            status, size = _HEAD.unpack_from(self._kept)
            # Java's clients say COMPLETE when they have nothing to say behind a response, and Python's OK.
            if status not in (START, OK, COMPLETE) or size > _NEGOTIATION_BYTES_MAX:
                why = "this port wants SASL: the client sent no frame of its negotiation"
                raise LayerError(why, framed(BAD, why.encode()))
            if len(self._kept) < _HEAD.size + size:
                break
            payload = self._kept[_HEAD.size : _HEAD.size + size]
            self._kept = self._kept[_HEAD.size + size :]
            self._take(status, payload)
            if self._check is not None and self._kept:
                raise LayerError("the client said more before the negotiation had ended", framed(BAD, b"too early"))
        return b""

    def _take(self, status: int, payload: bytes) -> None:
        if status == START:
            name = payload[:_NAME_BYTES_MAX].decode("ascii", "replace")
            begin = self._mechanisms.get(name)
            if begin is None or self._conversation is not None:
                why = f"SASL {name!r} is not served here; there are: {', '.join(self._mechanisms)}"
                raise LayerError(why, framed(BAD, why.encode()))
            self._conversation = begin()
            return
        if self._conversation is None:
            why = "the negotiation begins with the name of a mechanism"
            raise LayerError(why, framed(BAD, why.encode()))
        said = self._conversation.next(payload)
        if isinstance(said, bytes):
            self._own += framed(OK, said)
        else:
            self._check = said

    def _tell_without_sasl(self) -> None:
        """A client that begins with a call is told in its own protocol, as soon as the call's name has come."""
        try:
            header = codec.read_header(self._kept)
        except codec.WireError as error:
            raise LayerError(str(error)) from None
        if header is not None or len(self._kept) > _NEGOTIATION_BYTES_MAX:
            why = "this port wants SASL, so that clients prove who they are: see docs/security.md"
            answer = b""
            if header is not None:
                answer = codec.application_error(header.name, header.seqid, codec.PROTOCOL_ERROR, why)
            raise LayerError("the client does not use SASL", answer)

    def _frames(self, data: bytes) -> bytes:
        if not self._kept and self._left >= len(data):
            self._left -= len(data)
            return data
        data = self._kept + data
        plain: list[bytes] = []
        at = 0
        while at < len(data):
            if not self._left:
                if len(data) - at < _LENGTH.size:
                    break
                (self._left,) = _LENGTH.unpack_from(data, at)
                at += _LENGTH.size
                if self._left > self._bytes_max:
                    raise LayerError(f"a frame of {self._left} bytes, more than {self._bytes_max}")
                continue
            piece = data[at : at + self._left]
            plain.append(piece)
            at += len(piece)
            self._left -= len(piece)
        self._kept = data[at:]  # less than a length
        return b"".join(plain)


def framed(status: int, payload: bytes) -> bytes:
    """A frame of the negotiation."""
    return _HEAD.pack(status, len(payload)) + payload
