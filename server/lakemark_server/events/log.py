"""Reading the log of events of a catalog: from any offset, in order.

The store keeps no offsets: the offset of an event is how many events lie before it, and one. Marks tell it at some
places (``lakemark_server.events.upkeep``); from there on readers count.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lakemark_core.errors import EventsLost, EventsTrimmed, OffsetUnknown
from lakemark_proto.store.v1.store_pb2 import EventMark
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.store import event_log
from lakemark_server.store.keyspace import EVENT_ENDS, EVENT_MARKS, EVENTS

PAGE_PAIRS: Final = 256
"""Pairs of the store that a page reads; the pieces of one batch are fewer."""


class LogPosition(NamedTuple):
    """A place between two batches: ``offset`` events lie before it, and the log goes on behind ``key``.

    ``after``: events up to this offset have been read, or are not wanted.
    """

    offset: int
    key: bytes
    after: int


class EventPage(NamedTuple):
    """Some events with their offsets, and where to read on. ``whole``: when it was read, there were no more.

    ``places`` are the ends of batches, by the offset of the last event before each.
    """

    events: list[Event]
    position: LogPosition
    whole: bool
    places: dict[int, bytes]


class LogExtent(NamedTuple):
    """The log of a catalog: its first and last offset, and the epoch. ``last`` < ``first``: it is empty."""

    first: int
    last: int
    epoch: int


class LogSummary(NamedTuple):
    """What a log holds: the times of its first and last event (0: there is none), and its size in the store."""

    extent: LogExtent
    first_ms: int
    last_ms: int
    size_bytes: int


class EventLog:
    """Thread-safe; holds no state. Catalogs are named in lower case."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def begin(self, catalog: str, after: int, epoch: int | None = None) -> LogPosition:
        """Where to read the events behind the offset ``after`` (0: from the first one on).

        ``epoch``: that of the event at ``after``, as the reader has seen it; None: it does not know. Raises
        EventsTrimmed, OffsetUnknown, EventsLost.
        """
        return self._store.read(lambda tx: _begin(tx, catalog, after, epoch))

    def end(self, catalog: str) -> LogPosition:
        """The end of the log: what is read there comes later."""
        return self._store.read(lambda tx: _end(tx, catalog))

    def extent(self, catalog: str) -> LogExtent:
        """What there is to read."""
        return self._store.read(
            lambda tx: LogExtent(_trimmed(tx, catalog) + 1, _end(tx, catalog).offset, event_log.epoch(tx))
        )

    def summary(self, catalog: str) -> LogSummary:
        """What the log holds."""
        return self._store.read(lambda tx: _summary(tx, catalog))

    def page(self, catalog: str, position: LogPosition, pairs: int = PAGE_PAIRS) -> EventPage:
        """The events behind ``position``; none if there are no more. Raises EventsTrimmed."""
        return self._store.read(lambda tx: _page(tx, catalog, position, pairs))

    def wait(self, catalog: str, seen: bytes | None, timeout_s: float) -> bytes | None:
        """Returns what changes with each batch as soon as it is not ``seen``, or after ``timeout_s``."""
        key = EVENT_ENDS.key(catalog)
        self._store.wait_for_change(key, seen, timeout_s)
        return self._store.read(lambda tx: tx.get(key))


def marks_key(catalog: str, offset: int) -> bytes:
    return EVENT_MARKS.key(catalog, offset)


def last_mark(tx: ReadTransaction, catalog: str, offset: int | None = None) -> EventMark:
    """The last mark at or before an offset (None: of all); an empty one, at the beginning, if there is none."""
    begin, end = EVENT_MARKS.range(catalog)
    if offset is not None:
        end = EVENT_MARKS.key(catalog, offset) + b"\0"
    pairs = tx.get_range(begin, end, limit=1, reverse=True, snapshot=True) if begin < end else []
    return EventMark.FromString(pairs[0][1]) if pairs else EventMark()


def first_mark(tx: ReadTransaction, catalog: str) -> EventMark:
    """The first mark; an empty one if there is none."""
    pairs = tx.get_range(*EVENT_MARKS.range(catalog), limit=1, snapshot=True)
    return EventMark.FromString(pairs[0][1]) if pairs else EventMark()


def _trimmed(tx: ReadTransaction, catalog: str) -> int:
    """The offset up to which events are trimmed."""
    mark = first_mark(tx, catalog)
    return mark.offset if mark.trimmed else 0


