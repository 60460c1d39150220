"""Delegation tokens: who has logged in gets one for those who work for it and cannot log in themselves.

They work as Hadoop's. A token is an identifier and its password, which only the service can make: an HMAC of the
identifier with a master key. The store has the identifiers and the master keys, so a token is known to all processes of
a store. Each expires after a while unless its renewer renews it, and in any case after its lifetime.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Final

import structlog

from lakemark_core.errors import InvalidArgument, LimitExceeded
from lakemark_proto.store.v1.tokens_pb2 import DelegationTokenRecord, MasterKeyRecord
from lakemark_server.access.token_format import Identifier, Token
from lakemark_server.kv import ReadTransaction, Transaction, counter
from lakemark_server.store.keyspace import MASTER_KEYS, TOKEN_COUNTS, TOKENS, TOKENS_DUE
from lakemark_server.store.mutations import Mutation, Mutations

KEY_MS: Final = 86_400_000
"""How long new tokens are made with one master key, as in Hive."""
NAME_CHARACTERS_MAX: Final = 256
_SECRET_BYTES: Final = 32
_NUMBER_BITS: Final = 31
_SWEPT_AT_ONCE: Final = 200
_UNKNOWN: Final = "the delegation token has expired, was cancelled, or was never given out here"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The defaults of the times are Hive's. ``of_owner_max``: tokens that one user may have at once."""

    lifetime_ms: int = 7 * 86_400_000
    renew_ms: int = 86_400_000
    of_owner_max: int = 10_000


@dataclass(frozen=True, slots=True)
class Secret:
    """Whose token it is, and its password."""

    owner: str
    password: bytes

    def __repr__(self) -> str:
        return f"Secret({self.owner!r})"


class DelegationTokens:
    """Thread-safe."""

    def __init__(self, mutations: Mutations, limits: TokenLimits) -> None:
        self._mutations = mutations
        self._limits = limits

    def issue(self, owner: str, renewer: str) -> str:
        """A new token as a text. Without a ``renewer`` nobody can renew it. Raises InvalidArgument, LimitExceeded."""
        for name in (owner, renewer):
            if len(name) > NAME_CHARACTERS_MAX or not (name.isprintable() or not name):
                raise InvalidArgument(f"a name in a delegation token has at most {NAME_CHARACTERS_MAX} characters")

        def body(mutation: Mutation) -> tuple[Identifier, bytes]:
            tx, now_ms = mutation.tx, mutation.now_ms
            if _count(tx, owner) >= self._limits.of_owner_max:
                raise LimitExceeded(
                    f"{owner} has {self._limits.of_owner_max} delegation tokens; cancel some, or wait until they expire"
                )
            key_id, secret = self._current_key(tx, now_ms)
            number = secrets.randbits(_NUMBER_BITS)
            while tx.get(TOKENS.key(owner, number)) is not None:
                number = secrets.randbits(_NUMBER_BITS)
            last_ms = now_ms + self._limits.lifetime_ms
            made = Identifier(owner, renewer, "", now_ms, last_ms, number, key_id)
            _put(tx, made, min(now_ms + self._limits.renew_ms, last_ms))
            _add(tx, owner, 1)
            return made, secret

        made, secret = self._mutations.run(body)
        _log.info("issued a delegation token", owner=owner, renewer=renewer, number=made.number)
        identifier = made.encoded()
        return Token(identifier, _password(secret, identifier)).text()

    def renew(self, text: str, user: str) -> int:
        """When the token expires now, in ms. Raises InvalidArgument, also for a user who is not its renewer."""

        def body(mutation: Mutation) -> tuple[Identifier, int]:
            own, expires_ms = _presented(mutation.tx, text, mutation.now_ms)
            if own.renewer != user:
                renewer = f"only {own.renewer} may" if own.renewer else "it has no renewer"
                raise InvalidArgument(f"{user} may not renew the delegation token of {own.owner}: {renewer}")
            later_ms = min(mutation.now_ms + self._limits.renew_ms, own.last_ms)
            mutation.tx.clear(TOKENS_DUE.key(expires_ms, own.owner, own.number))
            _put(mutation.tx, own, later_ms)
            return own, later_ms

        own, later_ms = self._mutations.run(body)
        _log.info("renewed a delegation token", owner=own.owner, number=own.number, by=user)
        return later_ms

    def cancel(self, text: str, user: str) -> None:
        """Raises InvalidArgument, also for a user who is neither its owner nor its renewer."""

        def body(mutation: Mutation) -> Identifier:
            own, expires_ms = _presented(mutation.tx, text, mutation.now_ms)
            if user not in (own.owner, own.renewer):
                raise InvalidArgument(
                    f"{user} may not cancel the delegation token of {own.owner}: its owner and its renewer may"
                )
            _remove(mutation.tx, own.owner, own.number, expires_ms)
            return own

        own = self._mutations.run(body)
        _log.info("cancelled a delegation token", owner=own.owner, number=own.number, by=user)

    def secret_of(self, identifier: bytes) -> Secret:
        """What a client that names this token has to know. Raises InvalidArgument for one that is not valid."""

        def body(tx: ReadTransaction) -> Secret:
            own, _ = _known(tx, identifier, self._mutations.clock())
            return Secret(own.owner, _password(_secret(tx, own.key_id), identifier))

        return self._mutations.store.read(body)

    def sweep(self) -> int:
        """Removes tokens and master keys that have expired. Returns how many tokens. One small read if none has."""
        removed = 0
        while self._mutations.store.read(lambda tx: _due(tx, self._mutations.clock(), 1)):
            removed += self._mutations.run(_sweep_some)
        return removed

    def _current_key(self, tx: Transaction, now_ms: int) -> tuple[int, bytes]:
        newest = tx.get_range(*MASTER_KEYS.range(), limit=1, reverse=True)
        key_id = 1
        if newest:
            key_id = _whole(MASTER_KEYS.unpack(newest[0][0])[0])
            record = MasterKeyRecord.FromString(newest[0][1])
            lasts = record.expires_ms >= now_ms + self._limits.lifetime_ms  # else the lifetime was made longer
            if now_ms < record.made_ms + KEY_MS and lasts:
                return key_id, record.secret
            key_id += 1
        expires_ms = now_ms + KEY_MS + self._limits.lifetime_ms
        made = MasterKeyRecord(secret=secrets.token_bytes(_SECRET_BYTES), made_ms=now_ms, expires_ms=expires_ms)
        tx.set(MASTER_KEYS.key(key_id), made.SerializeToString())
        return key_id, made.secret


