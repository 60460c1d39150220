"""A sink under any mix of failures, against a list: what arrives, in which order, and what becomes a dead letter.

The receiver is the one that docs/sinks.md describes: it drops what it has seen by comparing offsets. Workers die
between any two steps, and one that has lost its lease goes on for a while beside its successor.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.sinks_pb2 import SinkSecrets, WebhookSink
from lakemark_server.events import consumers
from lakemark_server.events.consumers import Consumers
from lakemark_server.events.log import EventLog
from lakemark_server.kv import open_store
from lakemark_server.sinks.backoff import RetryPauses
from lakemark_server.sinks.dead_letters import LetterLimits, SinkId
from lakemark_server.sinks.delivery import DeliveryFailed, EventRefused
from lakemark_server.sinks.registry import Sinks, consumer_name
from lakemark_server.sinks.worker import STUCK_MS, SinkWorker, WorkerRules
from lakemark_server.store.leases import FencedStore, LeaseLost, Leases
from lakemark_server.store.mutations import Mutations
from tests.direct_feed import DirectFeed
from tests.lakes import Clock
from tests.stores import store_url

SINK = SinkId("hive", "s")
SECRETS = SinkSecrets(signing_secrets=["whsec_" + "A" * 32])
LETTERS_MAX = 3
ATTEMPTS_MAX = 2
DATABASES = ("wanted", "other")

_numbers = itertools.count()


class Receiver:
    """What is at the other end of the sink; ``events`` are those that it has not seen before, in their order."""

    events_max = 3

    def __init__(self) -> None:
        self.down = False
        self.refused: set[int] = set()  # offsets of events that are never taken
        self.events: list[int] = []
        self.resent: set[int] = set()
        self.last = 0

    def send(self, events: Sequence[pb.Event], *, resent: bool = False) -> int:
        if events[0].offset in self.refused:
            raise EventRefused("too large")
        if self.down:
            raise DeliveryFailed("down", events=len(events))
        taken = list(itertools.takewhile(lambda event: event.offset not in self.refused, events))
        for event in taken:
            assert event.database == "wanted"
            if resent:
                self.resent.add(event.offset)
            elif event.offset > self.last:
                self.last = event.offset
                self.events.append(event.offset)
        return len(taken)

    def abort(self) -> None: ...

    def close(self) -> None: ...


class SinkMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        place = Path(self._directory.name, str(next(_numbers)))
        place.mkdir()
        self.store, self.clock = open_store(store_url(place)), Clock()
        self.mutations = Mutations(self.store, self.clock)
        log = EventLog(self.store)
        self.sinks = Sinks(self.store, log, Consumers(self.store, log, self.clock), self.clock)
        self.receiver = Receiver()
        self.wanted: list[int] = []
        self.dropped: set[int] = set()
        self.offset = 0
        self.sinks.create(*SINK, WebhookSink(url="https://localhost/"), SECRETS, pb.EventFilter(patterns=["wanted"]))
        self.offset = log.extent(SINK.catalog).last
        self.worker: SinkWorker | None = None
        self.stale: SinkWorker | None = None
        self.tell(["wanted"])

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.receiver.down = False
        self.receiver.refused.clear()
        self.stale = None
        for _ in range(1_000):
            if self._is_done():
                break
            self.step()
            self.clock.advance(STUCK_MS + 1)
            letters = self._letters()
            if letters:
                self.sinks.resend(SINK, letters)
        assert self._is_done()
        # Nothing is lost, and everything is in order.
        given_up = self.receiver.resent | self.dropped
        assert self.receiver.events == sorted(self.receiver.events)
        assert set(self.receiver.events) | given_up == set(self.wanted)
        assert self.receiver.resent <= set(self.wanted)
        self.store.close()
        self._directory.cleanup()

    @rule(databases=st.lists(st.sampled_from(DATABASES), min_size=1, max_size=5))
    def tell(self, databases: list[str]) -> None:
        """One change with some events."""

        def body(mutation: object) -> None:
            for database in databases:
                mutation.tell(pb.Event(kind=pb.COMMITTED, catalog=SINK.catalog, database=database, table="t"))  # type: ignore[attr-defined]

        self.mutations.run(body)
        for database in databases:
            self.offset += 1
            if database == "wanted":
                self.wanted.append(self.offset)

    @rule()
    def step(self) -> None:
        if self.worker is None:
            self.worker = self._made()
        wait_s = self.worker.step()
        assert wait_s >= 0
        self._check()

    @rule(steps=st.integers(2, 6), ms=st.integers(0, 1_000))
    def many_steps(self, steps: int, ms: int) -> None:
        for _ in range(steps):
            self.step()
            self.clock.advance(ms)

    @rule()
    def die(self) -> None:
        self.worker = None

    @rule()
    def end_well(self) -> None:
        if self.worker is not None:
            self.worker.finish()
        self.worker = None

    @precondition(lambda self: getattr(self, "worker", None) is not None)
    @rule()
    def lose_lease(self) -> None:
        """Another worker takes over; the old one does not know yet."""
        self.stale, self.worker = self.worker, self._made()

    @precondition(lambda self: getattr(self, "stale", None) is not None)
    @rule()
    def stale_step(self) -> None:
        assert self.stale is not None
        try:
            self.stale.step()
        except LeaseLost:
            self.stale = None

    @rule(down=st.booleans())
    def receiver_goes_or_comes(self, down: bool) -> None:
        self.receiver.down = down

    @precondition(lambda self: getattr(self, "wanted", None))
    @rule(ahead=st.integers(1, 6))
    def refuse(self, ahead: int) -> None:
        """An event that the receiver will never take, perhaps one that is still to come."""
        if len(self.receiver.refused) < 2:
            self.receiver.refused.add(max(self.receiver.last, 1) + ahead)

    @rule(ms=st.sampled_from([1, 600, 2_000, STUCK_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def resend_all(self) -> None:
        self.sinks.resend(SINK, [], everything=True)

    @rule()
    def drop_one(self) -> None:
        for letter in self.sinks.letters(SINK, 0, 1):
            assert self.sinks.drop_letters(SINK, [letter.letter_id]) == 1
            self.dropped.add(letter.record.event.offset)

    def _made(self) -> SinkWorker:
        lease = Leases(self.store, self.clock).acquire(
            consumers.lease_name(SINK.catalog, consumer_name(SINK.name)), f"w{next(_numbers)}", 1
        )
        if lease is None:
            self.clock.advance(2)
            return self._made()
        rules = WorkerRules(ATTEMPTS_MAX, RetryPauses(0.1, 0.5), LetterLimits(LETTERS_MAX))
        chance = random.Random(next(_numbers))
        store = FencedStore(self.store, lease)
        return SinkWorker(store, self.clock, SINK, self.receiver, rules, chance, DirectFeed(self.store))

    def _letters(self) -> list[int]:
        return [letter.letter_id for letter in self.sinks.letters(SINK, 0, 100)]

    def _check(self) -> None:
        status = self.sinks.get(SINK)
        letters = self.sinks.letters(SINK, 0, 100)
        assert status.letters == len(letters) <= LETTERS_MAX
        gone = {letter.record.event.offset for letter in letters} | self.receiver.resent | self.dropped
        before = {offset for offset in self.wanted if offset <= status.consumer.place.offset}
        assert before <= set(self.receiver.events) | gone, "an event was passed over"

    def _is_done(self) -> bool:
        status = self.sinks.get(SINK)
        return not status.lag_events and not status.letters


SinkMachine.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.target),
)
TestSinks = SinkMachine.TestCase
