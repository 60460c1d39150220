"""The latest events of a log in memory: encoded once, for all watchers."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from lakemark_proto.v1.events_pb2 import Event, WatchEventsResponse
from lakemark_server.events.filters import EventFilter, Subject, subject_of

RING_EVENTS: Final = 10_000
RING_BYTES: Final = 4 << 20
SHARED_MAX: Final = 32
"""Different deliveries that are kept, until there are new events, for others who want the same."""
SCANNED_MAX: Final = 1_000
"""Events that one call looks at, or patterns that it tries: a filter that lets few through must keep no loop busy."""


_Wanted: TypeAlias = tuple[int, EventFilter, int, int]


class EncodedEvent(NamedTuple):
    """An event as a response has it: ``encoded`` is one entry of the field ``events`` with its tag."""

    offset: int
    subject: Subject
    encoded: bytes


class Delivery(NamedTuple):
    """Some events for a watcher. ``upto``: it has been told all up to this offset. ``more``: there are more now.

    ``encoded``: the events as a response has them. Watchers who want the same share it.
    """

    events: list[EncodedEvent]
    upto: int
    more: bool
    encoded: bytes

    def decoded(self) -> list[Event]:
        """The events as messages."""
        return list(WatchEventsResponse.FromString(self.encoded).events)


def encoded(event: Event) -> EncodedEvent:
    """The event with its offset and epoch."""
    return EncodedEvent(event.offset, subject_of(event), WatchEventsResponse(events=[event]).SerializeToString())


def chosen(
    events: Iterable[EncodedEvent], after: int, wanted: EventFilter, events_max: int, bytes_max: int
) -> Delivery:
    """Those of ``events`` that are wanted: at most so many, and at most so many bytes unless it is only one."""
    taken: list[EncodedEvent] = []
    size_bytes, upto = 0, after
    for event in events:
        if wanted.fits(event.subject):
            size_bytes += len(event.encoded)
            if len(taken) == events_max or (taken and size_bytes > bytes_max):
                return _delivery(taken, upto, more=True)
            taken.append(event)
        upto = event.offset
    return _delivery(taken, upto, more=False)


def _delivery(events: list[EncodedEvent], upto: int, *, more: bool) -> Delivery:
    return Delivery(events, upto, more, b"".join(event.encoded for event in events))


class EventRing:
    """Consecutive events of one log, at most ``events_max`` and ``bytes_max``; older ones are forgotten. Thread-safe.

    It begins empty behind the event ``begin``.
    """

    def __init__(self, begin: int, events_max: int = RING_EVENTS, bytes_max: int = RING_BYTES) -> None:
        self._begin = begin
        self._events_max, self._bytes_max = events_max, bytes_max
        self._events: list[EncodedEvent] = []
        self._bytes = 0
        self._made: dict[_Wanted, Delivery] = {}  # since the last event was added
        self._lock = threading.Lock()

    @property
    def end(self) -> int:
        """The offset of the last event."""
        with self._lock:
            return self._begin + len(self._events)

    def append(self, events: list[EncodedEvent]) -> None:
        """Adds the events that follow."""
        with self._lock:
            self._events += events
            self._made.clear()
            self._bytes += sum(len(event.encoded) for event in events)
            forgotten = 0
            while len(self._events) - forgotten > self._events_max or self._bytes > self._bytes_max:
                self._bytes -= len(self._events[forgotten].encoded)
                forgotten += 1
            del self._events[:forgotten]
            self._begin += forgotten

    def restart(self, begin: int) -> None:
        """Forgets all events; the next ones follow the event ``begin``."""
        with self._lock:
            self._begin, self._bytes = begin, 0
            self._events.clear()
            self._made.clear()

    def holds(self, after: int) -> bool:
        """Whether all events behind that offset are here, as far as there are any."""
        with self._lock:
            return after >= self._begin

    def take(self, after: int, wanted: EventFilter, events_max: int, bytes_max: int) -> Delivery | None:
        """Wanted events behind the offset ``after``; None: it lies before what is kept here."""
        key = after, wanted, events_max, bytes_max
        with self._lock:
            if after < self._begin:
                return None
            made = self._made.get(key)
            if made is not None:
                return made
            start = after - self._begin
            end = start + max(1, SCANNED_MAX // (1 + len(wanted.patterns)))
            scanned = self._events[start:end]
            more, last = end < len(self._events), self._begin + len(self._events)
        batch = chosen(scanned, after, wanted, events_max, bytes_max)
        delivery = batch._replace(more=batch.more or more)
        with self._lock:
            if last == self._begin + len(self._events) and len(self._made) < SHARED_MAX:
                self._made[key] = delivery
        return delivery
