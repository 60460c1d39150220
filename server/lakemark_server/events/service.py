"""The events of one process: the log, its consumers, and the feed of its watchers."""

from __future__ import annotations

from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.events.consumers import Consumers
from lakemark_server.events.feed import EventFeed
from lakemark_server.events.log import EventLog
from lakemark_server.events.upkeep import EventRetention
from lakemark_server.kv import Store


class Events:
    """``close`` ends all watchers. ``retention`` is what the upkeep of the log goes by."""

    def __init__(self, store: Store, retention: EventRetention, clock: ClockMs = now_ms) -> None:
        self.clock = clock
        self.retention = retention
        self.log = EventLog(store)
        self.feed = EventFeed(self.log)
        self.consumers = Consumers(store, self.log, clock, known_end=self.feed.end)

    def close(self) -> None:
        self.feed.close()
