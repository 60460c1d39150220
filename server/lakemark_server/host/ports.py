"""Ports to listen on, and what is told of one that cannot be had."""

from __future__ import annotations

import os
import socket

from lakemark_core.errors import Unavailable


def check_free(protocol: str, host: str, port: int) -> None:
    """Whether ``protocol`` will be able to listen there; 0 is any port. Raises Unavailable.

    Asked before gRPC tries, which would tell of it in a log line of its own, and before a store is opened for nothing.
    """
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise cannot_listen(protocol, host, port, error) from error


def cannot_listen(protocol: str, host: str, port: int, error: Exception) -> Unavailable:
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno and error.errno > 0 else str(error)
    return Unavailable(
        f"{protocol} cannot listen on {host}:{port} ({reason}); is another program using the port? Choose one with "
        f"--{protocol.lower()}-port",
        port=str(port),
    )
