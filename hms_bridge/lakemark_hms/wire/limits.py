"""What clients of the socket server can make it hold at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits on what clients can make the server hold."""

    connections_max: int = 4096
    """Open connections; a further one is closed at once."""

    message_bytes_max: int = 100 * 1024 * 1024
    """Largest request, and largest length that a request may claim for a string."""

    received_bytes_max: int = 512 * 1024 * 1024
    """What was received of all connections together and is not being worked on: requests that are not whole yet, and
    what is read ahead. Whose bytes would be above it is closed."""

    read_ahead_bytes_max: int = 1024 * 1024
    """What is read of a connection while a call of it runs."""

    message_seconds_max: float = 120.0
    """Time within which a request must be there from its first byte to its last."""

    write_stall_seconds_max: float = 60.0
    """Time within which a client must take some more of its reply."""

    workers: int = 16
    """Calls that run at the same time."""

    reserved_workers: int = 4
    """More of them, for reads when all others are busy."""

    waiting_max: int = 1024
    """Calls that wait for a worker; a further one is refused at once."""

    idle_seconds_max: float = 86_400.0
    """After which a connection that nothing came on is closed; clients open another."""


class Room(Protocol):
    """Memory for the messages that are being worked on."""

    def enter(self, size_bytes: int) -> None:
        """Raises RefusedError if there is none."""

    def leave(self, size_bytes: int) -> None:
        """Gives it back."""


class Unbounded:
    """A Room without walls."""

    def enter(self, size_bytes: int) -> None:
        pass

    def leave(self, size_bytes: int) -> None:
        pass
