"""The feed: one reading and one encoding for all watchers, each of which sees every event once and in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import EventsTrimmed, Unavailable
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_server.events import ring
from lakemark_server.events.feed import EventFeed, Watcher
from lakemark_server.events.filters import EVERYTHING, EventFilter, filter_of
from lakemark_server.events.log import EventLog, EventPage, LogPosition
from lakemark_server.events.ring import EventRing, encoded
from lakemark_server.events.upkeep import EVENTS_A_MARK, EventRetention, LogUpkeep
from lakemark_server.kv import Store
from lakemark_server.store.mutations import Mutation, Mutations
from tests.lakes import Lake

CATALOG = "one"
WAIT_S = 30.0


def tell(lake: Lake, count: int, table: str = "t") -> None:
    def body(mutation: Mutation) -> None:
        for _ in range(count):
            mutation.tell(pb.Event(kind=pb.COMMITTED, catalog=CATALOG, database="sales", table=table))

    Mutations(lake.store, lake.clock).run(body)


class CountingLog(EventLog):
    """A log that counts the pages with events that were read of it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.pages = 0

    def page(self, catalog: str, position: LogPosition, pairs: int = 256) -> EventPage:
        page = super().page(catalog, position, pairs)
        self.pages += bool(page.events)
        return page


class Reader:
    """Reads a watcher until it has seen an offset."""

    def __init__(self, feed: EventFeed, after: int = 0, wanted: EventFilter = EVERYTHING) -> None:
        self.woken = threading.Event()
        self.watcher: Watcher = feed.watch(CATALOG, after, 0, wanted, self.woken.set)
        self.offsets: list[int] = []

    def until(self, offset: int, take: Callable[[], ring.Delivery] | None = None) -> list[int]:
        while self.watcher.upto < offset:
            self.woken.clear()
            delivery = (take or self.watcher.take)()
            self.offsets += [event.offset for event in delivery.decoded()]
            if not delivery.more and self.watcher.upto < offset:
                assert self.woken.wait(WAIT_S)
        return self.offsets


@pytest.fixture
def log(lake: Lake) -> CountingLog:
    return CountingLog(lake.store)


@pytest.fixture
def feed(log: CountingLog) -> Iterator[EventFeed]:
    feed = EventFeed(log)
    yield feed
    feed.close()


def test_watchers_who_want_the_same_share_what_is_sent(lake: Lake, log: CountingLog, feed: EventFeed) -> None:
    readers = [Reader(feed), Reader(feed), Reader(feed, wanted=filter_of(pb.EventFilter(patterns=["other"])))]
    tell(lake, 3)
    for reader in readers:
        reader.until(3)
    tell(lake, 2)
    for reader in readers:
        assert reader.woken.wait(WAIT_S)
    first, second, other = (reader.watcher.take() for reader in readers)
    assert first is second
    assert [event.offset for event in first.decoded()] == [4, 5]
    assert (other.events, other.upto) == ([], 5)
    tell(lake, 1)
    assert readers[0].until(6) == [1, 2, 3, 6]


def test_ten_watchers_cost_one_reading_and_one_encoding(
    lake: Lake, log: CountingLog, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    encodings = []
    monkeypatch.setattr("lakemark_server.events.feed.encoded", lambda event: encodings.append(event) or encoded(event))
    readers = [Reader(feed) for _ in range(10)]
    tell(lake, 3)
    for reader in readers:
        assert reader.until(3) == [1, 2, 3]
    assert (log.pages, len(encodings)) == (1, 3)
    assert feed.watched == {CATALOG: 10}


def test_a_watcher_from_the_past_reads_the_store_and_then_the_ring(lake: Lake, feed: EventFeed) -> None:
    tell(lake, 5)
    late, later = Reader(feed, 2), Reader(feed)
    tell(lake, 2)
    assert late.until(7) == [3, 4, 5, 6, 7]
    assert later.until(7, lambda: later.watcher.take(events_max=2)) == list(range(1, 8))


def test_a_watcher_that_falls_behind_the_ring_goes_on_in_the_store(
    lake: Lake, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventRing.__init__, "__defaults__", (3, ring.RING_BYTES))
    slow, fast = Reader(feed), Reader(feed)
    for last in range(1, 11):
        tell(lake, 1)
        fast.until(last)
    assert slow.watcher.recent() is None
    assert slow.until(10) == fast.until(10) == list(range(1, 11))
    assert slow.watcher.recent() is not None


def test_offsets_go_on_over_what_the_filter_leaves_out(lake: Lake, feed: EventFeed) -> None:
    tell(lake, 3, "other")
    reader = Reader(feed, wanted=filter_of(pb.EventFilter(patterns=["sales.t"])))
    tell(lake, 1)
    tell(lake, 2, "other")
    assert reader.until(6) == [4]
    assert (reader.watcher.upto, reader.watcher.end) == (6, 6)


def test_what_was_trimmed_meanwhile_is_told(lake: Lake, feed: EventFeed) -> None:
    tell(lake, 2 * EVENTS_A_MARK)
    reader = Reader(feed, 1)
    LogUpkeep(lake.store, lake.clock, EventRetention(-1, 1 << 30)).round()
    with pytest.raises(EventsTrimmed, match=f"the first one that there is has offset {2 * EVENTS_A_MARK + 1}"):
        reader.watcher.take()


def test_closing_ends_all_watchers(lake: Lake, feed: EventFeed) -> None:
    reader = Reader(feed)
    feed.close()
    assert reader.woken.is_set()
    with pytest.raises(Unavailable, match="is being stopped"):
        reader.watcher.take()
    with pytest.raises(Unavailable, match="is being stopped"):
        feed.watch(CATALOG, 0, 0, EVERYTHING, lambda: None)


def test_the_reading_ends_when_nobody_watches(lake: Lake, log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemark_server.events.feed.IDLE_S", 0.01)
    feed = EventFeed(log)
    reader = Reader(feed)
    threads = [thread for thread in threading.enumerate() if thread.name == f"events {CATALOG}"]
    reader.watcher.close()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert feed.watched == {}
    tell(lake, 1)
    assert Reader(feed).until(1) == [1]
    feed.close()


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(0, 60), st.integers(1, 5), st.integers(1, 200), st.data())
def test_the_ring_gives_what_a_list_would(
    sizes: list[int], after: int, events_max: int, bytes_max: int, data: st.DataObject
) -> None:
    events = [
        encoded(pb.Event(offset=place, kind=pb.COMMITTED, database="d", table="x" * size))
        for place, size in enumerate(sizes, 1)
    ]
    kept = EventRing(0, 20, 600)
    at = 0
    while at < len(events):
        step = data.draw(st.integers(1, 10))
        kept.append(events[at : at + step])
        at += step
    assert kept.end == len(events)
    wanted = EventFilter(filter_of(pb.EventFilter(patterns=["*.xx*"])).patterns)
    delivery = kept.take(after, wanted, events_max, bytes_max)
    if delivery is None:
        assert not kept.holds(after)
        return
    assert kept.holds(after)
    behind = [event for event in events[after:] if len(event.subject.names[0].table) >= 2]
    assert delivery.events == behind[: len(delivery.events)]
    assert len(delivery.events) <= events_max
    assert len(delivery.events) <= 1 or sum(len(event.encoded) for event in delivery.events) <= bytes_max
    rest = behind[len(delivery.events) :]
    assert delivery.more == bool(rest)
    assert delivery.upto == (rest[0].offset - 1 if rest else max(after, len(events)))
