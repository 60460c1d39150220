"""``postgresql://`` URLs: parameters of the driver and of the store, and messages without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from lakemark_core.errors import InvalidArgument

SCHEMA: Final = "lakemark"
CONNECTIONS: Final = 32
CONNECTIONS_MIN: Final = 2  # one reads, one commits
CONNECTIONS_MAX: Final = 1_000
CONNECT_SECONDS_MAX: Final = "5"

_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_FORM: Final = "postgresql://user:password@host:port/database?schema=lakemark&connections=32"


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """The place of a store. ``parameters`` are libpq's and may hold a password, so no repr shows them."""

    parameters: Mapping[str, str] = field(repr=False)
    schema: str = SCHEMA
    connections: int = CONNECTIONS

    @property
    def public_url(self) -> str:
        """User, place and schema."""
        known = self.parameters
        user = f"{known['user']}@" if "user" in known else ""
        port = f":{known['port']}" if "port" in known else ""
        return f"postgresql://{user}{known.get('host', '')}{port}/{known.get('dbname', '')}?schema={self.schema}"

    def scrubbed(self, text: str) -> str:
        """``text`` without the password, which the driver may have put there."""
        password = self.parameters.get("password")
        return text.replace(password, "***") if password else text


def parse(url: str) -> PostgresTarget:
    """``url`` is libpq's, with ``schema`` and ``connections`` (at most, by this process) as further parameters.

    Raises InvalidArgument, which never quotes the URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _not_a_url() from None
    theirs: list[tuple[str, str]] = []
    ours = {"schema": SCHEMA, "connections": str(CONNECTIONS)}
    # libpq takes a plus for a plus, not for a space.
    for name, value in parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True):
        if name in ours:
            ours[name] = value
        else:
            theirs.append((name, value))
    if not _SCHEMA_NAME.fullmatch(ours["schema"]):
        raise InvalidArgument("the schema of a PostgreSQL store is a lower-case name of at most 63 letters and digits")
    if not ours["connections"].isdecimal() or not (CONNECTIONS_MIN <= int(ours["connections"]) <= CONNECTIONS_MAX):
        raise InvalidArgument(f"connections must be a number from {CONNECTIONS_MIN} to {CONNECTIONS_MAX}")
    try:
        known = conninfo_to_dict(f"postgresql://{parts.netloc}{parts.path}?{urlencode(theirs, quote_via=quote)}")
    except psycopg.Error:
        raise _not_a_url() from None
    parameters = {name: str(value) for name, value in known.items() if value is not None}
    parameters.setdefault("connect_timeout", CONNECT_SECONDS_MAX)
    parameters.setdefault("application_name", "lakemark")
    return PostgresTarget(parameters, ours["schema"], int(ours["connections"]))


def _not_a_url() -> InvalidArgument:
    """An error without the parser's own message, which quotes the URL with its password."""
    return InvalidArgument(f"this is no URL of a PostgreSQL database; write {_FORM}")
