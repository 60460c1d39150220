"""Reading the log of events of a catalog: from any offset, in order.

The store keeps no offsets: the offset of an event is how many events lie before it, and one. Marks tell it at some
places (``lakemark_server.events.upkeep``); from there on readers count.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from lakemark_core.errors import EventsLost, EventsTrimmed, OffsetUnknown
from lakemark_proto.store.v1.store_pb2 import EventMark
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.store import event_log
from lakemark_server.store.keyspace import EVENT_ENDS, EVENT_MARKS, EVENTS

PAGE_PAIRS: Final = 256
"""Pairs of the store that a page reads; the pieces of one batch are fewer."""

PLACES_MAX: Final = 1_024
"""Places of readers that are remembered, of all catalogs."""


class LogPosition(NamedTuple):
    """A place between two batches: ``offset`` events lie before it, and the log goes on behind ``key``.

    ``after``: events up to this offset have been read, or are not wanted.
    """

    offset: int
    key: bytes
    after: int


class EventPage(NamedTuple):
    """Some events with their offsets, and where to read on. ``whole``: when it was read, there were no more.

    ``places`` are the ends of batches, by the offset of the last event before each. ``size_bytes``: what the batches
    take in the store.
    """

    events: list[Event]
    position: LogPosition
    whole: bool
    places: dict[int, bytes]
    size_bytes: int


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


class LogLag(NamedTuple):
    """How far somebody is behind: ``events``, and the time of the first of them (0: there is none)."""

    events: int
    first_ms: int

    def ms(self, now_ms: int) -> int:
        """The age of the first event."""
        return max(0, now_ms - self.first_ms) if self.first_ms else 0


class _Places:
    """Where readers of logs stopped, so that whoever goes on there need not count. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_offset: OrderedDict[tuple[str, int], LogPosition] = OrderedDict()

    def get(self, catalog: str, offset: int) -> LogPosition | None:
        with self._lock:
            return self._by_offset.get((catalog, offset))

    def put(self, catalog: str, offset: int, position: LogPosition) -> None:
        with self._lock:
            self._by_offset[catalog, offset] = position
            self._by_offset.move_to_end((catalog, offset))
            if len(self._by_offset) > PLACES_MAX:
                self._by_offset.popitem(last=False)


