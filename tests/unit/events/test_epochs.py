"""Stores that are restored more than once: each restore is an epoch, and a store knows those that it has been in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_core.errors import EventsLost
from lakemark_proto.v1.events_pb2 import COMMITTED, Event
from lakemark_server.events.log import EventLog
from lakemark_server.kv import KeyValue
from lakemark_server.kv.api import KEYS_END
from lakemark_server.kv.sqlite.store import SqliteStore
from lakemark_server.store import event_log

CATALOG = "one"


class Restorable:
    """A store that is restored from backups of itself; each restore is made at the time that the caller says, in ms."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.store = SqliteStore(directory / "0.db")

    def tell(self, *names: str) -> None:
        for name in names:
            event = Event(kind=COMMITTED, catalog=CATALOG, table=name)
            self.store.transact(lambda tx, event=event: event_log.append(tx, event_log.epoch(tx), CATALOG, [event]))  # type: ignore[misc]

    def backup(self) -> list[KeyValue]:
        with self.store.export(b"", KEYS_END) as export:
            return [pair for page in export.pages for pair in page]

    def restore(self, pairs: list[KeyValue], now_ms: int) -> None:
        self.store.close()
        self.store = SqliteStore(self._directory / f"{now_ms}.db")

        def fill(tx: object) -> None:
            for key, value in pairs:
                tx.set(key, value)  # type: ignore[attr-defined]
            event_log.begin_epoch(tx, now_ms)  # type: ignore[arg-type]

        self.store.transact(fill)

    def behind(self, after: int, epoch: int) -> list[str]:
        """The names of the events behind ``after``, for somebody who has read that event in ``epoch``."""
        log = EventLog(self.store)
        return [event.table for event in log.page(CATALOG, log.begin(CATALOG, after, epoch)).events]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Restorable]:
    made = Restorable(tmp_path)
    yield made
    made.store.close()


def test_an_event_of_a_restored_store_is_not_in_one_that_is_restored_from_a_longer_backup(lake: Restorable) -> None:
    lake.tell("a")
    short = lake.backup()
    lake.tell("b", "c")
    long = lake.backup()
    lake.restore(short, 1_000)
    lake.tell("x")
    assert lake.behind(2, 1_000) == []
    lake.restore(long, 2_000)
    with pytest.raises(EventsLost, match="has never been in epoch 1000") as lost:
        lake.behind(2, 1_000)  # offset 2 is b, and not x
    assert lost.value.details["last_offset"] == "0"
    assert lake.behind(0, 1_000) == ["a", "b", "c"], "whoever has read nothing has lost nothing"
    assert lake.behind(1, 0) == ["b", "c"], "the event's own epoch is one that both stores have been in"
    assert lake.behind(2, 2_000) == ["c"]


def test_a_store_knows_all_epochs_that_it_has_been_in(lake: Restorable) -> None:
    lake.tell("a")
    for moment in (1_000, 2_000, 3_000):
        lake.restore(lake.backup(), moment)
        lake.tell(f"b{moment}")
    assert lake.behind(1, 0) == ["b1000", "b2000", "b3000"]
    assert lake.behind(2, 1_000) == ["b2000", "b3000"]
    assert lake.behind(3, 2_000) == ["b3000"]
    with pytest.raises(EventsLost, match="last event of epoch 1000 has offset 2") as lost:
        lake.behind(3, 1_000)
    assert lost.value.details["last_offset"] == "2"
