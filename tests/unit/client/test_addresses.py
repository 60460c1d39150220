"""Addresses of services: accepted as people write them, and refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from lakemark import connect
from lakemark.cli.app import run
from lakemark.client.addresses import parse_addresses
from lakemark.errors import InvalidArgument
from lakemark_spark.connection import use_client


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9090", ("127.0.0.1:9090",)),
        ("a:9090,b:9090", ("a:9090", "b:9090")),
        (" lake-1.example:1 , [::1]:65535,lake-1.example:1", ("lake-1.example:1", "[::1]:65535")),
        ("dns:9090", ("dns:9090",)),  # a machine of this name
        ("dns:///lake.example:9090", ("dns:///lake.example:9090",)),
        ("ipv4:10.0.0.1:9090,10.0.0.2:9090", ("ipv4:10.0.0.1:9090,10.0.0.2:9090",)),
        ("unix:/run/lakemark.sock", ("unix:/run/lakemark.sock",)),
    ],
)
def test_addresses(text: str, expected: tuple[str, ...]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("lake.example", "it has no port; 'lakemark serve' listens on 9090"),
        ("a:9090,", "nothing stands on one side of a comma"),
        ("a:9090;b:9090", "not of the form host:port"),
        ("a:9090,b", "'b' in 'a:9090,b' is not the address of a service: it has no port"),
        ("http://a:9090", "leave out http://"),
        ("thrift://a:9083", "leave out thrift://"),
        ("a:0", "0 is no port"),
        ("a:65536", "65536 is no port"),
        ("a:port", "not of the form host:port"),
        ("::1:9090", "an IPv6 address stands in brackets"),
    ],
)
def test_what_is_no_address_is_refused_in_words(text: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        connect(text)
    assert reason in raised.value.message
    assert "write host:port, or several of one store with commas: a:9090,b:9090" in raised.value.message


@pytest.mark.parametrize("server", [9090, None])
def test_what_is_no_text_is_no_address(server: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"server must be a text, not {server}"):
        connect(server)


def test_the_command_line_refuses_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--server", "http://a:9090", "databases", "list"]) == InvalidArgument.exit_code
    assert capsys.readouterr().err.startswith("error: 'http://a:9090' is not the address of a service")


def test_lakemark_spark_takes_several_addresses() -> None:
    with use_client("a:9090, b:9090") as client:
        assert client.address == "a:9090,b:9090"
    with pytest.raises(InvalidArgument, match="it has no port"), use_client("a"):
        pass
