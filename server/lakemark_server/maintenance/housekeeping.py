"""Rounds under the sweeper's lease, which end everything whose time is over."""

from __future__ import annotations

import structlog

from lakemark_server.access.tokens import DelegationTokens
from lakemark_server.catalog import left_directories, partition_batches, partition_departures
from lakemark_server.catalog.service import Catalog
from lakemark_server.context.clock import ClockMs
from lakemark_server.doors.sweep import DoorSweep
from lakemark_server.events.upkeep import EventRetention, LogUpkeep
from lakemark_server.kv import Store
from lakemark_server.maintenance.cleaning.auto_clean import AutoClean
from lakemark_server.maintenance.cleaning.cleaner import Cleaner
from lakemark_server.store import requests
from lakemark_server.store.mutations import Mutations
from lakemark_server.timeline.service import Timeline
from lakemark_server.transactions import expiry
from lakemark_server.transactions.limits import TransactionLimits

_log = structlog.get_logger(__name__)


class Housekeeping:
    """``store`` is fenced: what is built on it writes only while the lease is held."""

    def __init__(
        self,
        store: Store,
        clock: ClockMs,
        catalog: Catalog,
        timeline: Timeline,
        cleaner: Cleaner,
        *,
        request_retain_ms: int,
        clean_interval_ms: int,
        clean_grace_ms: int,
        event_retention: EventRetention,
        transaction_limits: TransactionLimits,
        tokens: DelegationTokens,
    ) -> None:
        self._store, self._clock = store, clock
        self._catalog, self._timeline = catalog, timeline
        self._request_retain_ms = request_retain_ms
        self._transaction_limits = transaction_limits
        self._tokens = tokens
        self._events = LogUpkeep(store, clock, event_retention)
        self._doors = DoorSweep(store, clock)
        self._cleans = AutoClean(store, clock, cleaner, interval_ms=clean_interval_ms, grace_ms=clean_grace_ms)

    def round(self) -> list[tuple[int, int]]:
        """One round. Returns the lost writers that it has rolled back, as (table id, instant)."""
        lost = self._timeline.roll_back_expired()
        self._catalog.dropped.purge_due()
        for location in left_directories.finish(self._store, self._clock()):
            _log.info("ended what a process that died was doing with a directory", location=location)
        partition_departures.leave_what_is_left(self._catalog.mutations, self._catalog.ownership)
        batches = partition_batches.finish_abandoned(self._store, self._clock())
        if batches:
            _log.info("finished changes of partitions whose writer was lost", batches=batches)
        silent = expiry.sweep(Mutations(self._store, self._clock), self._transaction_limits)
        if silent.locks or silent.transactions:
            _log.info("ended what silent clients have left", locks=silent.locks, transactions=silent.transactions)
        for table_id, name in self._timeline.references.drop_expired():
            _log.info("dropped a branch or tag whose time is over", table_id=table_id, name=name)
        forgotten = requests.forget(self._store, self._clock() - self._request_retain_ms)
        if forgotten:
            _log.debug("forgot the answers to old requests", requests=forgotten)
        for catalog, events in self._events.round().items():
            _log.info("trimmed a log of events", catalog=catalog, events=events)
        expired = self._tokens.sweep()
        if expired:
            _log.info("removed delegation tokens that have expired", tokens=expired)
        doors = self._doors.round()
        if doors:
            _log.info("deleted what statements have left at doors", directories=doors)
        self._cleans.round()
        return lost
