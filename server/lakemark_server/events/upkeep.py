"""Upkeep of the logs of events: marks, by which offsets are found, and the end of what is too old or too much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lakemark_proto.store.v1.store_pb2 import EventMark
from lakemark_server.context.clock import ClockMs
from lakemark_server.events.log import PAGE_PAIRS, first_mark, last_mark, marks_key
from lakemark_server.kv import ReadTransaction, Store, Transaction, keys_below
from lakemark_server.store import event_log
from lakemark_server.store.keyspace import EVENT_ENDS, EVENT_MARKS, EVENTS

EVENTS_A_MARK: Final = 1_000
BYTES_A_MARK: Final = 1 << 20
_MARKS_A_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class EventRetention:
    """How long events are kept, and how many bytes of them in each catalog, as the store holds them."""

    ms: int
    bytes: int


class LogUpkeep:
    """Rounds of the background; ``store`` may be fenced."""

    def __init__(self, store: Store, clock: ClockMs, retention: EventRetention) -> None:
        self._store, self._clock, self._retention = store, clock, retention
        self._seen: dict[str, bytes] = {}  # by catalog: the end of the log when its marks were set last

    def round(self) -> dict[str, int]:
        """Sets marks up to the end of each log and trims its beginning. Returns the events trimmed, by catalog."""
        trimmed = {}
        for (name,), end in keys_below(self._store, EVENT_ENDS):
            catalog = str(name)
            if self._seen.get(catalog) != end:
                self._set_marks(catalog)
                self._seen[catalog] = end
            events = self._trim(catalog)
            if events:
                trimmed[catalog] = events
        return trimmed

    def _set_marks(self, catalog: str) -> None:
        mark = self._store.read(lambda tx: last_mark(tx, catalog))
        while True:
            new = self._store.read(lambda tx, mark=mark: _next_marks(tx, catalog, mark))  # type: ignore[misc]
            for mark in new.marks:
                self._store.transact(lambda tx, mark=mark: _put_new(tx, catalog, mark))  # type: ignore[misc]
            if new.whole:
                return
            mark = new.read

    def _trim(self, catalog: str) -> int:
        before_ms, trimmed = self._clock() - self._retention.ms, 0
        while True:
            until = self._store.read(lambda tx: due(tx, catalog, before_ms, self._retention.bytes))
            if until is None:
                return trimmed
            trimmed += self._store.transact(lambda tx, until=until: _cut(tx, catalog, until))  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class _Marks:
    """``read``: where reading goes on. ``whole``: there is no more."""

    marks: list[EventMark]
    read: EventMark
    whole: bool


def _next_marks(tx: ReadTransaction, catalog: str, mark: EventMark) -> _Marks:
    first, end = EVENTS.range(catalog)
    begin = mark.key + b"\0" if mark.key else first
    pairs = tx.get_range(begin, end, limit=PAGE_PAIRS, snapshot=True) if begin < end else []
    marks: list[EventMark] = []
    set_at = last_mark(tx, catalog)
    read = mark
    for key, size_bytes, events in event_log.batches(catalog, pairs):
        read = EventMark(
            offset=read.offset + len(events), key=key, bytes=read.bytes + size_bytes, time_ms=events[-1].time_ms
        )
        if read.offset - set_at.offset >= EVENTS_A_MARK or read.bytes - set_at.bytes >= BYTES_A_MARK:
            marks.append(read)
            set_at = read
    return _Marks(marks, read, len(pairs) < PAGE_PAIRS)


def _put_new(tx: Transaction, catalog: str, mark: EventMark) -> None:
    """Unless the log was trimmed up to there since the mark was made, by whoever did it."""
    pairs = tx.get_range(*EVENT_MARKS.range(catalog), limit=1)
    first = EventMark.FromString(pairs[0][1]) if pairs else EventMark()
    if not first.trimmed or mark.offset > first.offset:
        _put(tx, catalog, mark)


def _put(tx: Transaction, catalog: str, mark: EventMark) -> None:
    tx.set(marks_key(catalog, mark.offset), mark.SerializeToString())


def due(tx: ReadTransaction, catalog: str, before_ms: int, bytes_max: int) -> EventMark | None:
    """A mark before which everything is older than ``before_ms``, or more than ``bytes_max`` ago; None: nothing is.

    The last of these among the first marks: another call finds more of them once it was trimmed up to this one.
    """
    kept = last_mark(tx, catalog).bytes
    until = None
    for _, value in tx.get_range(*EVENT_MARKS.range(catalog), limit=_MARKS_A_PAGE, snapshot=True):
        mark = EventMark.FromString(value)
        if mark.time_ms >= before_ms and kept - mark.bytes <= bytes_max:
            break
        until = mark
    return until if until is not None and not until.trimmed else None


def _cut(tx: Transaction, catalog: str, until: EventMark) -> int:
    """Removes everything up to the mark, which becomes the beginning. Returns how many events that were."""
    first = first_mark(tx, catalog)
    before = first.offset if first.trimmed else 0
    tx.clear_range(EVENTS.range(catalog)[0], until.key + b"\0")
    tx.clear_range(EVENT_MARKS.range(catalog)[0], marks_key(catalog, until.offset))
    until.trimmed = True
    _put(tx, catalog, until)
    return until.offset - before
