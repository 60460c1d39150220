"""The log of events and its consumers against a list: appends, trims, restores, readers that stop and come back."""

from __future__ import annotations

import bisect
import itertools
import tempfile
import threading
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakemark_core.errors import EventsLost, EventsTrimmed, OffsetUnknown
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_server.events import feed, upkeep
from lakemark_server.events.consumers import Consumers, EventPosition, Start
from lakemark_server.events.feed import EventFeed, Watcher
from lakemark_server.events.filters import EventFilter, filter_of, subject_of
from lakemark_server.events.log import EventLog
from lakemark_server.events.ring import EventRing
from lakemark_server.events.upkeep import EventRetention, LogUpkeep
from lakemark_server.kv import KeyValue, Store, open_store
from lakemark_server.kv.api import KEYS_END
from lakemark_server.store import event_log
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.verify.events import check_logs
from tests.lakes import Clock
from tests.stores import store_url

CATALOG = "one"
MARK_EVENTS = 3
RING_EVENTS = 4
WAIT_S = 30.0

_numbers = itertools.count()
_which = st.integers(0, 1_000_000)
_filters = st.sampled_from(
    [pb.EventFilter(), pb.EventFilter(patterns=["*.even*"]), pb.EventFilter(kinds=[pb.TABLE_CREATED])]
)


@dataclass
class Log:
    """What the log holds: names of all events, also of trimmed ones, with their epoch and time."""

    names: list[str] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    trimmed: int = 0
    epoch: int = 0
    been_in: list[int] = field(default_factory=lambda: [0])
    consumers: dict[str, int] = field(default_factory=dict)


@dataclass
class Reader:
    """Somebody outside, who remembers what it has read last: the offset, the name, and the epochs of the event and of
    the store."""

    after: int
    name: str
    own_epoch: int
    epoch: int


@dataclass
class Watching:
    watcher: Watcher
    wanted: EventFilter
    woken: threading.Event
    names: list[str]


class EventsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(upkeep, "EVENTS_A_MARK", MARK_EVENTS)
        self.patch.setattr(feed, "IDLE_S", 0.05)
        self.patch.setattr(EventRing.__init__, "__defaults__", (RING_EVENTS, 1 << 20))
        self.directory = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.model = Log()
        self.backups: list[tuple[list[KeyValue], Log]] = []
        self.restores = 0
        self.readers: list[Reader] = []
        self.serve()

    def serve(self) -> None:
        """A process begins to serve a new store."""
        place = Path(self.directory.name) / str(next(_numbers))
        place.mkdir()
        self.store: Store = open_store(store_url(place))
        self.start()

    def start(self) -> None:
        self.log = EventLog(self.store)
        self.feed = EventFeed(self.log)
        self.consumers = Consumers(self.store, self.log, self.clock, known_end=self.feed.end)
        self.mutations = Mutations(self.store, self.clock)
        self.watching: list[Watching] = []

    def teardown(self) -> None:
        self.feed.close()
        self.store.close()
        self.patch.undo()
        self.directory.cleanup()

    @initialize()
    def nothing_yet(self) -> None:
        assert self.log.extent(CATALOG) == (1, 0, 0)

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5))
    def append(self, sizes: list[int]) -> None:
        for size in sizes:
            self.clock.advance(1)
            names = [f"{'even' if number % 2 == 0 else 'odd'}{number}" for number in itertools.islice(_numbers, size)]

            def body(mutation: Mutation, names: list[str] = names) -> None:
                for name in names:
                    kind = pb.TABLE_CREATED if name.endswith("5") else pb.COMMITTED
                    mutation.tell(pb.Event(kind=kind, catalog=CATALOG, database="d", table=name))

            self.mutations.run(body)
            self.model.names += names
            self.model.epochs += [self.model.epoch] * size
            self.model.times += [self.clock()] * size

    @rule(age_ms=st.integers(0, 20))
    def keep_up(self, age_ms: int) -> None:
        LogUpkeep(self.store, self.clock, EventRetention(age_ms, 1 << 30)).round()
        first = self.log.extent(CATALOG).first
        old = sum(time < self.clock() - age_ms for time in self.model.times)
        assert self.model.trimmed < first <= max(old, self.model.trimmed) + 1, "only what is old enough is trimmed"
        assert old - (first - 1) < MARK_EVENTS + 4, "hardly more is kept than has to be"
        self.model.trimmed = first - 1

    @rule()
    def take_backup(self) -> None:
        with self.store.export(b"", KEYS_END) as export:
            pairs = [pair for page in export.pages for pair in page]
        self.backups.append((pairs, deepcopy(self.model)))

    @precondition(lambda self: self.backups)
    @rule(which=_which)
    def restore(self, which: int) -> None:
        """A new store with the content of a backup, which may be restored again; what came later is lost."""
        pairs, model = self.backups[which % len(self.backups)]
        self.model = deepcopy(model)
        self.restores += 1
        moment = 1_000 * self.restores
        self.feed.close()
        self.store.close()
        self.serve()

        def fill(tx: object) -> None:
            for key, value in pairs:
                tx.set(key, value)  # type: ignore[attr-defined]
            event_log.begin_epoch(tx, moment)  # type: ignore[arg-type]

        self.store.transact(fill)
        self.model.epoch = moment
        self.model.been_in.append(moment)
        self.mutations = Mutations(self.store, self.clock)

    @rule()
    def restart(self) -> None:
        self.feed.close()
        self.start()

    @rule(which=_which)
    def begin_to_read(self, which: int) -> None:
        after = self.model.trimmed + which % (len(self.model.names) - self.model.trimmed + 1)
        if after:
            now = self.model
            self.readers.append(Reader(after, now.names[after - 1], now.epochs[after - 1], now.epoch))

    @precondition(lambda self: self.readers)
    @rule(which=_which, own_epoch=st.booleans())
    def read_on(self, which: int, own_epoch: bool) -> None:
        reader = self.readers[which % len(self.readers)]
        now = self.model
        epoch = reader.own_epoch if own_epoch else reader.epoch
        if reader.after < now.trimmed:
            with pytest.raises(EventsTrimmed):
                self.log.begin(CATALOG, reader.after, epoch)
            return
        if epoch not in now.been_in:
            with pytest.raises(EventsLost) as lost:
                self.log.begin(CATALOG, reader.after, epoch)
            assert lost.value.details["last_offset"] == "0"
            return
        kept = bisect.bisect_right(now.epochs, epoch)
        is_kept = reader.after <= len(now.names) and now.names[reader.after - 1] == reader.name
        assert is_kept == (reader.after <= kept), "an epoch that the store has been in has one history"
        if not is_kept:
            with pytest.raises(EventsTrimmed if kept < now.trimmed else EventsLost) as error:
                self.log.begin(CATALOG, reader.after, epoch)
            assert kept < now.trimmed or error.value.details["last_offset"] == str(kept)
            return
        page = self.log.page(CATALOG, self.log.begin(CATALOG, reader.after, epoch))
        assert [event.table for event in page.events] == now.names[reader.after :]
        reader.after, reader.name = len(now.names), now.names[-1]
        reader.own_epoch, reader.epoch = now.epochs[-1], now.epoch

    @rule(beyond=st.integers(1, 3))
    def ask_beyond(self, beyond: int) -> None:
        with pytest.raises(OffsetUnknown) as error:
            self.log.begin(CATALOG, len(self.model.names) + beyond, None)
        assert error.value.details["last_offset"] == str(len(self.model.names))

    @rule(name=st.sampled_from("abc"), which=_which, end=st.booleans())
    def put_consumer(self, name: str, which: int, end: bool) -> None:
        kept = len(self.model.names) - self.model.trimmed
        after = self.model.trimmed + which % (kept + 1)
        start = Start(end=True) if end else Start(after)
        if name in self.model.consumers:
            self.consumers.seek(CATALOG, name, start)
        else:
            self.consumers.create(CATALOG, name, pb.EventFilter(), start)
        self.model.consumers[name] = len(self.model.names) if end else after

    @precondition(lambda self: self.model.consumers)
    @rule(which=_which)
    def drop_consumer(self, which: int) -> None:
        name = self._consumer(which)
        self.consumers.drop(CATALOG, name)
        del self.model.consumers[name]

    @precondition(lambda self: self.model.consumers)
    @rule(which=_which, some=st.integers(0, 10), back=st.integers(0, 3))
    def consume(self, which: int, some: int, back: int) -> None:
        """A consumer comes back, reads some events, and acknowledges them, or fewer than it did before."""
        name = self._consumer(which)
        offset, epoch = self.consumers.get(CATALOG, name).position
        assert offset == self.model.consumers[name]
        if offset < self.model.trimmed:
            with pytest.raises(EventsTrimmed):
                self.log.begin(CATALOG, offset, epoch)
            return
        page = self.log.page(CATALOG, self.log.begin(CATALOG, offset, epoch))
        assert [event.table for event in page.events] == self.model.names[offset:]
        done = max(0, min(offset + some, len(self.model.names)) - back)
        assert self.consumers.acknowledge(CATALOG, name, EventPosition(done, self.model.epoch)).offset == max(
            offset, done
        )
        self.model.consumers[name] = max(offset, done)

    def _consumer(self, which: int) -> str:
        return sorted(self.model.consumers)[which % len(self.model.consumers)]

    @rule(which=_which, wanted=_filters)
    def begin_to_watch(self, which: int, wanted: pb.EventFilter) -> None:
        after = self.model.trimmed + which % (len(self.model.names) - self.model.trimmed + 1)
        woken = threading.Event()
        chosen = filter_of(wanted)
        watcher = self.feed.watch(CATALOG, after, self.model.epoch, chosen, woken.set)
        self.watching.append(Watching(watcher, chosen, woken, []))

    @precondition(lambda self: self.watching)
    @rule(which=_which, most=st.integers(1, 5))
    def watch(self, which: int, most: int) -> None:
        """A watcher takes everything that there is."""
        place = which % len(self.watching)
        one = self.watching[place]
        behind = one.watcher.upto
        expected = [name for name in self.model.names[behind:] if one.wanted.fits(subject_of(_event(name)))]
        names: list[str] = []
        try:
            while one.watcher.upto < len(self.model.names):
                one.woken.clear()
                delivery = one.watcher.take(most)
                names += [event.table for event in delivery.decoded()]
                if not delivery.more and one.watcher.upto < len(self.model.names):
                    assert one.woken.wait(WAIT_S)
        except EventsTrimmed:
            assert behind < self.model.trimmed
            one.watcher.close()
            del self.watching[place]
            return
        assert names == expected

    @invariant()
    def the_log_is_the_list(self) -> None:
        now = self.model
        assert self.log.extent(CATALOG) == (now.trimmed + 1, len(now.names), now.epoch)
        page = self.log.page(CATALOG, self.log.begin(CATALOG, 0))
        told = [(event.offset, event.table, event.epoch) for event in page.events]
        expected = list(zip(range(1, len(now.names) + 1), now.names, now.epochs, strict=True))
        assert told == expected[now.trimmed :]
        assert page.whole

    @invariant()
    def the_store_is_sound(self) -> None:
        assert check_logs(self.store) == []


def _event(name: str) -> pb.Event:
    kind = pb.TABLE_CREATED if name.endswith("5") else pb.COMMITTED
    return pb.Event(kind=kind, database="d", table=name)


@pytest.mark.timeout(1_200)  # a backup of FoundationDB waits half a second until every process notes what it writes
class TestEvents(EventsMachine.TestCase):  # type: ignore[misc]
    """Does not shrink failures."""

    settings = settings(
        max_examples=40,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
