"""Damage to locks, transactions, write ids and roles is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemark_proto.store.v1.grants_pb2 import RoleMemberRecord
from lakemark_server.catalog import named_content
from lakemark_server.grants.objects import Principal, PrincipalType
from lakemark_server.grants.service import Grants
from lakemark_server.kv import Space, Transaction
from lakemark_server.store import keyspace
from lakemark_server.transactions import counts
from lakemark_server.transactions.conflicts import Component, LockType, Place
from lakemark_server.transactions.requests import Client, LockRequest
from lakemark_server.transactions.service import Transactions
from lakemark_server.transactions.write_ids import TableKey
from lakemark_server.verify import verify
from tests.lakes import Lake, open_lake

ME = Client("u", "h")
TABLE = TableKey("hive", "default", "t")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lock of nobody, one of an open transaction, an aborted and a committed one that have written, a role."""
    with open_lake(tmp_path) as made:
        service = Transactions(made.catalog.mutations)
        component = Component(Place(*TABLE), LockType.SHARED_READ)
        open_id, aborted, committed = service.registry.open(3, ME)
        service.write_ids.allocate(TABLE, [open_id, aborted, committed])
        service.registry.abort(aborted)
        service.registry.commit(committed, first_committer_wins=False)
        service.locks.lock(LockRequest([component], ME))
        service.locks.lock(LockRequest([component], ME, open_id))
        roles = Grants(made.catalog.mutations, named_content.require).roles
        roles.create("r", "me")
        roles.grant("r", Principal(PrincipalType.USER, "anna"), RoleMemberRecord())
        assert verify(made.store) == []
        yield made


def _clear(space: Space) -> Callable[[Transaction], None]:
    def body(tx: Transaction) -> None:
        key, _ = tx.get_range(*space.range(), limit=1)[0]
        tx.clear(key)

    return body


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_clear(keyspace.LOCKS), "is on"),
        (_clear(keyspace.LOCK_PARTS), "is queued at"),
        (_clear(keyspace.LOCK_QUEUES), "is queued at None"),
        (_clear(keyspace.LOCK_BEATS), "nobody can say when the holder of lock"),
        (_clear(keyspace.TXN_LOCKS), "is not found from it"),
        (_clear(keyspace.TXN_BEATS), "is open, or was heard, but not both"),
        (_clear(keyspace.TXNS_OPEN), "which is not open"),
        (_clear(keyspace.TXN_DUE), "nobody will look whether the time of"),
        (_clear(keyspace.TXN_WRITE_IDS), "does not know of its write id 1"),
        (_clear(keyspace.WRITE_ID_TABLES), "there is no table that has them"),
        (lambda tx: tx.clear(keyspace.LAST_TXN), "was never opened: the last one is 0"),
        (lambda tx: counts.add(tx, counts.OPEN, 1), "the counter of open of locks and transactions is 2"),
        (_clear(keyspace.ROLES_OF), "has the role r by one of two lists only"),
        (_clear(keyspace.ROLES), "the counter of roles of grants is 1, and there are 0"),
    ],
)
def test_damage(lake: Lake, damage: Callable[[Transaction], None], problem: str) -> None:
    lake.store.transact(damage)
    assert problem in "\n".join(verify(lake.store))
