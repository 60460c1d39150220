"""Live writers: small packed entries."""

from __future__ import annotations

import pytest

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.kv import Transaction
from lakemark_server.timeline.conflicts.changes import Operation
from lakemark_server.timeline.conflicts.rules import OPERATIONS
from lakemark_server.timeline.instants import alive
from lakemark_server.timeline.instants.alive import Alive
from tests.lakes import Lake


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("inflight", [True, False])
def test_round_trip(operation: Operation, inflight: bool) -> None:
    one = Alive(1_800_000_000_123, 1_800_000_120_123, 120_000, inflight, operation)
    assert Alive.unpack(one.instant, one.pack()) == one
    assert len(one.pack()) == 18


def test_it_expires_after_its_deadline_not_at_it() -> None:
    one = Alive(1, 1_000, 10, True, t.APPEND)
    assert not one.expired(1_000)
    assert one.expired(1_001)


def test_kept_by_table_and_found_everywhere(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(tx: Transaction) -> None:
        for table_id, instant in [(1, 30), (1, 20), (2, 10), (10, 5)]:
            alive.put(tx, table_id, Alive(instant, 9, 9, True, t.APPEND))

    lake.store.transact(put)
    assert [one.instant for one in lake.store.read(lambda tx: alive.of_table(tx, 1))] == [20, 30]
    monkeypatch.setattr(alive, "PAGE_MAX", 3)
    found, begin = lake.store.read(alive.everywhere)
    more, end = lake.store.read(lambda tx: alive.everywhere(tx, begin))
    assert [(table, one.instant) for table, one in found + more] == [(1, 20), (1, 30), (2, 10), (10, 5)]
    assert (len(found), end) == (3, b"")
    lake.store.transact(lambda tx: alive.clear(tx, 1, 20))
    assert lake.store.read(lambda tx: alive.find(tx, 1, 20)) is None
