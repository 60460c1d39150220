"""Who is let in."""

from __future__ import annotations

import pytest

from lakemark_web import guard

SECRET = b"secret"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Example.COM:80", "example.com"),
        ("example.com.", "example.com"),
        ("127.0.0.1:9084", "127.0.0.1"),
        ("[::1]:9084", "::1"),
        ("[::1]", "::1"),
        ("[::1", ""),
        ("[::1]x", ""),
        ("a:b", ""),
        ("", ""),
    ],
)
def test_the_name_in_a_host_header(host: str, name: str) -> None:
    assert guard.host_name(host) == name


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]:1", "192.168.0.1:80", "lake.example"])
def test_own_hosts(host: str) -> None:
    assert guard.is_own_host(host, {"lake.example"})


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil", "127.0.0.1.evil", "127.1", "0x7f.1", "lake.example.evil"]
)
def test_other_hosts(host: str) -> None:
    assert not guard.is_own_host(host, {"lake.example"})


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_only_links_come_from_other_sites(method: str) -> None:
    assert bool(guard.why_not_read(method, "cross-site", "navigate", "document")) == (method == "POST")
    assert guard.why_not_read(method, "same-site", "cors", "empty")
    assert guard.why_not_read(method, "same-origin", "cors", "empty") == ""
    assert guard.why_not_read(method, "", "", "") == ""


def test_an_action_needs_origin_cookie_and_token() -> None:
    cookie = guard.new_cookie()
    token = guard.token_of(SECRET, cookie)
    good = ("h:1", "http://h:1", "same-origin", cookie, token)
    assert guard.why_not_act(*good, SECRET) == ""
    assert guard.why_not_act("h:1", "https://H:1", "", cookie, token, SECRET) == ""
    for at, bad in (
        (0, "h:2"),
        (1, "http://h"),
        (1, "ftp://h:1"),
        (2, "none"),
        (3, guard.new_cookie()),
        (3, ""),
        (4, ""),
    ):
        changed = [*good]
        changed[at] = bad
        assert guard.why_not_act(*changed, SECRET) != "", bad  # type: ignore[call-arg, arg-type]
    assert guard.why_not_act(*good, b"another process")
