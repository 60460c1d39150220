"""Which service is asked: its address, or several (``a:9090,b:9090``), or a client that its owner keeps open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lakemark import Client, connect

SERVER_DEFAULT: Final = "127.0.0.1:9090"


@contextmanager
def use_client(server: str | Client) -> Iterator[Client]:
    """A client for the block; one that was made for it is closed afterwards."""
    if isinstance(server, Client):
        yield server
        return
    with connect(server) as client:
        yield client
