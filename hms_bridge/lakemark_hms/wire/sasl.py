"""SASL as Thrift carries it: a negotiation in frames with a status, then calls and replies in frames with a length.

A mechanism is a conversation: it is given what the client says, and gives a challenge, or a step that has to be taken
to go on. Only steps may wait, so they are run elsewhere, and the layer is told what came of them. The last step says
who the client is, and which protection it has agreed on for what is sent from then on: with most mechanisms none, as
TLS protects what is sent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
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
_PROTECTION_BYTES_MAX: Final = 4 << 10  # that a protection adds to a frame
_FAILED: Final = "the user does not exist, or the password is wrong"


class Protection(Protocol):
    """What a mechanism does to each frame once it has ended. Thread-safe."""

    @property
    def plain_bytes_max(self) -> int:
        """Of a reply, in one frame: the client takes no larger ones."""

    def wrap(self, data: bytes) -> bytes:
        """The frame for a part of a reply. Raises OSError."""

    def unwrap(self, frame: bytes) -> bytes:
        """What a frame of the client means. Raises LayerError if somebody has changed, repeated or dropped one."""


@dataclass(frozen=True, slots=True)
class Proven:
    """The end of a negotiation: who the client is. ``last``: what the mechanism says with it."""

    user: str
    last: bytes = b""
    protection: Protection | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The end of a negotiation that has failed. ``why`` is for the client, ``details`` for the log only."""

    why: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """Goes on with a negotiation.

    ``known``: its end, if that is known already; ``run`` is not needed then. ``run`` gives a challenge or the end; it
    may wait, and never raises.
    """

    run: Callable[[], bytes | Proven | Refused]
    known: Proven | None = None


class Conversation(Protocol):
    """One negotiation by one mechanism."""

    def next(self, response: bytes) -> bytes | Step:
        """A challenge, or the step that leads to one or ends the negotiation. Raises LayerError."""


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

    def next(self, response: bytes) -> bytes | Step:
        try:
            acting, user, password = response.decode().split("\0")
        except ValueError:
            raise LayerError("the response is none of PLAIN", framed(BAD, b"no response of PLAIN")) from None
        if not user or not password or acting not in ("", user):
            why = "PLAIN needs a user and a password, and nobody may act for another user"
            raise LayerError(why, framed(BAD, why.encode()))

        def asked(check: Callable[[str, str], bool]) -> Proven | None:
            try:
                return Proven(user) if check(user, password) is True else None
            except Exception as error:  # a check of somebody else's
                self._on_error(error)
                return None

        return Step(lambda: asked(self._check) or Refused(_FAILED), asked(self._known))


class SaslLayer:
    """``message_bytes_max``: of a frame, which holds a message or a part of one."""

    ended: Final = False  # SASL has no word for it

    def __init__(self, mechanisms: Mechanisms, message_bytes_max: int) -> None:
        self.open = False
        self.mechanism = ""  # that the client has chosen
        self._mechanisms = mechanisms
        self._bytes_max = message_bytes_max
        self._conversation: Conversation | None = None
        self._step: Step | None = None
        self._stepping = False
        self._protection: Protection | None = None
        self._kept = b""
        self._left = 0  # of the frame that is being received
        self._frame = bytearray()  # what came of it, if it has to be whole
        self._own = b""

    @property
    def held(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._frame)

    def drop(self) -> None:
        """Forgets what came of a frame: the connection ends."""
        self._frame.clear()

    def step(self) -> Step | None:
        """What has to be run for the negotiation to go on, once."""
        if self._step is None or self._stepping:
            return None
        self._stepping = True
        return self._step

    def go_on(self, said: bytes | Proven | Refused) -> None:
        """Takes what came of the step; ``answers`` tells the client. Refused: the connection is to be closed then."""
        match said:
            case Proven():
                self.open, self._protection = True, said.protection
                self._own = framed(COMPLETE, said.last)
            case Refused():
                self._own = framed(BAD, said.why.encode())
            case _:
                self._step, self._stepping = None, False
                self._own = framed(OK, said)

    def received(self, data: bytes) -> bytes:
        if not self.open:
            return self._negotiate(data)
        return self._frames(data) if self._protection is None else self._protected(data, self._protection)

    def sent(self, data: bytes) -> bytes:
        if not self.open:
            return data
        pieces = []
        protection = self._protection
        size = _FRAME_BYTES_MAX if protection is None else min(_FRAME_BYTES_MAX, protection.plain_bytes_max)
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            if protection is not None:
                piece = protection.wrap(piece)
            pieces += [_LENGTH.pack(len(piece)), piece]
        return b"".join(pieces)

    def answers(self) -> bytes:
        own, self._own = self._own, b""
        return own

    def _negotiate(self, data: bytes) -> bytes:
        if self._step is not None:  # the client has to wait for the answer
            raise LayerError("the client said more before it was answered")
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
            if self._step is not None and self._kept:
                raise LayerError("the client said more before it was answered", framed(BAD, b"too early"))
        return b""

    def _take(self, status: int, payload: bytes) -> None:
        if status == START:
            name = payload[:_NAME_BYTES_MAX].decode("ascii", "replace")
            begin = self._mechanisms.get(name)
            if begin is None or self._conversation is not None:
                why = f"SASL {name!r} is not served here; there are: {', '.join(self._mechanisms)}"
                raise LayerError(why, framed(BAD, why.encode()))
            self._conversation, self.mechanism = begin(), name
            return
        if self._conversation is None:
            why = "the negotiation begins with the name of a mechanism"
            raise LayerError(why, framed(BAD, why.encode()))
        said = self._conversation.next(payload)
        if isinstance(said, bytes):
            self._own += framed(OK, said)
        else:
            self._step = said

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

    def _protected(self, data: bytes, protection: Protection) -> bytes:
        """As ``_frames``, but a frame means something only once it is whole."""
        plain: list[bytes] = []
        for piece in self._pieces(data, self._check_protected):
            self._frame += piece
            if not self._left:
                frame, self._frame = bytes(self._frame), bytearray()
                plain.append(protection.unwrap(frame))
        return b"".join(plain)

    def _frames(self, data: bytes) -> bytes:
        if not self._kept and self._left >= len(data):
            self._left -= len(data)
            return data
        return b"".join(self._pieces(data, self._check_plain))

    def _pieces(self, data: bytes, check: Callable[[int], None]) -> Iterator[bytes]:
        """What came of frames, without their lengths, for which ``check`` raises LayerError. After each piece ``_left``
        says how much of its frame is still to come."""
        data = self._kept + data
        at = 0
        while at < len(data):
            if not self._left:
                if len(data) - at < _LENGTH.size:
                    break
                (self._left,) = _LENGTH.unpack_from(data, at)
                at += _LENGTH.size
                check(self._left)
                continue
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            yield piece
        self._kept = data[at:]  # less than a length

    def _check_protected(self, size: int) -> None:
        if not 0 < size <= self._bytes_max + _PROTECTION_BYTES_MAX:
            raise LayerError(f"a protected frame of {size} bytes: it has 1 to {self._bytes_max}")

    def _check_plain(self, size: int) -> None:
        if size > self._bytes_max:
            raise LayerError(f"a frame of {size} bytes, more than {self._bytes_max}")


def framed(status: int, payload: bytes) -> bytes:
    """A frame of the negotiation."""
    return _HEAD.pack(status, len(payload)) + payload
