"""Responses to request ids expire, for every kind of request; the cost depends on how many expire."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.errors import LakemarkError
from lakemark_proto.store.v1.store_pb2 import CommittedRecord, DatabaseRecord
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_server.kv import Space
from lakemark_server.store import requests
from lakemark_server.store.keyspace import REQUEST_TIMES, REQUESTS
from lakemark_server.timeline.references import ReferenceDraft
from lakemark_server.verify import verify
from tests.lakes import Lake, open_lake

DAY = 86_400_000


def ids(lake: Lake, space: Space) -> set[object]:
    place = 0 if space is REQUESTS else -1
    return {space.unpack(key)[place] for key, _ in lake.store.read(lambda tx: tx.get_range(*space.range()))}


def test_every_kind_of_answer_is_forgotten_and_others_stay(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        lake.put(table, [1])
        lake.catalog.create_database(DatabaseRecord(name="d"), request_id="database")
        lake.catalog.set_properties("", "default", "t", {"label": "x" * 250_000}, request_id="properties")
        lake.open(table, request_id="instant")
        lake.timeline.restore(table, 1, request_id="restore")
        lake.timeline.savepoints.create(table, 1, request_id="savepoint")
        lake.timeline.references.create(table, ReferenceDraft(name="dev", kind=c.BRANCH, request_id="reference"))
        lake.clock.advance(DAY)
        lake.catalog.create_database(DatabaseRecord(name="e"), request_id="young")
        old = {"database", "properties", "instant", "restore", "savepoint", "reference"}
        assert ids(lake, REQUESTS) == ids(lake, REQUEST_TIMES) == old | {"young"}
        assert requests.forget(lake.store, lake.clock() - DAY) == 0, "it is a day just now"
        lake.clock.advance(1)
        assert requests.forget(lake.store, lake.clock() - DAY) == len(old)
        assert ids(lake, REQUESTS) == ids(lake, REQUEST_TIMES) == {"young"}
        assert verify(lake.store) == []


def test_an_id_that_was_forgotten_is_a_new_one_and_what_was_committed_stays_committed(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        instant = lake.open(table, request_id="load")
        assert lake.open(table, request_id="load") == instant
        done = lake.commit(table, instant, [])
        lake.clock.advance(DAY + 1)
        requests.forget(lake.store, lake.clock() - DAY)
        assert lake.commit(table, instant, []) == done, "the instant tells"
        assert lake.open(table, request_id="load") != instant
        with pytest.raises(LakemarkError, match="was already used"):
            lake.catalog.create_database(DatabaseRecord(name="d"), request_id="load")


def test_more_than_fits_into_a_transaction_goes_in_several(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        count = 2 * requests.FORGOTTEN_A_TRANSACTION + 1
        for number in range(count):
            lake.store.transact(
                lambda tx, number=number: requests.record(  # type: ignore[misc]
                    tx, f"{number}", "kind", CommittedRecord(), lake.clock()
                )
            )
        assert requests.forget(lake.store, lake.clock() + 1) == count
        assert ids(lake, REQUESTS) == ids(lake, REQUEST_TIMES) == set()


def test_verify_tells_an_answer_that_would_stay_for_ever(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        lake.catalog.create_database(DatabaseRecord(name="d"), request_id="one")
        lake.store.transact(lambda tx: tx.clear_range(*REQUEST_TIMES.range()))
        assert verify(lake.store) == ["request 'one' has no time"]
