"""Counting the events behind the last mark, which may be more than one transaction has the time to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakemark_core.errors import EventsTrimmed, OffsetUnknown
from lakemark_proto.v1.events_pb2 import COMMITTED, Event
from lakemark_server.events import log as log_module
from lakemark_server.events import upkeep as upkeep_module
from lakemark_server.events.log import EventLog, EventPage, LogLag
from lakemark_server.events.upkeep import EVENTS_A_MARK, EventRetention, LogUpkeep
from lakemark_server.kv import TransactionTooOld
from lakemark_server.kv.api import TRANSACTION_SECONDS_MAX
from lakemark_server.kv.sqlite.store import SqliteStore
from lakemark_server.store import event_log
from tests.work import counted

CATALOG = "one"
BATCHES = 1_500


class SlowClock:
    """Each look at it takes a tenth of the time that a transaction has. A store looks before each of its reads."""

    def __init__(self) -> None:
        self.slow = False
        self.seconds = 0.0

    def __call__(self) -> float:
        if self.slow:
            self.seconds += TRANSACTION_SECONDS_MAX / 10
        return self.seconds


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    """A slow store with a log without marks."""
    clock = SlowClock()
    made = SqliteStore(Path(tmp_path_factory.mktemp("store")) / "kv.db", clock=clock)

    def append(number: int) -> None:
        event = Event(kind=COMMITTED, catalog=CATALOG, table="t", time_ms=number)
        made.transact(lambda tx: event_log.append(tx, 0, CATALOG, [event]))

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(append, range(1, BATCHES + 1)))
    clock.slow = True
    yield made
    made.close()


def test_the_store_is_too_slow_to_read_the_log_at_once(store: SqliteStore) -> None:
    with pytest.raises(TransactionTooOld):
        store.read(lambda tx: [tx.get_range(bytes([first]), b"\xff", limit=100) for first in range(BATCHES // 100)])


@pytest.mark.parametrize(
    "last",
    [
        lambda log: log.end(CATALOG).offset,
        lambda log: log.extent(CATALOG).last,
        lambda log: log.summary(CATALOG).extent.last,
        lambda log: log.begin(CATALOG, BATCHES).offset,
    ],
    ids=["end", "extent", "summary", "begin"],
)
def test_the_end_of_a_long_log_is_found_all_the_same(store: SqliteStore, last: Callable[[EventLog], int]) -> None:
    assert last(EventLog(store)) == BATCHES


def test_an_offset_behind_the_end_is_refused_all_the_same(store: SqliteStore) -> None:
    with pytest.raises(OffsetUnknown, match=f"the last one has {BATCHES}"):
        EventLog(store).begin(CATALOG, BATCHES + 1)


def test_asking_again_reads_only_what_came_since(store: SqliteStore) -> None:
    log = EventLog(store)
    log.extent(CATALOG)
    with counted(store) as work:
        assert log.extent(CATALOG).last == log.end(CATALOG).offset == log.summary(CATALOG).extent.last == BATCHES
    assert work.rows < 300, "the summary reads the first page"
    with counted(store) as work:
        assert log.lag(CATALOG, BATCHES) == LogLag(0, 0)
    assert work.rows == 0
    assert log.lag(CATALOG, BATCHES - 5) == LogLag(5, BATCHES - 4)
    assert log.lag(CATALOG, BATCHES - 5).ms(BATCHES + 10) == 14


def test_an_end_that_is_long_ago_is_no_place_to_count_from(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kv.db")
    event = Event(kind=COMMITTED, catalog=CATALOG, table="t", time_ms=1)

    def append(batches: int) -> None:
        for _ in range(batches):
            store.transact(lambda tx: event_log.append(tx, 0, CATALOG, [event] * 100))

    append(1)
    log = EventLog(store)
    assert log.end(CATALOG).offset == 100
    append(600)
    LogUpkeep(store, lambda: 10, EventRetention(100, 1 << 30)).round()
    with counted(store) as work:
        assert log.end(CATALOG).offset == 60_100
    assert work.rows < 300, "a page, a mark, and what is behind that"
    assert LogUpkeep(store, lambda: 200, EventRetention(1, 1)).round() == {CATALOG: 60_000}
    assert log.extent(CATALOG) == (60_001, 60_100, 0)
    store.close()


def test_what_is_trimmed_meanwhile_is_not_counted_twice_nor_left_out(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader began at the beginning, which is trimmed when it has read a page."""
    page = log_module._page
    trims = iter([LogUpkeep(store, lambda: 2 * BATCHES, EventRetention(1, 1))])

    def page_then_trim(*arguments: object) -> EventPage:
        answer = page(*arguments)  # type: ignore[arg-type]
        for upkeep in trims:
            assert upkeep.round() == {CATALOG: 1_000}
        return answer

    monkeypatch.setattr(log_module, "_page", page_then_trim)
    log = EventLog(store)
    assert log.end(CATALOG).offset == BATCHES
    assert log.extent(CATALOG) == (1_001, BATCHES, 0)


def test_where_an_epoch_ended_is_not_known_once_all_of_it_is_trimmed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kv.db")

    def append(epoch: int, count: int) -> None:
        events = [Event(kind=COMMITTED, catalog=CATALOG, table="t", time_ms=1)] * count
        store.transact(lambda tx: event_log.append(tx, epoch, CATALOG, events))

    append(0, 10)
    store.transact(lambda tx: event_log.begin_epoch(tx, 1))
    append(1, EVENTS_A_MARK)
    assert LogUpkeep(store, lambda: 10, EventRetention(1, 1)).round() == {CATALOG: EVENTS_A_MARK + 10}
    with pytest.raises(EventsTrimmed):
        EventLog(store).begin(CATALOG, EVENTS_A_MARK + 10, epoch=0)
    store.close()


def test_a_mark_that_comes_late_does_not_undo_a_trim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another upkeep has trimmed the log while this one read it."""
    store = SqliteStore(tmp_path / "kv.db")
    event = Event(kind=COMMITTED, catalog=CATALOG, table="t", time_ms=1)
    for _ in range(3):
        store.transact(lambda tx: event_log.append(tx, 0, CATALOG, [event] * EVENTS_A_MARK))
    read = upkeep_module._next_marks
    others = iter([LogUpkeep(store, lambda: 10, EventRetention(1, 1 << 30))])

    def read_then_trim(*arguments: object) -> object:
        answer = read(*arguments)  # type: ignore[arg-type]
        for other in others:
            assert other.round() == {CATALOG: 3 * EVENTS_A_MARK}
        return answer

    monkeypatch.setattr(upkeep_module, "_next_marks", read_then_trim)
    assert LogUpkeep(store, lambda: 10, EventRetention(1_000, 1 << 30)).round() == {}
    assert EventLog(store).extent(CATALOG) == (3 * EVENTS_A_MARK + 1, 3 * EVENTS_A_MARK, 0)
    store.close()
