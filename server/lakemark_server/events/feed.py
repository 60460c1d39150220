"""Feeds watchers: in each process and for each catalog that is watched, one thread reads the log.

It waits for new events, reads and encodes them once, and keeps the latest ones in a ring for any number of watchers.
A watcher that is behind the ring reads pages of the log by itself. Nobody waits for a slow watcher: what it has not
taken is in the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from lakemark_core.errors import EventsTrimmed, LakemarkError, Unavailable
from lakemark_server.events.filters import EventFilter
from lakemark_server.events.log import EventLog, LogPosition
from lakemark_server.events.ring import Delivery, EventRing, chosen, encoded
from lakemark_server.kv import StoreClosed

BATCH_EVENTS: Final = 1_000
BATCH_BYTES: Final = 1 << 20

LINGER_S: Final = 0.004
LINGER_S_MAX: Final = 0.05
"""Between two reads of a log at least, for each watcher and in all: under load, the events of this time are sent
together. A response costs a quarter of a millisecond of the processor, whether it has one event or fifty; so sending
takes a sixteenth of it, with up to twelve watchers. An event after a pause is sent at once."""

IDLE_S: Final = 5.0
"""How long a thread goes on when nobody watches."""

_log = structlog.get_logger(__name__)


class Following(Protocol):
    """One reader of a log, to be closed; for one thread at a time.

    ``upto``: it has been told all events up to this offset, or does not want them.
    """

    upto: int

    def take(self, events_max: int = BATCH_EVENTS, bytes_max: int = BATCH_BYTES) -> Delivery:
        """The next events, without waiting for any. Raises EventsTrimmed, and what has ended the reading."""

    def close(self) -> None: ...


class EventSource(Protocol):
    """Where events come from, for those who act on them in this process."""

    def watch(self, catalog: str, after: int, epoch: int, wanted: EventFilter, wake: Callable[[], None]) -> Following:
        """A reader of the events behind the offset ``after`` of a store of this epoch.

        ``wake`` is called, by any thread, when there may be new events; it must not block.
        """


class Watcher:
    """One reader of a log; for one thread at a time. ``upto``: it has been told all events up to this offset."""

    def __init__(self, tail: EventTail, upto: int, epoch: int, wanted: EventFilter, wake: Callable[[], None]) -> None:
        self.upto = upto
        self.epoch = epoch
        self.wake = wake
        self._tail = tail
        self._wanted = wanted
        self._place: LogPosition | None = None  # where it reads on in the log; None: it reads from the ring

    @property
    def end(self) -> int:
        """The offset of the last event that there is, as far as this process knows."""
        return max(self._tail.ring.end, self.upto)

    def recent(self, events_max: int = BATCH_EVENTS, bytes_max: int = BATCH_BYTES) -> Delivery | None:
        """The next events, without waiting for anything; none if there are no new ones.

        None: they have to be read from the store (``older``). Raises the error that has ended the reading of the log.
        """
        self._tail.check()
        batch = self._tail.ring.take(self.upto, self._wanted, events_max, bytes_max)
        if batch is not None:
            self.upto, self._place = batch.upto, None
        return batch

    def older(self, events_max: int = BATCH_EVENTS, bytes_max: int = BATCH_BYTES) -> Delivery:
        """The next events, read from the store. Raises EventsTrimmed."""
        log, catalog = self._tail.log, self._tail.catalog
        place = self._place or log.begin(catalog, self.upto, self.epoch)
        page = log.page(catalog, place)
        batch = chosen(map(encoded, page.events), self.upto, self._wanted, events_max, bytes_max)
        if batch.more:  # the rest of the page is read again
            self._place = place._replace(after=batch.upto)
        else:
            self._place = page.position
            batch = batch._replace(upto=max(batch.upto, page.position.after), more=not page.whole)
        self.upto = batch.upto
        return batch

    def take(self, events_max: int = BATCH_EVENTS, bytes_max: int = BATCH_BYTES) -> Delivery:
        """The next events, from wherever they are."""
        recent = self.recent(events_max, bytes_max)
        return self.older(events_max, bytes_max) if recent is None else recent

    def close(self) -> None:
        """Ends it; it is woken no more."""
        self._tail.leave(self)


class EventTail:
    """The thread that reads the log of a catalog from ``place`` on, while there are watchers."""

    def __init__(self, log: EventLog, catalog: str, place: LogPosition, ended: Callable[[EventTail], bool]) -> None:
        self.log, self.catalog = log, catalog
        self.ring = EventRing(place.offset)
        self._place = place
        self._ended = ended
        self._watchers: set[Watcher] = set()
        self._lock = threading.Lock()
        self._failure: LakemarkError | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events {catalog}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def enter(self, watcher: Watcher) -> None:
        """Wakes the watcher from now on when there are events."""
        with self._lock:
            self._watchers.add(watcher)

    def leave(self, watcher: Watcher) -> None:
        """Forgets the watcher."""
        with self._lock:
            self._watchers.discard(watcher)

    @property
    def watchers(self) -> int:
        with self._lock:
            return len(self._watchers)

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def check(self) -> None:
        """Raises the error that has ended the thread."""
        if self._failure is not None:
            raise self._failure

    def fail(self, error: LakemarkError) -> None:
        """Ends the thread, and all watchers with this error."""
        self._failure = error
        self._stopped.set()
        self._wake()

    def _run(self) -> None:
        try:
            self._read_on()
        except StoreClosed:
            self.fail(_stopping())
        except LakemarkError as error:
            _log.warning("the log of events cannot be read", catalog=self.catalog, reason=error.message)
            self.fail(error)
        except Exception:
            self.fail(Unavailable(f"the events of catalog {self.catalog!r} cannot be read; ask again"))
            raise
        finally:
            self._ended(self)

    def _read_on(self) -> None:
        seen: bytes | None = None
        since = 0.0
        while not self._stopped.is_set():
            try:
                page = self.log.page(self.catalog, self._place)
            except EventsTrimmed:  # sooner than they were read: each watcher is told by what it has seen itself
                self._place = self.log.begin(self.catalog, 0)
                self.ring.restart(self._place.offset)
                continue
            self._place = page.position
            if page.events:
                self.ring.append(list(map(encoded, page.events)))
                self._wake()
            if not page.whole:
                continue
            linger_s = min(LINGER_S * self.watchers, LINGER_S_MAX)
            self._stopped.wait(max(0.0, since + linger_s - time.monotonic()))
            since = time.monotonic()
            last, seen = seen, self.log.wait(self.catalog, seen, IDLE_S)
            if last == seen and not self.watchers and self._ended(self):
                return

    def _wake(self) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.wake()


class EventFeed:
    """The watchers of one process. Thread-safe."""

    def __init__(self, log: EventLog) -> None:
        self._event_log = log
        self._tails: dict[str, EventTail] = {}
        self._lock = threading.Lock()
        self._closed = False

    def watch(self, catalog: str, after: int, epoch: int, wanted: EventFilter, wake: Callable[[], None]) -> Watcher:
        """A watcher of the events behind the offset ``after`` of a store of this epoch; to be closed.

        ``wake`` is called, by any thread, when there may be new events; it must not block. Raises Unavailable after
        ``close``.
        """
        place = None if catalog in self._tails else self._event_log.end(catalog)
        with self._lock:
            self.check()
            tail = self._tails.get(catalog)
            if tail is None:
                place = place or self._event_log.end(catalog)
                tail = self._tails[catalog] = EventTail(self._event_log, catalog, place, self._forget)
                tail.start()
            watcher = Watcher(tail, after, epoch, wanted, wake)
            tail.enter(watcher)
        return watcher

    def check(self) -> None:
        """Raises Unavailable after ``close``."""
        if self._closed:
            raise _stopping()

    def end(self, catalog: str) -> int:
        """The offset of the last event of which this process knows without asking; 0 if nobody watches."""
        tail = self._tails.get(catalog)
        return 0 if tail is None else tail.ring.end

    @property
    def watched(self) -> dict[str, int]:
        """How many watchers each catalog has."""
        with self._lock:
            return {catalog: tail.watchers for catalog, tail in self._tails.items()}

    def close(self) -> None:
        """Ends all watchers with Unavailable. Their threads end with the store, or soon."""
        with self._lock:
            self._closed = True
            tails = list(self._tails.values())
        for tail in tails:
            tail.fail(_stopping())

    def _forget(self, tail: EventTail) -> bool:
        """Whether the tail is not to be watched any more: it has failed, or nobody does."""
        with self._lock:
            if tail.watchers and not tail.failed:
                return False
            if self._tails.get(tail.catalog) is tail:
                del self._tails[tail.catalog]
            return True


def _stopping() -> Unavailable:
    return Unavailable("the service is being stopped; ask again")