class EventLog:
    """Thread-safe. Catalogs are named in lower case.

    It remembers where each log ended when it was last asked for, and where readers stopped, so that asking often reads
    only what came since. The order of a log never changes, so what was counted once stays true.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends: dict[str, EventMark] = {}
        self._places = _Places()

    def begin(self, catalog: str, after: int, epoch: int | None = None) -> LogPosition:
        """Where to read the events behind the offset ``after`` (0: from the first one on).

        ``epoch``: that of the event at ``after``, or that of the store in which the reader has seen it; None: it does
        not know. Raises EventsTrimmed, OffsetUnknown, EventsLost.
        """
        trimmed, current = self._store.read(lambda tx: (_trimmed(tx, catalog), event_log.epoch(tx)))
        if after < trimmed and not (after == 0 and epoch is None):
            raise EventsTrimmed(
                f"the events behind offset {after} of catalog {catalog!r} are kept no longer; the first one that there "
                f"is has offset {trimmed + 1}: read what you need of the catalog itself, then go on from there",
                first_offset=str(trimmed + 1),
            )
        wanted = max(after, trimmed)
        if after and epoch is not None and epoch < current:
            self._check_kept(catalog, after, epoch)
        known = self._places.get(catalog, wanted)
        if known is not None:
            return known
        position = self._store.read(lambda tx: _from_mark(last_mark(tx, catalog, wanted), wanted))
        try:
            return self._behind(catalog, position)
        except EventsTrimmed:
            if after:
                raise
            return self.begin(catalog, after, epoch)  # what was the beginning has been trimmed meanwhile

    def end(self, catalog: str) -> LogPosition:
        """The end of the log: what is read there comes later."""
        mark = self._end(catalog)
        return _from_mark(mark, mark.offset)

    def lag(self, catalog: str, offset: int, extent: LogExtent | None = None) -> LogLag:
        """How far somebody is behind who is done with all events up to this offset. ``extent``: if it is known."""
        extent = extent or self.extent(catalog)
        events = max(0, extent.last - offset)
        if not events:
            return LogLag(0, 0)
        try:
            position = self.begin(catalog, max(offset, extent.first - 1))
            while True:
                page = self.page(catalog, position)
                if page.events or page.whole:
                    return LogLag(events, page.events[0].time_ms if page.events else 0)
                position = page.position
        except EventsTrimmed:  # meanwhile
            return LogLag(events, 0)

    def extent(self, catalog: str) -> LogExtent:
        """What there is to read."""
        trimmed, epoch = self._store.read(lambda tx: (_trimmed(tx, catalog), event_log.epoch(tx)))
        return LogExtent(trimmed + 1, self.end(catalog).offset, epoch)

    def summary(self, catalog: str) -> LogSummary:
        """What the log holds."""

        def beginning(tx: ReadTransaction) -> tuple[EventMark, int, int]:
            pairs = tx.get_range(*EVENTS.range(catalog), limit=PAGE_PAIRS, snapshot=True)
            first = next(event_log.batches(catalog, pairs), None)
            mark = first_mark(tx, catalog)
            return mark if mark.trimmed else EventMark(), first[2][0].time_ms if first else 0, event_log.epoch(tx)

        begun, first_ms, epoch = self._store.read(beginning)
        end = self._end(catalog)
        extent = LogExtent(begun.offset + 1, end.offset, epoch)
        return LogSummary(extent, first_ms, end.time_ms if first_ms else 0, end.bytes - begun.bytes)

    def page(self, catalog: str, position: LogPosition, pairs: int = PAGE_PAIRS) -> EventPage:
        """The events behind ``position``; none if there are no more. Raises EventsTrimmed."""
        page = self._store.read(lambda tx: _page(tx, catalog, position, pairs))
        self.remember(catalog, page.position)
        return page

    def remember(self, catalog: str, position: LogPosition) -> None:
        """Notes that a reader stopped there, and may go on there."""
        self._places.put(catalog, position.after, position)

    def wait(self, catalog: str, seen: bytes | None, timeout_s: float) -> bytes | None:
        """Returns what changes with each batch as soon as it is not ``seen``, or after ``timeout_s``."""
        key = EVENT_ENDS.key(catalog)
        self._store.wait_for_change(key, seen, timeout_s)
        return self._store.read(lambda tx: tx.get(key))

    def _check_kept(self, catalog: str, after: int, epoch: int) -> None:
        """Raises EventsLost unless the store had the offset ``after`` in ``epoch``, which has ended.

        A greater number is not enough: the store may have been restored twice, the second time from a longer backup
        that was taken before the first. Then it has other events at the offsets of the epoch that it never was in.
        """
        if not self._store.read(lambda tx: event_log.has_been_in(tx, epoch)):
            raise EventsLost(
                f"the store was restored from a backup, and has never been in epoch {epoch}, which began with another "
                f"restore. You have read up to offset {after} in it; how much of that is in this store cannot be told. "
                "Read what you need of the catalog itself, then go on from offset 0",
                last_offset="0",
            )
        end = EVENTS.key(catalog, epoch + 1)
        kept = self._counted(catalog, lambda tx: _last_mark_before(tx, catalog, end), end).offset
        if after > kept:
            raise EventsLost(
                f"the store was restored from a backup whose last event of epoch {epoch} has offset {kept}; the event "
                f"that you have read at offset {after} is not in it. Read what you need of the catalog itself, then "
                f"go on from offset {kept}",
                last_offset=str(kept),
            )

    # Both count page by page, in a transaction each: what lies behind the last mark may be more than a transaction has
    # the time to read. The log has the same order in all of them.

    def _behind(self, catalog: str, position: LogPosition) -> LogPosition:
        """The last place before the events behind ``position.after``. Raises OffsetUnknown, EventsTrimmed."""
        after = position.after
        while True:
            page = self._store.read(lambda tx, position=position: _page(tx, catalog, position, PAGE_PAIRS))  # type: ignore[misc]
            if page.events or page.position.offset >= after:
                return position if page.position.offset > after else page.position
            if page.whole:
                last = page.position.offset
                raise OffsetUnknown(
                    f"catalog {catalog!r} has no event with offset {after}; the last one has {last}",
                    last_offset=str(last),
                )
            position = page.position

    def _end(self, catalog: str) -> EventMark:
        """What a mark at the end of the log would say."""
        known = self._ends.get(catalog)
        end = self._counted(catalog, lambda tx: last_mark(tx, catalog), known=known)
        if end != known:  # a thread that has read less may come later: then its end is counted on from
            self._ends[catalog] = end
        return end

    def _counted(
        self,
        catalog: str,
        from_mark: Callable[[ReadTransaction], EventMark],
        end: bytes | None = None,
        known: EventMark | None = None,
    ) -> EventMark:
        """What a mark at the end of the log, or before the key ``end``, would say.

        Counted from another mark, or from ``known``, unless much lies behind that. Raises EventsTrimmed if there is
        none to count from.
        """
        mark = known or self._store.read(from_mark)
        while True:
            position = _from_mark(mark, mark.offset)
            try:
                page = self._store.read(lambda tx, position=position: _page(tx, catalog, position, PAGE_PAIRS, end))  # type: ignore[misc]
            except EventsTrimmed:
                mark = self._store.read(from_mark)
                if mark.offset <= position.offset:
                    raise
                continue  # trimmed meanwhile, up to a newer mark
            mark = EventMark(
                offset=page.position.offset,
                key=page.position.key,
                bytes=mark.bytes + page.size_bytes,
                time_ms=page.events[-1].time_ms if page.events else mark.time_ms,
            )
            if page.whole:
                return mark
            newer = self._store.read(from_mark)
            if newer.offset > mark.offset:
                mark = newer


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


def _last_mark_before(tx: ReadTransaction, catalog: str, end: bytes) -> EventMark:
    """The last mark at a place before the key ``end``; an empty one if there is none."""
    begin, marks_end = EVENT_MARKS.range(catalog)
    while begin < marks_end:
        pairs = tx.get_range(begin, marks_end, limit=1, reverse=True, snapshot=True)
        mark = EventMark.FromString(pairs[0][1]) if pairs else EventMark()
        if mark.key < end:
            return mark
        marks_end = pairs[0][0]
    return EventMark()


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
    size_bytes = 0
    for key, batch_bytes, batch in event_log.batches(catalog, pairs):
        size_bytes += batch_bytes
        for event in batch:
            offset += 1
            if offset > position.after:
                event.offset = offset
                events.append(event)
        places[offset] = key
    position = LogPosition(offset, key, max(position.after, offset))
    return EventPage(events, position, len(pairs) < pairs_max, places, size_bytes)
