"""kill -9 of the service while clients of the Metastore hold locks, wait for them, and commit transactions.

Never do two hold what excludes each other. A lock that was granted outlives the service, a transaction that was
committed stays so, a write id is given once, and what nobody speaks for any more ends by itself.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lakemark_server.kv import open_store
from lakemark_server.verify import verify
from lakemark_thrift.ttypes import (
    AllocateTableWriteIdsRequest,
    CheckLockRequest,
    CommitTxnRequest,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    OpenTxnRequest,
    ShowLocksRequest,
)
from tests.fault.killable import Killable
from tests.integration.hms_raw import Raw
from tests.lengths import long, slow
from tests.stores import store_url

LOCKERS: Final = 8
TIMEOUT_S: Final = 10.0
"""Nobody holds a lock for so long, over a kill too: so none of those that are held is taken away."""
LOST: Final = (OSError, AssertionError)


class Holders:
    """Who holds what, as the holders themselves note it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, bool] = {}
        self.violations: list[tuple[int, list[int]]] = []
        self.turns = 0

    def enter(self, lock_id: int, *, exclusive: bool) -> None:
        with self._lock:
            rivals = [other for other, other_exclusive in self._held.items() if exclusive or other_exclusive]
            if rivals:
                self.violations.append((lock_id, rivals))
            self._held[lock_id] = exclusive
            self.turns += 1

    def leave(self, lock_id: int) -> None:
        with self._lock:
            del self._held[lock_id]


class Locker:
    """One client, in a thread of its own, which goes on over a new connection when one breaks."""

    def __init__(self, service: Killable, number: int, holders: Holders, stop: threading.Event) -> None:
        self._service, self._holders, self._stop = service, holders, stop
        self._chance = random.Random(number)
        self._raw: Raw | None = None
        self.committed: list[int] = []
        self.write_ids: list[int] = []
        self.lost = 0
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._turn()
                except LOST:  # of a call that is not made twice; what it has left ends by itself
                    self.lost += 1
        except BaseException as error:  # for the thread of the test
            self.failed = error
            raise
        finally:
            self.close()

    def _turn(self) -> None:
        exclusive = self._chance.random() < 0.5
        component = LockComponent(
            type=LockType.EXCLUSIVE if exclusive else LockType.SHARED_READ,
            level=LockLevel.TABLE,
            dbname="default",
            tablename="t",
        )
        (txn,) = self._once("open_txns", rqst=OpenTxnRequest(num_txns=1, user="me", hostname="here")).success.txn_ids
        wanted = LockRequest(component=[component], txnid=txn, user="me", hostname="here")
        lock = self._once("lock", rqst=wanted).success
        state = lock.state
        while state == LockState.WAITING:
            time.sleep(0.01)
            answer = self._again("check_lock", rqst=CheckLockRequest(lockid=lock.lockid))
            assert answer.success is not None, answer
            state = answer.success.state
        self._holders.enter(lock.lockid, exclusive=exclusive)
        time.sleep(self._chance.uniform(0, 0.02))
        if exclusive:
            ids = AllocateTableWriteIdsRequest(dbName="default", tableName="t", txnIds=[txn])
            (given,) = self._again("allocate_table_write_ids", rqst=ids).success.txnToWriteIds
            self.write_ids.append(given.writeId)
        self._holders.leave(lock.lockid)
        answer = self._again("commit_txn", rqst=CommitTxnRequest(txnid=txn))
        if (answer.o1, answer.o2) != (None, None):
            raise RuntimeError(f"transaction {txn} was not committed: {answer}")
        self.committed.append(txn)

    def _once(self, method: str, **arguments: Any) -> Any:
        if self._raw is None:
            self._raw = Raw(int(self._service.address("hms").rpartition(":")[2]))
        try:
            return self._raw.call(method, **arguments)
        except LOST:
            self.close()
            raise

    def _again(self, method: str, **arguments: Any) -> Any:
        """Until there is an answer, as the clients of Hive and Iceberg do."""
        while True:
            try:
                return self._once(method, **arguments)
            except LOST:
                self.lost += 1

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()
            self._raw = None


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Killable]:
    url, warehouse = store_url(tmp_path), f"{tmp_path}/warehouse"
    service = Killable(url, warehouse, hms_enabled=True, hms_port=0, txn_timeout_s=TIMEOUT_S)
    service.start()
    yield service
    service.end()
    store = open_store(url)
    try:
        assert verify(store) == []
    finally:
        store.close()


@pytest.mark.parametrize("kills", [5, pytest.param(long(50), marks=slow(1_200))], ids=["few", "many"])
def test_locks_over_kills(service: Killable, kills: int) -> None:
    chance, holders, stop = random.Random(kills), Holders(), threading.Event()
    lockers = [Locker(service, number, holders, stop) for number in range(LOCKERS)]
    for one in lockers:
        one.thread.start()
    try:
        for _ in range(kills):
            before = holders.turns
            time.sleep(chance.uniform(0.1, 0.8))
            service.kill()
            service.start()
            while holders.turns < before + 3 and any(one.thread.is_alive() for one in lockers):
                time.sleep(0.05)  # what was asked for and got lost is in the way until it ends by itself
    finally:
        stop.set()
        for one in lockers:
            one.thread.join(60)
    assert [one.failed for one in lockers if one.failed is not None] == []
    assert holders.violations == []
    raw = Raw(int(service.address("hms").rpartition(":")[2]))
    try:
        opened = {one.id: one.state for one in raw.call("get_open_txns_info").success.open_txns}
        committed = [txn for one in lockers for txn in one.committed]
        assert opened.keys() & set(committed) == set(), "committed, and open or aborted"
        write_ids = [given for one in lockers for given in one.write_ids]
        assert len(write_ids) == len(set(write_ids))
        until = time.monotonic() + 60
        while raw.call("show_locks", rqst=ShowLocksRequest()).success.locks and time.monotonic() < until:
            time.sleep(0.5)
        assert raw.call("show_locks", rqst=ShowLocksRequest()).success.locks == []
    finally:
        raw.close()
    print(f"{holders.turns} locks, {len(committed)} transactions, {sum(one.lost for one in lockers)} calls cut off")
    assert sum(one.lost for one in lockers) >= kills
