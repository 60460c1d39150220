"""What a kind of sink does: it delivers events, or says in words why it could not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakemark_core.errors import InvalidArgument, Unavailable
from lakemark_proto.v1.events_pb2 import Event


class DeliveryFailed(Unavailable):
    """Nothing of this attempt was delivered, as far as known: it is worth another one.

    ``events``: how many events the attempt was about. ``retry_after_s``: what the receiver asked for. ``counts``: the
    attempt is one of those after which a sink gives up; False: it waits as long as it takes.
    """

    code = "delivery_failed"

    def __init__(self, reason: str, *, events: int = 1, retry_after_s: float = 0.0, counts: bool = True) -> None:
        super().__init__(reason)
        self.events, self.retry_after_s, self.counts = events, retry_after_s, counts


class EventRefused(InvalidArgument):
    """The first of the events can never be delivered as it is. Nothing of this attempt was delivered."""

    code = "event_refused"


class DeliveryAborted(Unavailable):
    """The sink was stopped during an attempt."""

    code = "delivery_aborted"


class Sender(Protocol):
    """The way to one receiver. For one thread, except for ``abort``."""

    events_max: int
    """Of one attempt."""

    def send(self, events: Sequence[Event], *, resent: bool = False) -> int:
        """Delivers some of the first events, at least one. Returns how many, once the receiver has said so.

        ``resent``: a dead letter on its way again, behind later events. Raises DeliveryFailed, EventRefused,
        DeliveryAborted.
        """

    def abort(self) -> None:
        """Ends an attempt that is under way, and every later one, too. For any thread."""

    def close(self) -> None:
        """Gives up connections. What was not confirmed counts as not delivered."""
