"""Ports to listen on, and the error for one that is not free."""

from __future__ import annotations

import os
import socket

from lakemark_core.errors import Unavailable


def check_free(protocol: str, host: str, port: int, *, shared: bool = False) -> None:
    """Raises Unavailable unless ``protocol`` can listen on the port; 0 is any port.

    ``shared``: the port may be that of other processes that share it, too.

    This is checked before gRPC tries, which would write a log line of its own, and before a store is opened in vain.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family, reuse_port=shared).close()
    except OSError as error:
        raise cannot_listen(protocol, host, port, error) from error


def cannot_listen(protocol: str, host: str, port: int, error: Exception) -> Unavailable:
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno and error.errno > 0 else str(error)
    return Unavailable(
        f"{protocol} cannot listen on {host}:{port} ({reason}); is another program using the port? Choose one with "
        f"--{protocol.lower()}-port",
        port=str(port),
    )
