"""Limits on what clients of the socket server can make it hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits on what clients can make the server hold."""

    connections_max: int = 4096
    """Most open connections. For a further one the connection goes that is idle longest, of the peer that has most of
    them; if none is idle, the further one is closed at once."""

    peer_connections_max: int = 1024
    """Most open connections of one address; as above, among its own."""

    peer_logins_max: int = 128
    """Checks of passwords that may wait for one address; a further login is refused at once."""

    idle_seconds_min: float = 5.0
    """How long a connection is idle before it may go in favour of another."""

    message_bytes_max: int = 100 * 1024 * 1024
    """Largest request, and largest length that a request may claim for a string."""

    received_bytes_max: int = 512 * 1024 * 1024
    """Most bytes that were received on all connections and are not being worked on: requests that are not complete, and
    what is read ahead. A connection whose bytes exceed it is closed."""

    read_ahead_bytes_max: int = 1024 * 1024
    """Most bytes that are read of a connection while a call of it runs."""

    message_seconds_max: float = 120.0
    """Longest time from the first byte of a request to its last."""

    write_stall_seconds_max: float = 60.0
    """Longest time in which a client takes nothing of its reply."""

    workers: int = 16
    """Calls that run at the same time."""

    reserved_workers: int = 4
    """Further workers, for reads when all others are busy."""

    waiting_max: int = 1024
    """Calls that may wait for a worker; a further one is refused at once."""

    idle_seconds_max: float = 86_400.0
    """Time after which a connection without traffic is closed. Clients open another."""

    shared_port: bool = False
    """Whether other processes may listen on the same port; the system deals new connections out to them."""


class Room(Protocol):
    """Bounds the memory for messages that are being worked on."""

    def enter(self, size_bytes: int) -> None:
        """Takes room for a message. Raises RefusedError if there is none."""

    def leave(self, size_bytes: int) -> None:
        """Gives the room back."""


class Unbounded:
    """A Room without bounds."""

    def enter(self, size_bytes: int) -> None:
        pass

    def leave(self, size_bytes: int) -> None:
        pass
