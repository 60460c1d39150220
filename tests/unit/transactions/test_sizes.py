"""What is locked or changed can be freed in one transaction of the store, however much of it is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_core.errors import LimitExceeded
from lakemark_server.kv import Store, open_store
from lakemark_server.store.mutations import Mutations
from lakemark_server.transactions import expiry
from lakemark_server.transactions.conflicts import Component, LockType, Place
from lakemark_server.transactions.limits import LOCK_BYTES_MAX, PARTITION_CHARS_MAX, TransactionLimits
from lakemark_server.transactions.requests import Client, LockRequest
from lakemark_server.transactions.service import Transactions
from lakemark_server.verify import verify
from tests.lakes import Clock
from tests.stores import store_url

ME = Client("u", "h")
TIMEOUT_MS = 1_000


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
