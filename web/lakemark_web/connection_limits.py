"""How many connections the page's port has, for how long, and which of them goes when there are too many. Pure.

The rule is that of the Metastore ports (docs/limits.md), but for one thing: a browser that loses a connection on which
it asks nothing opens another and notices nothing. So one may go however short it is idle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on what peers can make the port hold."""

    connections_max: int = 256
    """Most open connections. For a further one the connection goes that is idle longest, of the address that has most
    of them; if none is idle, the further one is closed at once."""

    peer_connections_max: int = 128
    """Most open connections of one address; as above, among its own."""

    message_seconds_max: float = 20.0
    """Longest time until a new connection begins with a request, and from the first byte of a request to its last."""

    keep_alive_seconds_max: float = 15.0
    """Longest time after an answer in which nothing comes."""

    write_stall_seconds_max: float = 30.0
    """Longest time in which a peer does not take the part of an answer that is ready for it."""

    @property
    def streams_max(self) -> int:
        """Most answers without an end."""
        return max(1, self.connections_max // 2)

    @property
    def peer_streams_max(self) -> int:
        """Of one address: it can ask for something else beside."""
        return max(1, self.peer_connections_max // 2)


class Seat(Protocol):
    """A connection. ``idle_since``: since when no request of it is being answered, in seconds; None: one is."""

    @property
    def host(self) -> str: ...

    @property
    def idle_since(self) -> float | None: ...


SeatT = TypeVar("SeatT", bound=Seat)


class House(Generic[SeatT]):
    """The open connections. For one thread."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._seats: set[SeatT] = set()
        self._of_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._seats)

    def enter(self, seat: SeatT) -> SeatT | None:
        """Takes a connection in. Returns which one has to go for it; ``seat`` itself: there is no room for it."""
        goes = self._in_the_way(seat.host)
        if goes is not None:
            self.leave(goes)
        elif self._is_full(seat.host):
            return seat
        self._seats.add(seat)
        self._of_host[seat.host] += 1
        return goes

    def leave(self, seat: SeatT) -> None:
        """Forgets a connection, if it is known."""
        if seat in self._seats:
            self._seats.discard(seat)
            self._of_host[seat.host] -= 1
            if not self._of_host[seat.host]:
                del self._of_host[seat.host]

    def of_host(self, host: str) -> int:
        """How many connections an address has."""
        return self._of_host[host]

    def _is_full(self, host: str) -> bool:
        return len(self._seats) >= self.limits.connections_max or self._is_full_of(host)

    def _is_full_of(self, host: str) -> bool:
        return self._of_host[host] >= self.limits.peer_connections_max

    def _in_the_way(self, host: str) -> SeatT | None:
        if not self._is_full(host):
            return None
        of_its_own = self._is_full_of(host)
        idle = [
            (-self._of_host[one.host], one.idle_since, id(one), one)
            for one in self._seats
            if one.idle_since is not None and (not of_its_own or one.host == host)
        ]
        return min(idle)[-1] if idle else None
