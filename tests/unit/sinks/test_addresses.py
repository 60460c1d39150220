"""Which addresses a webhook may be at."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_server.sinks.addresses import is_allowed, networks


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "2002:5db8:d822::"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_allowed(ip_address(address), ())


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.0.1"),  # noqa: S104
        *("169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"),
        *("::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
        # IPv4 addresses inside: mapped, 6to4, Teredo, translated.
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "2002:a00:1::"),
        *("2001:0:5db8:d822::80ff:fffe", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1"),
    ],
)
def test_all_others_are_refused(address: str) -> None:
    assert not is_allowed(ip_address(address), ())


def test_a_setting_allows_more() -> None:
    allowed = networks(["10.1.0.0/16", "fd00::/8"])
    assert is_allowed(ip_address("10.1.2.3"), allowed)
    assert is_allowed(ip_address("::ffff:10.1.2.3"), allowed)
    assert is_allowed(ip_address("fd00::1"), allowed)
    assert not is_allowed(ip_address("10.2.0.1"), allowed)
    assert not is_allowed(ip_address("fc00::1"), allowed)
    with pytest.raises(InvalidArgument, match="is not a network"):
        networks(["10.0.0.1/8"])
