"""What is measured when somebody asks: queues, and how far consumers, sinks and listeners are behind.

What stands in the store (lag, deliveries, failures) is the same whichever process of the store is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from lakemark_server.admission.lanes import LaneUse
from lakemark_server.events.service import Events
from lakemark_server.kv import Store, keys_below
from lakemark_server.listeners.registry import Listeners
from lakemark_server.sinks.registry import Sinks
from lakemark_server.store.keyspace import EVENT_ENDS

_NAMED: Final = ("catalog", "name")


class LaneMetrics:
    """``uses``: by protocol, how its lanes are used now."""

    def __init__(self, uses: Mapping[str, Callable[[], Iterable[LaneUse]]]) -> None:
        self._uses = uses

    def families(self) -> Iterator[Metric]:
        labels = ("protocol", "lane")
        begun = CounterMetricFamily("lakemark_lane_requests", "Requests that were given to a lane.", labels=labels)
        pending = GaugeMetricFamily("lakemark_lane_pending", "Requests that wait or run in a lane.", labels=labels)
        threads = GaugeMetricFamily("lakemark_lane_threads", "Threads of a lane.", labels=labels)
        for protocol, uses in self._uses.items():
            for use in uses():
                place = (protocol, use.name)
                begun.add_metric(place, use.begun)
                pending.add_metric(place, use.pending)
                threads.add_metric(place, use.threads)
        yield from (begun, pending, threads)


class EventMetrics:
    """Logs of events, and who reads them."""

    def __init__(self, store: Store, events: Events, sinks: Sinks, listeners: Listeners) -> None:
        self._store, self._events, self._sinks, self._listeners = store, events, sinks, listeners

    def families(self) -> Iterator[Metric]:
        """Raises LakemarkError."""
        catalogs = [str(name) for (name,), _ in keys_below(self._store, EVENT_ENDS)]
        yield from self._watchers()
        yield from self._logs(catalogs)
        yield from self._of_sinks(catalogs)
        yield from self._of_listeners(catalogs)

    def _watchers(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("lakemark_watchers", "Readers of new events in this process.", labels=("catalog",))
        for catalog, count in self._events.feed.watched.items():
            family.add_metric((catalog,), count)
        yield family

    def _logs(self, catalogs: Iterable[str]) -> Iterator[Metric]:
        log, now = self._events.log, self._events.clock()
        last = GaugeMetricFamily("lakemark_event_log_last", "Offset of the last event.", labels=("catalog",))
        behind = GaugeMetricFamily(
            "lakemark_consumer_lag_events",
            "Events that a consumer is not done with; those of sinks are named sink:…, of listeners listener:….",
            labels=_NAMED,
        )
        behind_s = GaugeMetricFamily(
            "lakemark_consumer_lag_seconds", "Age of the first event that a consumer is not done with.", labels=_NAMED
        )
        for catalog in catalogs:
            extent = log.extent(catalog)
            last.add_metric((catalog,), extent.last)
            for consumer in self._events.consumers.list(catalog):
                lag = log.lag(catalog, consumer.place.offset, extent)
                name = (catalog, consumer.record.name)
                behind.add_metric(name, lag.events)
                behind_s.add_metric(name, lag.ms(now) / 1_000)
        yield from (last, behind, behind_s)

    def _of_sinks(self, catalogs: Iterable[str]) -> Iterator[Metric]:
        delivered = CounterMetricFamily("lakemark_sink_delivered", "Events delivered, also again.", labels=_NAMED)
        failed = CounterMetricFamily("lakemark_sink_failures", "Attempts that failed.", labels=_NAMED)
        letters = GaugeMetricFamily("lakemark_sink_dead_letters", "Events that were given up.", labels=_NAMED)
        failing = GaugeMetricFamily("lakemark_sink_failing", "1 while the last attempt failed.", labels=_NAMED)
        for catalog in catalogs:
            for status in self._sinks.list(catalog):
                name = (catalog, status.record.name)
                delivered.add_metric(name, status.progress.delivered)
                failed.add_metric(name, status.progress.failed_attempts)
                letters.add_metric(name, status.letters)
                failing.add_metric(name, bool(status.progress.failing_since_ms))
        yield from (delivered, failed, letters, failing)

    def _of_listeners(self, catalogs: Iterable[str]) -> Iterator[Metric]:
        repaired = CounterMetricFamily(
            "lakemark_listener_repairs", "Objects and pages of partitions that were brought in line.", labels=_NAMED
        )
        failed = CounterMetricFamily("lakemark_listener_failures", "Attempts that failed.", labels=_NAMED)
        failing = GaugeMetricFamily("lakemark_listener_failing", "1 while the last attempt failed.", labels=_NAMED)
        for catalog in catalogs:
            for listener in self._listeners.list(catalog):
                name = (catalog, listener.name)
                repaired.add_metric(name, listener.state.repaired)
                failed.add_metric(name, listener.state.failed_attempts)
                failing.add_metric(name, bool(listener.state.failing_since_ms))
        yield from (repaired, failed, failing)
