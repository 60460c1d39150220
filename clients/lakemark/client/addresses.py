"""Addresses of services as users write them: ``host:port``, or several separated by commas. Pure."""

from __future__ import annotations

import re
from typing import Final

from lakemark_core.errors import InvalidArgument

PORT_DEFAULT: Final = 9090
_FORMS: Final = "write host:port, or several of one store with commas: a:9090,b:9090"
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]+)")
_WEB: Final = re.compile(r"[a-z]+://", re.IGNORECASE)
# Targets that gRPC itself resolves. They must stand alone, because a comma has a meaning of its own there.
_GRPC_TARGET: Final = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract|xds):", re.IGNORECASE)


def parse_addresses(text: str) -> tuple[str, ...]:
    """The addresses in order, without duplicates. A gRPC target such as ``unix:/run/lakemark`` is taken as it is.

    Raises InvalidArgument that says what is wrong with an address.
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"the address of a service is a text, not {type(text).__name__}; {_FORMS}")
    if _GRPC_TARGET.match(text.strip()) and not _ADDRESS.fullmatch(text.strip()):
        return (text.strip(),)
    return tuple(dict.fromkeys(_checked(address.strip(), text) for address in text.split(",")))


def _checked(address: str, whole: str) -> str:
    match = _ADDRESS.fullmatch(address)
    if match and 0 < int(match["port"]) < 65_536:
        return address
    if match:
        reason = f"{match['port']} is no port; ports are 1 to 65535"
    elif not address:
        reason = "it is empty" if not whole.strip() else "nothing stands on one side of a comma"
    elif _WEB.match(address):
        reason = f"leave out {address.partition('//')[0]}//"
    elif re.fullmatch(r"[A-Za-z0-9_.-]+", address):
        reason = f"it has no port; 'lakemark serve' listens on {PORT_DEFAULT} unless it is told otherwise"
    elif address.count(":") > 1 and re.fullmatch("[0-9A-Fa-f:.%]+", address):
        reason = "an IPv6 address stands in brackets: [::1]:9090"
    else:
        reason = "it is not of the form host:port"
    what = f"{address!r} in {whole!r}" if "," in whole else f"{whole!r}"
    raise InvalidArgument(f"{what} is not the address of a service: {reason}; {_FORMS}")
