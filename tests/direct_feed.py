"""A feed of events without a thread: who takes events reads them from the log at that moment."""

from __future__ import annotations

from collections.abc import Callable

from lakemark_server.events.feed import BATCH_BYTES, BATCH_EVENTS
from lakemark_server.events.filters import EventFilter
from lakemark_server.events.log import EventLog
from lakemark_server.events.ring import Delivery, chosen, encoded
from lakemark_server.kv import Store


class _Reader:
    def __init__(self, log: EventLog, catalog: str, upto: int, wanted: EventFilter) -> None:
        self.upto = upto
        self._log, self._catalog, self._wanted = log, catalog, wanted

    def take(self, events_max: int = BATCH_EVENTS, bytes_max: int = BATCH_BYTES) -> Delivery:
        page = self._log.page(self._catalog, self._log.begin(self._catalog, self.upto))
        delivery = chosen(map(encoded, page.events), self.upto, self._wanted, events_max, bytes_max)
        self.upto = delivery.upto
        return delivery._replace(more=delivery.more or not page.whole)

    def close(self) -> None: ...


class DirectFeed:
    """Wakes nobody."""

    def __init__(self, store: Store) -> None:
        self._log = EventLog(store)

    def watch(self, catalog: str, after: int, epoch: int, wanted: EventFilter, wake: Callable[[], None]) -> _Reader:
        del epoch, wake
        return _Reader(self._log, catalog, after, wanted)
