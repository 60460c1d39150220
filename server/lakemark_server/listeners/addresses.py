"""Addresses of outside Metastores."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from lakemark_core.errors import InvalidArgument

PORT_DEFAULT: Final = 9083
URI_CHARS_MAX: Final = 2_000


def parse_addresses(uri: str) -> list[tuple[str, int]]:
    """The hosts and ports in ``thrift://host:9083,thrift://other:9083``. Raises InvalidArgument."""
    if len(uri) > URI_CHARS_MAX:
        raise InvalidArgument(f"the addresses of a Metastore have at most {URI_CHARS_MAX} characters")
    places = []
    for text in uri.split(","):
        try:
            parts = urlsplit(text.strip())
            port = parts.port or PORT_DEFAULT
        except ValueError as error:
            raise InvalidArgument(f"{text!r} is no address of a Metastore: {error}") from error
        if parts.scheme != "thrift" or not parts.hostname or parts.path.strip("/") or parts.query:
            raise InvalidArgument(f"{text!r} is no address of a Metastore: write thrift://host:{PORT_DEFAULT}")
        if parts.username is not None or parts.password is not None:
            raise InvalidArgument(f"the address {text.strip()!r} of a Metastore has a user or a password: leave it out")
        places.append((parts.hostname, port))
    return places