def _begin(tx: ReadTransaction, catalog: str, after: int, epoch: int | None) -> LogPosition:
    trimmed = _trimmed(tx, catalog)
    if after < trimmed and not (after == 0 and epoch is None):
        raise EventsTrimmed(
            f"the events behind offset {after} of catalog {catalog!r} are kept no longer; the first one that there is "
            f"has offset {trimmed + 1}: read what you need of the catalog itself, then go on from there",
            first_offset=str(trimmed + 1),
        )
    after = max(after, trimmed)
    if epoch is not None and epoch < event_log.epoch(tx):
        kept = _before_epoch(tx, catalog, epoch + 1).offset
        if after > kept:
            raise EventsLost(
                f"the store was restored from a backup whose last event of epoch {epoch} has offset {kept}; the event "
                f"that you have read at offset {after} is not in it. Read what you need of the catalog itself, then "
                f"go on from offset {kept}",
                last_offset=str(kept),
            )
    position = _from_mark(last_mark(tx, catalog, after), after)
    while True:
        page = _page(tx, catalog, position, PAGE_PAIRS)
        if page.events or page.position.offset >= after:
            return position if page.position.offset > after else page.position
        if page.whole:
            last = page.position.offset
            raise OffsetUnknown(
                f"catalog {catalog!r} has no event with offset {after}; the last one has {last}", last_offset=str(last)
            )
        position = page.position


def _before_epoch(tx: ReadTransaction, catalog: str, epoch: int) -> LogPosition:
    """The end of what was appended in earlier epochs."""
    end = EVENTS.key(catalog, epoch)
    begin, marks_end = EVENT_MARKS.range(catalog)
    mark = EventMark()
    while begin < marks_end:
        pairs = tx.get_range(begin, marks_end, limit=1, reverse=True, snapshot=True)
        mark = EventMark.FromString(pairs[0][1]) if pairs else EventMark()
        if not pairs or mark.key < end:
            break
        marks_end = pairs[0][0]
        mark = EventMark()
    return _last(tx, catalog, _from_mark(mark, mark.offset), end)


def _end(tx: ReadTransaction, catalog: str) -> LogPosition:
    mark = last_mark(tx, catalog)
    return _last(tx, catalog, _from_mark(mark, mark.offset), EVENTS.range(catalog)[1])


def _summary(tx: ReadTransaction, catalog: str) -> LogSummary:
    begun, mark = first_mark(tx, catalog), last_mark(tx, catalog)
    begin, end = EVENTS.range(catalog)
    first = next(event_log.batches(catalog, tx.get_range(begin, end, limit=PAGE_PAIRS, snapshot=True)), None)
    last, last_ms = mark.offset, mark.time_ms
    size_bytes = mark.bytes - (begun.bytes if begun.trimmed else 0)
    key = mark.key
    while True:
        begin = key + b"\0" if key else begin
        pairs = tx.get_range(begin, end, limit=PAGE_PAIRS, snapshot=True) if begin < end else []
        for key, batch_bytes, events in event_log.batches(catalog, pairs):  # noqa: B007 - the last key is used
            last, last_ms = last + len(events), events[-1].time_ms
            size_bytes += batch_bytes
        if len(pairs) < PAGE_PAIRS:
            break
    extent = LogExtent(_trimmed(tx, catalog) + 1, last, event_log.epoch(tx))
    return LogSummary(extent, first[2][0].time_ms if first else 0, last_ms if first else 0, size_bytes)


def _last(tx: ReadTransaction, catalog: str, position: LogPosition, end: bytes) -> LogPosition:
    while True:
        page = _page(tx, catalog, position, PAGE_PAIRS, end)
        position = page.position._replace(after=page.position.offset)
        if page.whole:
            return position


def _from_mark(mark: EventMark, after: int) -> LogPosition:
    return LogPosition(mark.offset, mark.key, after)


def _page(
    tx: ReadTransaction, catalog: str, position: LogPosition, pairs_max: int, end: bytes | None = None
) -> EventPage:
    trimmed = _trimmed(tx, catalog)
    if position.offset < trimmed:
        raise EventsTrimmed(
            f"the events behind offset {position.offset} of catalog {catalog!r} were trimmed meanwhile; the first one "
            f"that there is has offset {trimmed + 1}: read what you need of the catalog itself, then go on from there",
            first_offset=str(trimmed + 1),
        )
    first, last = EVENTS.range(catalog)
    begin = position.key + b"\0" if position.key else first
    stop = last if end is None else end
    pairs = tx.get_range(begin, stop, limit=pairs_max, snapshot=True) if begin < stop else []
    events: list[Event] = []
    offset, key = position.offset, position.key
    places: dict[int, bytes] = {}
    for key, _, batch in event_log.batches(catalog, pairs):
        for event in batch:
            offset += 1
            if offset > position.after:
                event.offset = offset
                events.append(event)
        places[offset] = key
    return EventPage(events, LogPosition(offset, key, max(position.after, offset)), len(pairs) < pairs_max, places)
