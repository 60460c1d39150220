"""The SASL mechanism DIGEST-MD5 (RFC 2831), by which Hadoop's clients present delegation tokens.

The name is the identifier of a token, and both sides prove to each other that they know its password without sending
it. The hash is weak by now; passwords of tokens are random, though, so that nobody can guess them from what was sent.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from lakemark_hms.wire.layers import LayerError
from lakemark_hms.wire.sasl import BAD, Proven, Refused, Step, framed

# What Hadoop's clients are told, whichever host they have connected to.
_REALM: Final = "default"
_URI: Final = "null/default"
_COUNT: Final = "00000001"  # each connection logs in anew
_DIRECTIVE: Final = re.compile(rb'\s*([a-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,\s*|$)', re.DOTALL)
_DIRECTIVES_MAX: Final = 20


class Account(NamedTuple):
    """The user behind a name, and the password that goes with the name."""

    user: str
    password: str


Accounts: TypeAlias = Callable[[str], Account | Refused]
"""Finds the account of a name. May wait, and never raises."""


class DigestMd5:
    """One negotiation."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._nonce = secrets.token_urlsafe(24)
        self._asked = False

    def next(self, response: bytes) -> bytes | Step:
        if not self._asked:
            if response:
                raise _malformed("DIGEST-MD5 begins with the challenge of the service")
            self._asked = True
            return f'realm="{_REALM}",nonce="{self._nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'.encode()
        given = _directives(response)
        self._check(given)
        return Step(lambda: self._proven(given))

    def _check(self, given: Mapping[str, str]) -> None:
        if not given.get("username") or not given.get("cnonce") or not given.get("response"):
            raise _malformed("the response is none of DIGEST-MD5")
        if not hmac.compare_digest(given.get("nonce", "").encode(), self._nonce.encode()):
            raise _malformed("the response is one to another challenge")
        if given.get("qop", "auth") != "auth":
            raise _malformed("DIGEST-MD5 only logs in here (qop=auth): use TLS, or Kerberos, to protect what is sent")
        if given.get("nc") != _COUNT or given.get("realm") != _REALM or given.get("digest-uri", "").lower() != _URI:
            raise _malformed(f"the response is not for the realm {_REALM!r} and the service {_URI!r}")
        if given.get("authzid", given["username"]) != given["username"]:
            raise _malformed("nobody may act for another user")

    def _proven(self, given: Mapping[str, str]) -> Proven | Refused:
        account = self._accounts(given["username"])
        if isinstance(account, Refused):
            return account
        expected = _digest(given, account.password, "AUTHENTICATE")
        if not hmac.compare_digest(expected.encode(), given["response"].encode()):
            return Refused("the delegation token is not valid", f"the password of a token of {account.user} is wrong")
        return Proven(account.user, f"rspauth={_digest(given, account.password, '')}".encode())


def _directives(response: bytes) -> dict[str, str]:
    given: dict[str, str] = {}
    at = 0
    while at < len(response):
        part = _DIRECTIVE.match(response, at)
        if part is None or part[1].decode() in given or len(given) == _DIRECTIVES_MAX:
            raise _malformed("the response is none of DIGEST-MD5")
        value = part[3] if part[2] is None else re.sub(rb"\\(.)", rb"\1", part[2], flags=re.DOTALL)
        try:
            given[part[1].decode()] = value.decode()
        except UnicodeDecodeError:
            raise _malformed("the response is none of DIGEST-MD5") from None
        at = part.end()
    return given


def _digest(given: Mapping[str, str], password: str, method: str) -> str:
    """RFC 2831, 2.1.2.1; with an empty method what the service answers (2.1.3)."""
    first = _md5(f"{given['username']}:{_REALM}:{password}".encode()) + f":{given['nonce']}:{given['cnonce']}".encode()
    if "authzid" in given:
        first += f":{given['authzid']}".encode()
    second = f"{method}:{given['digest-uri']}".encode()
    text = ":".join(
        [_md5(first).hex(), given["nonce"], given["nc"], given["cnonce"], "auth", _md5(second).hex()],
    )
    return _md5(text.encode()).hex()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data).digest()  # noqa: S324  # the protocol's


def _malformed(why: str) -> LayerError:
    return LayerError(why, framed(BAD, why.encode()))
