"""Events of a catalog as plain objects, and what is asked for: a place in the log, and a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from lakemark.arguments import Natural
from lakemark_core.errors import InvalidArgument
from lakemark_core.messages.cloud_events import cloud_event, event_data, kind_word, subject
from lakemark_proto.v1 import events_pb2 as pb

KINDS: Final = tuple(kind_word(kind) for kind in pb.EventKind.values() if kind)
"""``committed``, ``table_created`` and so on: what changes, in the words of docs/events.md."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change in a catalog.

    ``offset`` is 1, 2, 3 … and never changes; ``epoch`` is 0, or that
    of the restore from a backup behind which the event lies.
    ``database`` and ``table`` are "" if the change concerns none. ``by``: who asked for it, as far as known.
    """

    offset: int
    epoch: int
    time_ms: int
    kind: str
    catalog: str
    database: str
    table: str
    table_id: int
    by: str
    request_id: str
    message: pb.Event = field(repr=False, compare=False)

    @property
    def subject(self) -> str:
        """``database.table``, ``database``, or ""."""
        return subject(self.message)

    @property
    def detail(self) -> Mapping[str, Any]:
        """What the change was: for instance ``version`` and ``added_files`` of a commit. See docs/events.md."""
        name = self.message.WhichOneof("detail")
        return {} if name is None else event_data(self.message)[name]

    def cloud_event(self, source: str = "") -> dict[str, Any]:
        """The event as a CloudEvents 1.0 object. ``source`` "": one with the name of the catalog."""
        return cloud_event(self.message, source)


Place: TypeAlias = Natural | Event | None
"""Behind which event: an offset (0: the first event that is kept comes first), an event, or None: the last one."""


@dataclass(frozen=True, slots=True)
class EventLogSummary:
    """The log of a catalog. ``last`` < ``first``: it is empty. Times are 0 then. Sizes are bytes in the store."""

    catalog: str
    first: int
    last: int
    epoch: int
    first_ms: int
    last_ms: int
    size_bytes: int
    retain_ms: int
    retain_bytes: int


def event_from(message: pb.Event) -> Event:
    """The event of a response."""
    return Event(
        offset=message.offset,
        epoch=message.epoch,
        time_ms=message.time_ms,
        kind=kind_word(message.kind),
        catalog=message.catalog,
        database=message.database,
        table=message.table,
        table_id=message.table_id,
        by=message.by,
        request_id=message.request_id,
        message=message,
    )


def position_of(place: Place, epoch: int | None = None) -> pb.EventPosition:
    """The place as the service takes it. ``epoch``: that of an offset, if it is known."""
    if place is None:
        return pb.EventPosition(end=True)
    if isinstance(place, Event):
        return pb.EventPosition(after=place.offset, epoch=place.epoch)
    return pb.EventPosition(after=place, epoch=epoch)


def filter_from(
    database: str | None = None, table: str | None = None, kinds: Iterable[str] = (), patterns: Iterable[str] = ()
) -> pb.EventFilter:
    """The filter for a database and a table (either may have "*"), or for any ``patterns``. Raises InvalidArgument."""
    wanted = list(patterns)
    if table is not None and "." in table and database is not None:
        raise InvalidArgument(f"{table!r} has its database: leave out database={database!r}")
    if table is not None:
        wanted.append(table if "." in table else f"{'*' if database is None else database}.{table}")
    elif database is not None:
        wanted.append(database)
    return pb.EventFilter(patterns=wanted, kinds=[_kind(word) for word in kinds])


def _kind(word: str) -> pb.EventKind.ValueType:
    if word.lower() not in KINDS:
        raise InvalidArgument(f"there is no kind of events {word!r}; there are: {', '.join(KINDS)}")
    return pb.EventKind.Value(word.upper())


def summary_from(message: pb.EventLogDescription) -> EventLogSummary:
    """What a response says of the log."""
    return EventLogSummary(
        message.catalog,
        message.first,
        message.last,
        message.epoch,
        message.first_ms,
        message.last_ms,
        message.size_bytes,
        message.retain_ms,
        message.retain_bytes,
    )