def _presented(tx: ReadTransaction, text: str, now_ms: int) -> tuple[Identifier, int]:
    """The valid token that somebody presents, and when it expires. Raises InvalidArgument."""
    try:
        token = Token.of(text)
    except ValueError as error:
        raise InvalidArgument(f"this is no delegation token: {_reason(error)}") from None
    own, expires_ms = _known(tx, token.identifier, now_ms)
    if not hmac.compare_digest(_password(_secret(tx, own.key_id), token.identifier), token.password):
        raise InvalidArgument("the password of the delegation token is wrong")
    return own, expires_ms


def _known(tx: ReadTransaction, identifier: bytes, now_ms: int) -> tuple[Identifier, int]:
    try:
        own = Identifier.decoded(identifier)
    except ValueError as error:
        raise InvalidArgument(f"this is no delegation token: {_reason(error)}") from None
    known = 0 < len(own.owner) <= NAME_CHARACTERS_MAX and 0 <= own.number < 1 << _NUMBER_BITS
    stored = tx.get(TOKENS.key(own.owner, own.number)) if known else None
    record = DelegationTokenRecord.FromString(stored or b"")
    if stored is None or record.identifier != identifier or record.expires_ms <= now_ms:
        raise InvalidArgument(_UNKNOWN)
    return own, record.expires_ms


def _secret(tx: ReadTransaction, key_id: int) -> bytes:
    stored = tx.get(MASTER_KEYS.key(key_id))
    if stored is None:
        raise InvalidArgument(_UNKNOWN)
    return MasterKeyRecord.FromString(stored).secret


def _put(tx: Transaction, own: Identifier, expires_ms: int) -> None:
    record = DelegationTokenRecord(identifier=own.encoded(), expires_ms=expires_ms)
    tx.set(TOKENS.key(own.owner, own.number), record.SerializeToString())
    tx.set(TOKENS_DUE.key(expires_ms, own.owner, own.number), b"")


def _remove(tx: Transaction, owner: str, number: int, expires_ms: int) -> None:
    tx.clear(TOKENS.key(owner, number))
    tx.clear(TOKENS_DUE.key(expires_ms, owner, number))
    _add(tx, owner, -1)


def _sweep_some(mutation: Mutation) -> int:
    tx, now_ms = mutation.tx, mutation.now_ms
    due = _due(tx, now_ms, _SWEPT_AT_ONCE)
    for key in due:
        expires_ms, owner, number = TOKENS_DUE.unpack(key)
        _remove(tx, str(owner), _whole(number), _whole(expires_ms))
    for key, value in tx.get_range(*MASTER_KEYS.range()):
        if MasterKeyRecord.FromString(value).expires_ms <= now_ms:
            tx.clear(key)
    return len(due)


def _due(tx: ReadTransaction, now_ms: int, limit: int) -> list[bytes]:
    begin, _ = TOKENS_DUE.range()
    return [key for key, _ in tx.get_range(begin, TOKENS_DUE.key(now_ms + 1), limit=limit)]


def _count(tx: ReadTransaction, owner: str) -> int:
    return counter(tx.get(TOKEN_COUNTS.key(owner)))


def _add(tx: Transaction, owner: str, number: int) -> None:
    """The counter goes with the last token, so that users who have left leave nothing."""
    left = _count(tx, owner) + number
    if left > 0:
        tx.set(TOKEN_COUNTS.key(owner), left.to_bytes(8, "little"))
    else:
        tx.clear(TOKEN_COUNTS.key(owner))


def _password(secret: bytes, identifier: bytes) -> bytes:
    return hmac.digest(secret, identifier, "sha1")


def _whole(item: object) -> int:
    if not isinstance(item, int):
        raise TypeError("a key of tokens without its number")
    return item


def _reason(error: ValueError) -> str:
    return "it has a name that is no text" if isinstance(error, UnicodeDecodeError) else str(error)
