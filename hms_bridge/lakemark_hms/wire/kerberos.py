"""The SASL mechanism GSSAPI (RFC 4752) with Kerberos 5, by the system's library.

Imported only if the service is to use it, since the library is an extra of the distribution.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import gssapi  # the extra "kerberos"
from gssapi.raw.misc import GSSError

from lakemark_core.errors import InvalidArgument
from lakemark_hms.principals import short_name
from lakemark_hms.wire.layers import LayerError
from lakemark_hms.wire.sasl import Proven, Refused, Step

QOP_BITS: Final = {"auth": 1, "auth-int": 2, "auth-conf": 4}
_RECEIVED_BYTES_MAX: Final = 0xFFFFFF  # the largest that the negotiation has room for; Java's clients do not heed it

# Codes of libkrb5's errors that a client can do something about; GSSAPI has them as unsigned numbers.
_EXPIRED, _REPEATED, _SKEWED = (code % (1 << 32) for code in (-1765328352, -1765328350, -1765328347))
_NOT_OURS: Final = frozenset(
    code % (1 << 32)
    for code in (
        -1765328353,  # bad integrity
        -1765328349,  # for somebody else
        -1765328343,  # modified
        -1765328340,  # key of another version
        -1765328339,  # no key
        -1765328240,  # wrong principal
        -1765328203,  # not found in the keytab
        -1765328154,  # its version not found in the keytab
    )
)


@dataclass(frozen=True)
class Acceptor:
    """Accepts the tickets of clients. ``qops``: the qualities of protection that clients may choose."""

    principal: str
    realm: str
    qops: Collection[str]
    credentials: gssapi.Credentials = field(repr=False)

    @classmethod
    def of(cls, principal: str, realm: str, keytab: str, qops: Collection[str]) -> Acceptor:
        """Raises InvalidArgument if the keytab has no key of the principal, or cannot be read."""
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            credentials = gssapi.Credentials(
                name=name, usage="accept", mechs=[gssapi.MechType.kerberos], store={"keytab": f"FILE:{keytab}"}
            )
        except GSSError as error:
            raise InvalidArgument(
                f"hms_kerberos_keytab={keytab} cannot be used for {principal}: {_text(error)}"
            ) from error
        return cls(principal, realm, qops, credentials)


class _Stage(Enum):
    TICKET = auto()
    ESTABLISHED = auto()
    OFFERED = auto()


class Gssapi:
    """One negotiation. Each step may read the keytab, and writes that a ticket was seen, so it is run elsewhere."""

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._context = gssapi.SecurityContext(creds=acceptor.credentials, usage="accept")
        self._stage = _Stage.TICKET

    def next(self, response: bytes) -> bytes | Step:
        return Step(lambda: self._answered(response))

    def _answered(self, response: bytes) -> bytes | Proven | Refused:
        try:
            match self._stage:
                case _Stage.TICKET:
                    return self._accept(response)
                case _Stage.ESTABLISHED:
                    return self._offer() if not response else Refused("the client said more than Kerberos asks for")
                case _Stage.OFFERED:
                    return self._choose(response)
        except GSSError as error:
            return Refused(_for_client(error, self._acceptor.principal), _text(error))
        except UnicodeDecodeError:
            return Refused("the name of the client is no text")

    def _accept(self, ticket: bytes) -> bytes | Refused:
        if not ticket:
            return Refused("GSSAPI begins with a ticket of Kerberos, and the client sent none")
        challenge = self._context.step(ticket)
        if not self._context.complete or self._context.mech != gssapi.MechType.kerberos:
            return Refused("GSSAPI is Kerberos 5 here, whose tickets need no further questions")
        self._stage = _Stage.ESTABLISHED
        return challenge if challenge else self._offer()

    def _offer(self) -> bytes:
        bits = sum(QOP_BITS[qop] for qop in set(self._acceptor.qops))
        size = 0 if bits == QOP_BITS["auth"] else _RECEIVED_BYTES_MAX
        self._stage = _Stage.OFFERED
        offer: bytes = self._context.wrap(bytes([bits]) + size.to_bytes(3, "big"), False).message
        return offer

    def _choose(self, response: bytes) -> Proven | Refused:
        chosen = self._context.unwrap(response).message
        qop = next((qop for qop in self._acceptor.qops if chosen[:1] == bytes([QOP_BITS[qop]])), None)
        if len(chosen) < 4 or qop is None:
            return Refused(f"the client did not choose one of the offered qualities: {', '.join(self._acceptor.qops)}")
        principal = str(self._context.initiator_name)
        user = short_name(principal, self._acceptor.realm)
        if user is None:
            return Refused(
                f"{principal} is no user here: principals of {self._acceptor.realm} are, as name@{self._acceptor.realm}"
            )
        if chosen[4:] not in (b"", user.encode(), principal.encode()):
            return Refused(f"{principal} may not act for another user", f"{principal} asked to act for {chosen[4:]!r}")
        if qop == "auth":
            return Proven(user)
        limit = self._context.get_wrap_size_limit(int.from_bytes(chosen[1:4], "big"), qop == "auth-conf")
        if limit <= 0:
            return Refused(
                f"the client takes frames of {int.from_bytes(chosen[1:4], 'big')} bytes, too small for {qop}"
            )
        return Proven(user, protection=_Wrapped(self._context, qop == "auth-conf", limit))


class _Wrapped:
    """Frames that are signed, and encrypted if the client has chosen that."""

    def __init__(self, context: gssapi.SecurityContext, encrypted: bool, plain_bytes_max: int) -> None:
        self._context = context
        self._encrypted = encrypted
        self._lock = threading.Lock()
        self.plain_bytes_max = plain_bytes_max

    def wrap(self, data: bytes) -> bytes:
        try:
            with self._lock:
                frame: bytes = self._context.wrap(data, self._encrypted).message
        except GSSError as error:
            raise OSError(_text(error)) from error
        return frame

    def unwrap(self, frame: bytes) -> bytes:
        try:
            with self._lock:
                plain = self._context.unwrap(frame)
        except GSSError as error:
            raise LayerError(f"a frame was not as its client has protected it: {_text(error)}") from None
        if self._encrypted and not plain.encrypted:
            raise LayerError("a frame came as plain text, though the client has chosen to encrypt")
        data: bytes = plain.message
        return data


def _for_client(error: GSSError, principal: str) -> str:
    """What a client may know of an error: what it can do about it."""
    if error.min_code == _SKEWED:
        return "the clocks of the client and of this service differ by more than Kerberos allows"
    if error.min_code == _EXPIRED:
        return "the ticket has expired: log in to Kerberos again"
    if error.min_code == _REPEATED:
        return "the ticket was used before"
    if error.min_code in _NOT_OURS:
        return f"the ticket is none for {principal}, or its keytab has another key than the KDC"
    return "Kerberos does not accept the client; the log of the service says why"


def _text(error: GSSError) -> str:
    return " ".join(str(error).split())
