"""Which network addresses a webhook may be at.

Whoever creates a sink chooses where the service connects to, from inside the network that the service is in. So only
public addresses are allowed, unless a setting names others. The address that is connected to is checked, not the name:
a name may have another address a moment later (DNS rebinding).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias

from lakemark_core.errors import InvalidArgument, Unavailable

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# Addresses of IPv6 in which a gateway finds one of IPv4 (RFC 6052, RFC 8215).
_TRANSLATED: Final = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))


class AddressRefused(InvalidArgument):
    """The service does not connect to where the name leads."""

    code = "address_refused"


class Endpoint(NamedTuple):
    """An address that may be connected to."""

    family: socket.AddressFamily
    address: str
    port: int


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks in texts like ``10.0.0.0/8``. Raises InvalidArgument."""
    return tuple(_network(text) for text in texts)


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise InvalidArgument(f"{text!r} is not a network like 10.0.0.0/8 or fd00::/8: {error}") from error


def is_allowed(address: Address, allowed: Iterable[Network]) -> bool:
    """Whether the address is public, or in one of the ``allowed`` networks. Pure."""
    return all(_is_public(one) or _is_in(one, allowed) for one in _reached(address))


def _reached(address: Address) -> Iterator[Address]:
    """What a packet to the address may reach in the end: one inside another counts, too."""
    if isinstance(address, IPv4Address):
        yield address
        return
    mapped = address.ipv4_mapped
    if mapped is not None:
        yield mapped
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if any(address in network for network in _TRANSLATED):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast


def _is_in(address: Address, allowed: Iterable[Network]) -> bool:
    return any(address in network for network in allowed if network.version == address.version)


def endpoints(host: str, port: int, allowed: Sequence[Network]) -> list[Endpoint]:
    """Where ``host`` is at this moment, without addresses that are refused.

    Raises AddressRefused if nothing else is left, and Unavailable if the name has no address.
    """
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"the name {host!r} cannot be resolved: {error}") from error
    places = list(dict.fromkeys((family, str(place[0])) for family, _, _, _, place in answers))
    usable = [
        Endpoint(family, address, port) for family, address in places if is_allowed(_without_zone(address), allowed)
    ]
    if not usable:
        raise AddressRefused(
            f"{host!r} is at {', '.join(address for _, address in places)}: webhooks are sent to public addresses, and "
            f"to networks that the service's setting webhook_networks names"
        )
    return usable


def _without_zone(address: str) -> Address:
    return ip_address(address.partition("%")[0])
