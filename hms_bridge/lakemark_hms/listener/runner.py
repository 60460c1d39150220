"""Runners: each listener is followed by one thread, in one of all processes that share a store."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from lakemark_core.errors import ConsumerTaken, EventsLost, EventsTrimmed, LakemarkError
from lakemark_hms.listener.decisions import Owner
from lakemark_hms.listener.mirror import FunctionDigests, Mirror, Orders
from lakemark_hms.listener.ours import Ours
from lakemark_hms.listener.selection import Selection, looks_of
from lakemark_hms.outside import Metastore
from lakemark_proto.v1 import listeners_pb2 as pb
from lakemark_proto.v1.events_pb2 import EventFilter
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.context import deadline
from lakemark_server.context.clock import ClockMs
from lakemark_server.events.consumers import Consumers, EventPosition, Start, lease_name
from lakemark_server.events.feed import EventSource, Following
from lakemark_server.events.filters import EVERYTHING, filter_of
from lakemark_server.events.log import EventLog
from lakemark_server.kv import Store
from lakemark_server.listeners.journal import Journal
from lakemark_server.listeners.registry import ListenerNotFound, Listeners, consumer_of
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store import event_log
from lakemark_server.store.leased_thread import LeasedThread, LeasedThreads
from lakemark_server.store.leases import FencedStore, Lease, LeaseLost

LEASE_MS: Final = 120_000
"""Longer than a call may take, because the lease is kept between calls."""

_WAIT_S: Final = 1.0
_RETRY_S_MIN: Final = 1.0
_RETRY_S_MAX: Final = 60.0
_TELL_MS: Final = 1_000
_EVENTS_AT_ONCE: Final = 500
_DIFFERENCES_MAX: Final = 1_000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Domains:
    """What runners need of the service. ``engine_schemes``: see ``lakemark_hms.services``."""

    store: Store
    clock: ClockMs
    catalog: Catalog
    warehouse: Warehouse
    snapshots: Snapshots
    log: EventLog
    feed: EventSource
    consumers: Consumers
    listeners: Listeners
    engine_schemes: dict[str, str] = field(default_factory=dict)

    def ours(self, catalog: str) -> Ours:
        return Ours(self.catalog, self.warehouse, self.snapshots, self.engine_schemes, catalog)

    def epoch(self) -> int:
        return self.store.read(event_log.epoch)

    def runners(self, interval_s: float, lease_s: float) -> Runners:
        """``interval_s``: how often new and dropped listeners are looked for. ``lease_s``: see ``Runner``."""
        return Runners(self, interval_s, int(lease_s * 1_000))

    def comparison(self) -> Comparison:
        return Comparison(self)


class Runner(LeasedThread):
    """Follows the log for one listener. ``lease_ms``: after that time without a word another process takes over."""

    def __init__(self, domains: Domains, listener: pb.Listener, lease_ms: int = LEASE_MS) -> None:
        super().__init__(
            domains.store,
            domains.clock,
            name=f"listener-{listener.name}",
            lease=lease_name(listener.catalog, consumer_of(listener.name)),
            ttl_ms=lease_ms,
            lost="another process mirrors for the listener now",
        )
        self.listener_id = listener.listener_id
        self._domains, self._lease_ms = domains, lease_ms
        self._catalog, self._name = listener.catalog, listener.name
        self._metastore = Metastore(listener.uri)
        self._reader: Following | None = None  # None: where the consumer is has to be looked up
        self._arrived = threading.Event()  # there may be new events
        self._journal: tuple[int, Journal] | None = None  # made for the lease with this token
        self._renewed_ms = self._told_ms = 0
        self._attempts = 0

    def ask_to_stop(self) -> None:
        super().ask_to_stop()
        self._arrived.set()
        self._metastore.interrupt()

    def stop(self) -> None:
        self.ask_to_stop()
        super().stop()

    def _rounds(self) -> None:
        while not self._stopped.is_set():
            try:
                wait_s = self._round()
                self._attempts = 0
            except ListenerNotFound:
                break
            except (LeaseLost, ConsumerTaken):
                self._forget()
                wait_s = _WAIT_S
            except LakemarkError as error:
                wait_s = self._failed(error)
            if wait_s:
                self._stopped.wait(wait_s)
        self._read_no_more()
        self._metastore.close()

    def _round(self) -> float:
        """Returns how many seconds to wait before the next one. Raises LakemarkError."""
        listener = self._domains.listeners.get(self._catalog, self._name)
        if listener.listener_id != self.listener_id:  # dropped, and created again
            raise ListenerNotFound(f"listener {self._name!r} was dropped")
        lease = self._hold()
        if lease is None:
            self._forget()
            return _WAIT_S
        self._renewed_ms = self._domains.clock()
        journal = self._journal_of(lease)
        if listener.paused:
            return _WAIT_S
        if self._is_due(listener, journal.state):
            self._repair(listener, journal, lease)
            whole = False
        else:
            whole = self._follow(listener, journal, lease)
        if journal.state.failing_since_ms or self._domains.clock() - self._told_ms >= _TELL_MS:
            journal.state.failing_since_ms = journal.state.next_attempt_ms = 0
            self._tell(journal)
        if whole:
            self._arrived.wait(_WAIT_S)
        return 0.0

    def _follow(self, listener: pb.Listener, journal: Journal, lease: Lease) -> bool:
        """Looks at what the next events are about. Returns whether there were no more of them."""
        try:
            if self._reader is None:
                self._reader = self._begun()
            self._arrived.clear()  # first: what comes from now on is another look
            delivery = self._reader.take(_EVENTS_AT_ONCE)
        except (EventsTrimmed, EventsLost):  # it was away for too long, or the store is an older one
            self._repair(listener, journal, lease)
            return False
        events = delivery.decoded()
        if events:
            looks = looks_of(events)
            if looks.everything:
                self._repair(listener, journal, lease)
                return False
            self._mirror(listener, journal).look(looks)
            done = EventPosition(events[-1].offset, events[-1].epoch)
            self._domains.consumers.acknowledge(self._catalog, consumer_of(self._name), done, lease.token)
        return not delivery.more

    def _begun(self) -> Following:
        """A reader of what the consumer is not done with. Raises EventsTrimmed, EventsLost."""
        consumers = self._domains.consumers
        done = consumers.get(self._catalog, consumer_of(self._name)).position
        start = consumers.locate(self._catalog, Start(done.offset, done.epoch))
        return self._domains.feed.watch(self._catalog, start.offset, start.epoch, EVERYTHING, self._arrived.set)

    def _read_no_more(self) -> None:
        """What was read and not acknowledged is read again by the next reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _repair(self, listener: pb.Listener, journal: Journal, lease: Lease) -> None:
        """Compares everything, as it is now or later, so that no event before is needed any more."""
        extent = self._domains.log.extent(self._catalog)
        self._mirror(listener, journal, listener.overwrites).everything()
        consumer = consumer_of(self._name)
        done = self._domains.consumers.get(self._catalog, consumer).position
        if (done.epoch, done.offset) < (extent.epoch, extent.last):
            done = EventPosition(extent.last, extent.epoch)
            self._domains.consumers.acknowledge(self._catalog, consumer, done, lease.token)
        self._read_no_more()
        journal.repaired(listener.repairs_asked)
        self._told_ms = self._domains.clock()

    def _is_due(self, listener: pb.Listener, state: pb.ListenerState) -> bool:
        if state.repairs_done < listener.repairs_asked:
            return True
        return self._domains.clock() - state.compared_ms >= listener.compare_interval_ms

    def _mirror(self, listener: pb.Listener, journal: Journal, overwrites: Collection[str] = ()) -> Mirror:
        def note(difference: pb.ListenerDifference) -> None:
            if difference.state == pb.DIFFERENCE_REPAIRED:
                _log.info("mirrored", listener=self._name, object=difference.name, reason=difference.reason)
            journal.note(difference)

        orders = Orders(applies=True, overwrites=tuple(overwrites), pulse=self._pulse)
        return mirror_of(self._domains, listener, self._metastore, journal, note, orders)

    def _pulse(self) -> None:
        """Keeps the lease, and ends what is under way when the process stops."""
        if self._stopped.is_set():
            raise LeaseLost("the service stops")
        now = self._domains.clock()
        if now - self._renewed_ms >= self._lease_ms // 3:
            if self._hold() is None:
                raise LeaseLost("another process mirrors for the listener now")
            self._renewed_ms = now
        if self._journal is not None and now - self._told_ms >= _TELL_MS:
            self._tell(self._journal[1])

    def _journal_of(self, lease: Lease) -> Journal:
        if self._journal is None or self._journal[0] != lease.token:
            self._forget()
            store = FencedStore(self._store, lease)
            self._journal = lease.token, Journal(store, self._domains.clock, self._catalog, self._name)
        return self._journal[1]

    def _forget(self) -> None:
        self._journal = None
        self._read_no_more()

    def _tell(self, journal: Journal) -> None:
        journal.state.calls = self._metastore.calls
        journal.tell()
        self._told_ms = self._domains.clock()

    def _failed(self, error: LakemarkError) -> float:
        """Notes a failed attempt. Returns how long to wait before the next one: longer each time, with jitter."""
        wait_s = min(_RETRY_S_MAX, _RETRY_S_MIN * 2.0**self._attempts) * random.uniform(0.5, 1.0)  # noqa: S311
        self._attempts += 1
        self._read_no_more()
        _log.warning("a listener failed; it tries again", listener=self._name, reason=error.message)
        if self._journal is None:
            return wait_s
        state, now = self._journal[1].state, self._domains.clock()
        state.failed_attempts += 1
        state.last_error, state.last_error_ms = error.message, now
        state.failing_since_ms = state.failing_since_ms or now
        state.next_attempt_ms = now + int(wait_s * 1_000)
        try:
            self._tell(self._journal[1])
        except LakemarkError:  # it cannot be told; the log has it
            self._forget()
        return wait_s


