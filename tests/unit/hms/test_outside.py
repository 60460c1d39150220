"""The client of outside Metastores, before peers that misbehave."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_hms.outside import Metastore, OutsideUnavailable
from lakemark_server.listeners.addresses import parse_addresses


@contextmanager
def peer(answer: bytes) -> Iterator[str]:
    """Sends these bytes to whoever connects, then closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1_000)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"thrift://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x80\x01\x00\x02\x00\x00\x00\x07set_ugi\x00\x00\x00\x01\x0f\x00\x00\x0b\x7f\xff\xff\xff",
        b"\x80\x01\x00\x02\x7f\xff\xff\xff",
        b"\x80\x01\x00\x02\xff\xff\xff\xff",
    ],
)
def test_what_is_no_metastore_is_told(answer: bytes) -> None:
    with peer(answer) as uri, Metastore(uri, 5) as metastore:
        for _ in range(2):
            with pytest.raises(OutsideUnavailable, match=f"the Metastore at {uri} does not answer"):
                metastore.call("get_all_databases")


def test_nobody_listens() -> None:
    with pytest.raises(OutsideUnavailable, match=r"thrift://127\.0\.0\.1:1 does not answer"):
        Metastore("thrift://127.0.0.1:1").call("get_all_databases")


def test_a_waiting_call_can_be_interrupted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        metastore = Metastore(f"thrift://127.0.0.1:{listening.getsockname()[1]}")
        errors: list[Exception] = []

        def call() -> None:
            try:
                metastore.call("get_all_databases")
            except OutsideUnavailable as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        connection, _ = listening.accept()
        connection.recv(1_000)
        metastore.interrupt()
        thread.join(30)
        connection.close()
        assert len(errors) == 1


@pytest.mark.parametrize(
    "uri", ["", "host:1", "http://h", "thrift://", "thrift://h:x", "thrift://h:1/x", "thrift://h,"]
)
def test_addresses_that_are_none(uri: str) -> None:
    with pytest.raises(InvalidArgument, match="is no address of a Metastore"):
        parse_addresses(uri)


def test_addresses() -> None:
    assert parse_addresses("thrift://a:1, thrift://b") == [("a", 1), ("b", 9083)]
