"""Which requests are let in, and what browsers may do with the answers. Pure.

A page on another site can make a browser send requests here. It cannot read the answers, unless it makes its own name
point to this address (DNS rebinding): so requests must name a host that nobody else can claim. And it cannot act, since
an action needs a token that only our own pages have, and an ``Origin`` that is ours.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Collection, Mapping
from typing import Final

COOKIE: Final = "lakemark-web"
TOKEN_FIELD: Final = "token"  # noqa: S105 - the name of a form's field
_COOKIE_CHARS: Final = 43
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Of every answer."""


def host_name(host: str) -> str:
    """The name or address in a ``Host`` header, in lower case, without port and brackets; "" if there is none."""
    text = host.strip().lower()
    if text.startswith("["):
        inside, closed, port = text[1:].partition("]")
        return inside if closed and (not port or port.startswith(":")) else ""
    name, colon, port = text.partition(":")
    return name.removesuffix(".") if not colon or port.isdigit() else ""


def is_own_host(host: str, allowed: Collection[str]) -> bool:
    """Whether a ``Host`` header names this service for certain.

    An address does, because names are what can be made to point elsewhere; so does "localhost", and what the operator
    has allowed, in lower case.
    """
    name = host_name(host)
    if name in allowed or name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def why_not_read(method: str, site: str, mode: str, destination: str) -> str:
    """Why another site may not make a browser send this request; "" if it may. The last three are ``Sec-Fetch-…``.

    Links from elsewhere are fine. Nothing else is: what it costs would be spent for nobody.
    """
    if site in ("", "same-origin", "none"):
        return ""
    if method in ("GET", "HEAD") and mode == "navigate" and destination == "document":
        return ""
    return "another site asked for this page in a browser; open it yourself"


def why_not_act(host: str, origin: str, site: str, cookie: str, token: str, secret: bytes) -> str:
    """Why an action is refused; "" if it is let in. ``cookie`` and ``token`` came with the request."""
    if site not in ("", "same-origin"):
        return "the request came from another site"
    scheme, _, rest = origin.partition("://")
    if scheme not in ("http", "https") or rest.lower() != host.lower():
        return "the request does not come from a page of this service"
    if not is_token(secret, cookie, token):
        return "the page is out of date: go back, load it again and repeat what you did"
    return ""


def new_cookie() -> str:
    """A value that nobody can guess."""
    return secrets.token_urlsafe(32)


def is_cookie(text: str) -> bool:
    """Whether it can be a value of ``new_cookie``."""
    return len(text) == _COOKIE_CHARS


def token_of(secret: bytes, cookie: str) -> str:
    """What the forms of whoever has this cookie bring along."""
    return hmac.new(secret, cookie.encode(), hashlib.sha256).hexdigest()


def is_token(secret: bytes, cookie: str, token: str) -> bool:
    """Whether the token belongs to the cookie."""
    return is_cookie(cookie) and hmac.compare_digest(token_of(secret, cookie).encode(), token.encode())
