"""``verify`` finds logs of events that cannot be read, and marks that lie."""

from __future__ import annotations

import pytest

from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, EventMark
from lakemark_server.events import upkeep as upkeep_module
from lakemark_server.events.log import EventLog, marks_key
from lakemark_server.events.upkeep import EventRetention, LogUpkeep
from lakemark_server.store.keyspace import EVENTS
from lakemark_server.verify import verify
from tests.lakes import FLAT, Lake


def test_a_log_with_marks_is_whole_before_and_after_it_is_trimmed(lake: Lake) -> None:
    for number in range(1_100):
        lake.catalog.create_database(_database(f"d{number}"))
    upkeep = LogUpkeep(lake.store, lake.clock, EventRetention(1_000, 1 << 40))
    assert upkeep.round() == {}
    assert verify(lake.store) == []
    lake.clock.advance(10_000)
    lake.table(schema=FLAT)
    trimmed = upkeep.round()["hive"]
    assert trimmed >= 1_000
    assert verify(lake.store) == []


def test_a_mark_that_lies(lake: Lake) -> None:
    mark = EventMark(offset=1, key=b"elsewhere")
    lake.store.transact(lambda tx: tx.set(marks_key("hive", 1), mark.SerializeToString()))
    assert verify(lake.store) == ["the mark at offset 1 of the events of catalog 'hive' names another place"]


def test_a_batch_that_is_damaged(lake: Lake) -> None:
    lake.table()
    key, value = lake.store.read(lambda tx: tx.get_range(*EVENTS.range()))[-1]
    lake.store.transact(lambda tx: tx.set(key, value[:2] + b"\x09" + value[3:]))
    (problem,) = verify(lake.store)
    assert "cannot be read" in problem
    assert "form 9" in problem


def _database(name: str) -> DatabaseRecord:
    return DatabaseRecord(name=name)


def test_all_that_is_due_is_trimmed_however_many_marks_there_are(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_module, "EVENTS_A_MARK", 1)
    monkeypatch.setattr(upkeep_module, "_MARKS_A_PAGE", 2)
    for number in range(9):
        lake.catalog.create_database(_database(f"d{number}"))
    upkeep = LogUpkeep(lake.store, lake.clock, EventRetention(1_000, 1 << 40))
    assert upkeep.round() == {}
    last = EventLog(lake.store).extent("hive").last
    lake.clock.advance(10_000)
    assert upkeep.round() == {"hive": last}  # nothing new was appended: the marks are those of the first round
    assert EventLog(lake.store).extent("hive").first == last + 1
    lake.table(schema=FLAT)
    assert upkeep.round() == {}
    assert verify(lake.store) == []
