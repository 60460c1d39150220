"""Who uses the client, as far as this machine knows: for messages about conflicts, and for the service's log."""

from __future__ import annotations

import getpass
import socket
from functools import cache
from typing import Final

USER_KEY: Final = "lakemark-user"
"""The metadata of a gRPC request that carries it."""

_CHARS_MAX: Final = 200


@cache
def user_name() -> str:
    """``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        user = "unknown"
    return f"{user}@{socket.gethostname()}"[:_CHARS_MAX]
