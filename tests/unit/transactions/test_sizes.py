"""What is locked or changed can be freed in one transaction of the store, however much of it is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_core.errors import LimitExceeded, TransactionAborted
from lakemark_server.kv import Store, open_store
from lakemark_server.store.mutations import Mutations
from lakemark_server.transactions import expiry
from lakemark_server.transactions import limits as write_id_limits
from lakemark_server.transactions.conflicts import Component, LockType, Place
from lakemark_server.transactions.limits import LOCK_BYTES_MAX, PARTITION_CHARS_MAX, TransactionLimits
from lakemark_server.transactions.requests import Client, LockRequest
from lakemark_server.transactions.service import Transactions
from lakemark_server.transactions.write_ids import TableKey
from lakemark_server.verify import verify
from tests.lakes import Clock
from tests.stores import store_url
from tests.work import counted

ME = Client("u", "h")
TIMEOUT_MS = 1_000
TABLE = TableKey("hive", "d", "t")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(store_url(tmp_path))
    yield opened
    opened.close()


def _places(number: int, length: int, fill: str, table: str = "t") -> list[Place]:
    return [Place("hive", "d", table, f"p={at:05}".ljust(length, fill)) for at in range(number)]


def _lock(places: list[Place], transaction_id: int = 0) -> LockRequest:
    components = [Component(place, LockType.SHARED_WRITE) for place in places]
    return LockRequest(components, ME, transaction_id, places if transaction_id else ())


# Zeros take two bytes each in a key.
@pytest.mark.parametrize(("number", "length", "fill"), [(10_000, 50, "x"), (240, PARTITION_CHARS_MAX, "\0")])
def test_the_largest_lock(store: Store, number: int, length: int, fill: str) -> None:
    places, others = _places(number, length, fill), _places(number, length, fill, "u")
    clock = Clock()
    limits = TransactionLimits(timeout_ms=TIMEOUT_MS, kept_ms=TIMEOUT_MS)
    mutations = Mutations(store, clock)
    service = Transactions(mutations, limits)
    assert 0.9 * LOCK_BYTES_MAX < sum(place.size_bytes for place in places) <= LOCK_BYTES_MAX

    service.locks.unlock(service.locks.lock(_lock(places)).lock_id)
    assert not list(service.locks.shown())

    for end in ("commit", "abort", "silence"):
        (txn,) = service.registry.open(1, ME)
        lock_id = service.locks.lock(_lock(places, txn)).lock_id
        service.locks.check(lock_id)
        with pytest.raises(LimitExceeded, match="locks of the transaction"):
            service.locks.lock(_lock(others, txn))
        with pytest.raises(LimitExceeded, match="divide its work"):
            service.registry.add_targets(txn, others)
        if end == "commit":
            service.registry.commit(txn, first_committer_wins=True)
        elif end == "abort":
            service.registry.abort(txn)
        else:
            clock.advance(TIMEOUT_MS)
            assert expiry.sweep(mutations, limits).transactions == 1
        assert not list(service.locks.shown())
    for _ in range(3):
        clock.advance(10 * TIMEOUT_MS)
        expiry.sweep(mutations, limits)
    assert service.registry.open_transactions().transactions == []
    assert verify(store) == []


def test_a_lock_that_is_too_large_is_refused(store: Store) -> None:
    service = Transactions(Mutations(store, Clock()))
    with pytest.raises(LimitExceeded, match="lock whole tables"):
        service.locks.lock(_lock(_places(1_000, PARTITION_CHARS_MAX, "x")))


def test_requests_for_many_transactions_read_them_together(store: Store) -> None:
    mutations = Mutations(store, Clock())
    service = Transactions(mutations)
    ids = [one for _ in range(3) for one in service.registry.open(1_000, ME)]
    service.registry.abort_all(ids[::7])
    left = [one for one in ids if one not in set(ids[::7])]
    with counted(store) as work:
        aborted, missing = service.registry.heartbeat_range(ids[0] - 5, ids[-1] + 5)
    assert aborted == set(ids[::7])
    assert missing == {*range(ids[0] - 5, ids[0]), *range(ids[-1] + 1, ids[-1] + 6)}
    assert work.reads < 50, work
    with counted(store) as work:
        pairs = service.write_ids.allocate(TABLE, left)
    assert pairs == list(zip(left, range(1, len(left) + 1), strict=True))
    assert work.reads < 50, work
    with counted(store) as work:
        assert service.write_ids.allocate(TABLE, left) == pairs
    assert work.reads < 50, work
    with pytest.raises(TransactionAborted, match=f"txnid:{ids[0]} "):
        service.write_ids.allocate(TABLE, ids)


def test_transactions_that_write_to_too_many_tables_are_found_among_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_id_limits, "TABLES_OF_TRANSACTION_MAX", 3)
    service = Transactions(Mutations(store, Clock()))
    one, two, three = service.registry.open(3, ME)
    for name in ("a", "b"):
        service.write_ids.allocate(TABLE._replace(table=name), [one, two, three])
    service.write_ids.allocate(TABLE._replace(table="c"), [two])
    more = TABLE._replace(table="d")
    with pytest.raises(LimitExceeded, match=f"transaction {two} writes to 3 tables"):
        service.write_ids.allocate(more, [one, two, three])
    assert service.write_ids.last(more) == 0
    assert service.write_ids.allocate(more, [one, three]) == [(one, 1), (three, 2)]
    assert service.write_ids.allocate(TABLE._replace(table="a"), [one, two, three]) == [(one, 1), (two, 2), (three, 3)]