class Runners(LeasedThreads[tuple[str, str, str]]):
    """Starts a runner for each listener that is configured, in this process, and ends those of dropped ones."""

    def __init__(self, domains: Domains, interval_s: float, lease_ms: int = LEASE_MS) -> None:
        super().__init__("listeners", self._wanted, interval_s)
        self._domains, self._lease_ms = domains, lease_ms

    def _wanted(self) -> dict[tuple[str, str, str], Callable[[], LeasedThread]]:
        return {
            (one.catalog, one.name, one.listener_id): partial(Runner, self._domains, one, self._lease_ms)
            for one in self._domains.listeners.all()
        }


class Comparison:
    """Compares without changing anything, in any process."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains

    def compare(self, listener: pb.Listener, limit: int) -> pb.CompareListenerResponse:
        """What differs, up to ``limit`` differences. Raises OutsideUnavailable, OutsideRefused."""
        answer = pb.CompareListenerResponse()
        names = set[tuple[str, str]]()

        def note(difference: pb.ListenerDifference) -> None:
            names.add((difference.kind, difference.name))
            if difference.state == pb.DIFFERENCE_NONE:
                return
            answer.different += 1
            if len(answer.differences) < (limit or _DIFFERENCES_MAX):
                answer.differences.append(difference)

        digests = Journal(self._domains.store, self._domains.clock, listener.catalog, listener.name)
        orders = Orders(applies=False, pulse=deadline.check)
        with Metastore(listener.uri) as metastore:
            mirror_of(self._domains, listener, metastore, digests, note, orders).everything()
        answer.compared = len(names)
        return answer


def mirror_of(
    domains: Domains,
    listener: pb.Listener,
    metastore: Metastore,
    digests: FunctionDigests,
    note: Callable[[pb.ListenerDifference], None],
    orders: Orders,
) -> Mirror:
    """The mirror of a configured listener."""
    owner = Owner(listener.name, listener.listener_id, listener.adopt)
    selection = Selection(filter_of(EventFilter(patterns=listener.patterns)))
    return Mirror(metastore, domains.ours(listener.catalog), owner, selection, digests, domains.epoch(), note, orders)
