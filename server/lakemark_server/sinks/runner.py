"""Runs the sinks of a store: each has a thread in every process, and a lease decides in which one it works.

One sink waits for nobody: neither for other sinks, nor does a commit wait for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from lakemark_core.errors import LakemarkError
from lakemark_proto.store.v1.store_pb2 import SinkRecord
from lakemark_server.context.clock import ClockMs
from lakemark_server.events import consumers
from lakemark_server.events.feed import EventSource
from lakemark_server.kv import Store
from lakemark_server.sinks import registry, senders
from lakemark_server.sinks.backoff import RetryPauses
from lakemark_server.sinks.dead_letters import LetterLimits, SinkId
from lakemark_server.sinks.delivery import DeliveryAborted, Sender
from lakemark_server.sinks.policies import SinkPolicy
from lakemark_server.sinks.registry import consumer_name
from lakemark_server.sinks.worker import SinkWorker, WorkerRules
from lakemark_server.store.keyspace import SINKS_CHANGED
from lakemark_server.store.leased_thread import LeasedThread, LeasedThreads
from lakemark_server.store.leases import FencedStore, Lease

_GATHER_S: Final = 0.02
"""After the log has grown, so that a burst of commits is read in one page."""
_AFTER_ERROR_S: Final = 1.0
# A lease lasts for several attempts of a webhook, so that it never runs out during one.
_ATTEMPTS_A_LEASE: Final = 2

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """``lease_ms``: after that time another process takes over from one that is silent; longer for slow webhooks.

    ``look_s``: how soon a sink that was created, paused or dropped is noticed.
    """

    lease_ms: int = 15_000
    look_s: float = 1.0
    policy: SinkPolicy = field(default_factory=SinkPolicy)
    pauses: RetryPauses = field(default_factory=RetryPauses)
    limits: LetterLimits = field(default_factory=LetterLimits)


class SinkRunner(LeasedThreads[tuple[SinkId, int, int]]):
    """Between ``start`` and ``stop``: keeps a thread for each sink that is not paused."""

    def __init__(self, store: Store, clock: ClockMs, settings: RunnerSettings, feed: EventSource) -> None:
        super().__init__("sinks", self._wanted, settings.look_s)
        self._store, self._clock, self._settings, self._feed = store, clock, settings, feed
        self._seen: bytes | None = b""  # that of no store: it has none or a counter

    def _wanted(self) -> dict[tuple[SinkId, int, int], Callable[[], LeasedThread]] | None:
        """By name, creation and revision of the record; None if no record has changed."""
        changed = self._store.read(lambda tx: tx.get(SINKS_CHANGED, snapshot=True))
        if changed == self._seen:
            return None
        records = self._store.read(registry.all_of)
        self._seen = changed
        return {
            (SinkId(record.catalog, record.name), record.created_ms, record.revision): partial(
                SinkThread, self._store, self._clock, record, self._settings, self._feed
            )
            for record in records
            if not record.paused
        }


class SinkThread(LeasedThread):
    """One sink in this process: waits for its lease, and delivers while it has it."""

    def __init__(
        self, store: Store, clock: ClockMs, record: SinkRecord, settings: RunnerSettings, feed: EventSource
    ) -> None:
        self._sink = SinkId(record.catalog, record.name)
        self._record, self._settings, self._clock, self._feed = record, settings, clock, feed
        ttl_ms = max(settings.lease_ms, _ATTEMPTS_A_LEASE * senders.attempt_ms(record))
        super().__init__(
            store,
            clock,
            name=f"sink {record.name}",
            lease=consumers.lease_name(record.catalog, consumer_name(record.name)),
            ttl_ms=ttl_ms,
            lost="a sink goes on elsewhere",
        )
        self._sender: Sender | None = None
        self._chance = random.Random()  # noqa: S311 - spreads retries

    def ask_to_stop(self) -> None:
        """Ends what it does, without waiting for it."""
        self._stopped.set()
        sender = self._sender
        if sender is not None:
            sender.abort()

    def _rounds(self) -> None:
        try:
            senders.check(self._record, self._settings.policy, self._clock)
        except LakemarkError as error:  # another process may have what is missing here, and gets the lease
            _log.warning("a sink cannot be run by this process", sink=self._sink.name, reason=error.message)
            return
        while not self._stopped.is_set():
            try:
                lease = self._held()
                if lease is None:
                    self._stopped.wait(self._ttl_ms / 3_000)
                else:
                    self._work(lease)
            except DeliveryAborted:
                return
            except LakemarkError as error:
                self._tell(error.message)
            except Exception:
                _log.exception("a sink failed by a defect; it is tried again", sink=self._sink.name)
                self._stopped.wait(_AFTER_ERROR_S)

    def _work(self, lease: Lease) -> None:
        """Delivers until the lease has another token, the sink is stopped, or something fails."""
        sender = self._sender = senders.sender_of(self._record, self._settings.policy, self._clock)
        try:
            if self._stopped.is_set():
                return
            worker = SinkWorker(
                FencedStore(self._store, lease),
                self._clock,
                self._sink,
                sender,
                WorkerRules(senders.attempts_max(self._record), self._settings.pauses, self._settings.limits),
                self._chance,
                self._feed,
            )
            with closing(worker):
                _log.info("delivering", sink=self._sink.name, catalog=self._sink.catalog)
                try:
                    while not self._stopped.is_set() and _has_token(self._held(), lease):
                        self._pause(worker, worker.step())
                except DeliveryAborted:
                    pass
                if _has_token(self._lease, lease):
                    worker.finish()
        finally:
            self._sender = None
            sender.close()

    def _pause(self, worker: SinkWorker, seconds: float) -> None:
        seconds = min(seconds, self._ttl_ms / 6_000)
        if not seconds:
            return
        if worker.is_idle:
            worker.wait(seconds)
            seconds = _GATHER_S
        self._stopped.wait(seconds)

    def _held(self) -> Lease | None:
        """The lease, renewed if a third of its time is over: what follows has the other two."""
        lease = self._lease
        if lease is not None and self._clock() < lease.expires_ms - self._ttl_ms * 2 // 3:
            return lease
        return self._hold()

    def _tell(self, reason: str) -> None:
        if not self._stopped.is_set():
            _log.warning("a sink was interrupted; it goes on", sink=self._sink.name, reason=reason)
            self._stopped.wait(_AFTER_ERROR_S)


def _has_token(lease: Lease | None, first: Lease) -> bool:
    return lease is not None and lease.token == first.token
