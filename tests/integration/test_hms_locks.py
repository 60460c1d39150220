"""Locks by the Metastore protocol: the dance of Iceberg's clients, queues, time-outs, what renames and drops do."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    AbortTxnRequest,
    CheckLockRequest,
    CommitTxnRequest,
    HeartbeatRequest,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    NoSuchLockException,
    NoSuchTxnException,
    OpenTxnRequest,
    ShowLocksRequest,
    ShowLocksResponseElement,
    TxnAbortedException,
    TxnOpenException,
    UnlockRequest,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark_hms.bridge import HmsBridge
from lakemark_server.catalog.service import Catalog
from lakemark_server.kv import Store
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from lakemark_server.transactions import expiry
from lakemark_server.transactions.limits import TransactionLimits
from lakemark_server.transactions.service import Transactions
from lakemark_thrift import ttypes
from tests.integration.conftest import Client, Connect
from tests.integration.hms_objects import database, table
from tests.integration.hms_raw import Raw
from tests.lakes import Clock
from tests.stores import store_url

TIMEOUT_MS = 300_000
ACQUIRED, WAITING = LockState.ACQUIRED, LockState.WAITING


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(store: Store, warehouse: Path, clock: Clock) -> Catalog:
    made = Catalog(store, str(warehouse), clock)
    made.ensure_default_database()
    return made


@pytest.fixture
def limits() -> TransactionLimits:
    return TransactionLimits(locks=20, components=60)


@pytest.fixture
def hms(catalog: Catalog, limits: TransactionLimits) -> Iterator[HmsBridge]:
    with HmsBridge(catalog, transactions=Transactions(catalog.mutations, limits)) as bridge:
        yield bridge


def on(
    name: str = "t", kind: int = LockType.EXCLUSIVE, part: str | None = None, db: str = "default", **more: object
) -> LockComponent:
    level = LockLevel.PARTITION if part else LockLevel.TABLE if name else LockLevel.DB
    return LockComponent(kind, level, db, name or None, part, **more)


def request(*components: LockComponent, txn: int | None = None) -> LockRequest:
    return LockRequest(list(components), txn, "me", "here", "agent")


def check(client: Client, lock_id: int) -> int:
    return int(client.check_lock(CheckLockRequest(lock_id)).state)


def shown(client: Client, **filters: object) -> list[ShowLocksResponseElement]:
    return list(client.show_locks(ShowLocksRequest(**filters)).locks)


def test_the_dance_of_iceberg(client: Client, connect: Connect) -> None:
    other = connect()
    first = client.lock(request(on()))
    second = other.lock(request(on()))
    assert (first.state, second.state) == (ACQUIRED, WAITING)
    assert check(client, first.lockid) == ACQUIRED
    assert check(other, second.lockid) == WAITING
    client.unlock(UnlockRequest(first.lockid))
    assert check(other, second.lockid) == ACQUIRED
    other.unlock(UnlockRequest(second.lockid))
    assert shown(client) == []


def test_nobody_is_overtaken(client: Client) -> None:
    reader = client.lock(request(on(kind=LockType.SHARED_READ)))
    writer = client.lock(request(on(kind=LockType.EXCLUSIVE)))
    late = client.lock(request(on(kind=LockType.SHARED_READ)))
    assert [one.state for one in (reader, writer, late)] == [ACQUIRED, WAITING, WAITING]
    client.unlock(UnlockRequest(reader.lockid))
    assert check(client, late.lockid) == WAITING
    assert check(client, writer.lockid) == ACQUIRED
    client.unlock(UnlockRequest(writer.lockid))
    assert check(client, late.lockid) == ACQUIRED


def test_all_of_a_request_is_acquired_or_nothing(client: Client) -> None:
    client.lock(request(on("u")))
    both = client.lock(request(on("t"), on("u")))
    assert both.state == WAITING
    assert client.lock(request(on("t", LockType.SHARED_READ))).state == WAITING  # it came later
    assert client.lock(request(on("v"))).state == ACQUIRED


def test_databases_partitions_and_names_in_any_case(client: Client) -> None:
    assert client.lock(request(on("T", part="p=1"))).state == ACQUIRED
    assert client.lock(request(on("t", part="p=2"))).state == ACQUIRED
    assert client.lock(request(on("t", LockType.SHARED_READ))).state == WAITING
    assert client.lock(request(on("", LockType.SHARED_READ))).state == ACQUIRED
    assert client.lock(request(on("", LockType.EXCLUSIVE, db="DEFAULT"))).state == WAITING
    assert client.lock(request(on("t", db="other"))).state == ACQUIRED


def test_the_lock_type_of_hive_4(raw: Raw) -> None:
    def lock(kind: int) -> int:
        component = ttypes.LockComponent(type=kind, level=2, dbname="default", tablename="t")
        rqst = ttypes.LockRequest(component=[component], user="me", hostname="here")
        return int(raw.call("lock", rqst=rqst).success.state)

    assert lock(ttypes.LockType.EXCL_WRITE) == ACQUIRED
    assert lock(ttypes.LockType.SHARED_READ) == ACQUIRED
    assert lock(ttypes.LockType.SHARED_WRITE) == WAITING
    assert lock(ttypes.LockType.EXCL_WRITE) == WAITING


def test_who_does_not_want_to_wait_is_told_who_is_in_the_way(client: Client, raw: Raw) -> None:
    held = client.lock(request(on()))
    (txn,) = client.open_txns(OpenTxnRequest(1, "me", "here")).txn_ids
    component = ttypes.LockComponent(type=1, level=2, dbname="default", tablename="t")
    asked = ttypes.LockRequest(component=[component], txnid=txn, user="me", hostname="here", zeroWaitReadEnabled=True)
    answer = raw.call("lock", rqst=asked).success
    assert answer.state == ttypes.LockState.NOT_ACQUIRED
    assert f"lockid:{held.lockid}" in answer.errorMessage
    assert len(shown(client)) == 1


def test_a_silent_holder_loses_its_lock(client: Client, connect: Connect, clock: Clock) -> None:
    """Nobody has to sweep: who waits notices it."""
    first = client.lock(request(on()))
    waits = connect().lock(request(on()))
    clock.advance(TIMEOUT_MS - 1)
    assert check(client, waits.lockid) == WAITING
    client.heartbeat(HeartbeatRequest(lockid=first.lockid))
    clock.advance(TIMEOUT_MS - 1)
    assert check(client, waits.lockid) == WAITING
    clock.advance(1)
    assert check(client, waits.lockid) == ACQUIRED
    with pytest.raises(NoSuchLockException):
        client.heartbeat(HeartbeatRequest(lockid=first.lockid))
    with pytest.raises(NoSuchLockException):
        check(client, first.lockid)
    client.unlock(UnlockRequest(first.lockid))  # as in Hive, nothing


def test_who_waits_and_goes_is_not_waited_for(client: Client, clock: Clock) -> None:
    held = client.lock(request(on(kind=LockType.SHARED_READ)))
    client.lock(request(on()))  # it never asks again
    clock.advance(TIMEOUT_MS // 2)
    client.heartbeat(HeartbeatRequest(lockid=held.lockid))
    late = client.lock(request(on(kind=LockType.SHARED_READ)))
    assert late.state == WAITING
    clock.advance(TIMEOUT_MS // 2)
    assert check(client, late.lockid) == ACQUIRED


def test_the_sweeper_frees_what_nobody_asks_for(
    client: Client, catalog: Catalog, clock: Clock, limits: TransactionLimits
) -> None:
    client.lock(request(on()))
    kept = client.lock(request(on("u")))
    (txn,) = client.open_txns(OpenTxnRequest(1, "me", "here")).txn_ids
    client.lock(request(on("v"), txn=txn))
    clock.advance(TIMEOUT_MS - 1)
    client.heartbeat(HeartbeatRequest(lockid=kept.lockid))
    assert expiry.sweep(catalog.mutations, limits) == (0, 0)
    clock.advance(1)
    assert expiry.sweep(catalog.mutations, limits) == (1, 1)
    assert [one.lockid for one in shown(client)] == [kept.lockid]
    clock.advance(TIMEOUT_MS)
    assert expiry.sweep(catalog.mutations, limits) == (1, 0)
    assert shown(client) == []


def test_locks_of_a_transaction_live_as_long_as_it(client: Client, connect: Connect, clock: Clock) -> None:
    for end in ("commit", "abort", "silence"):
        (txn,) = client.open_txns(OpenTxnRequest(1, "me", "here")).txn_ids
        held = client.lock(request(on(), txn=txn))
        assert client.lock(request(on("t", LockType.SHARED_READ), txn=txn)).state == ACQUIRED  # its own
        waits = connect().lock(request(on()))
        assert waits.state == WAITING
        with pytest.raises(TxnOpenException):
            client.unlock(UnlockRequest(held.lockid))
        clock.advance(TIMEOUT_MS // 2)
        client.heartbeat(HeartbeatRequest(txnid=txn))
        assert check(client, waits.lockid) == WAITING
        if end == "commit":
            client.commit_txn(CommitTxnRequest(txn))
        elif end == "abort":
            client.abort_txn(AbortTxnRequest(txn))
        else:
            clock.advance(TIMEOUT_MS // 2)
            client.heartbeat(HeartbeatRequest(lockid=waits.lockid))
            clock.advance(TIMEOUT_MS // 2)
        assert check(client, waits.lockid) == ACQUIRED
        client.unlock(UnlockRequest(waits.lockid))
        ended = NoSuchTxnException if end == "commit" else TxnAbortedException
        with pytest.raises(ended):
            client.lock(request(on(), txn=txn))
        with pytest.raises(NoSuchTxnException):
            client.lock(request(on(), txn=txn + 1_000))


def test_show_locks(client: Client, clock: Clock) -> None:
    (txn,) = client.open_txns(OpenTxnRequest(1, "me", "here")).txn_ids
    first = client.lock(request(on("t", LockType.SHARED_WRITE, part="p=1"), on("", LockType.SHARED_READ), txn=txn))
    second = client.lock(request(on("t")))
    one, database_lock, waits = shown(client)
    assert (one.lockid, one.dbname, one.tablename, one.partname) == (first.lockid, "default", "t", "p=1")
    assert (one.state, one.type, one.txnid, one.acquiredat) == (ACQUIRED, LockType.SHARED_WRITE, txn, clock())
    assert (one.user, one.hostname, one.agentInfo, one.lockIdInternal) == ("me", "here", "agent", 1)
    assert (database_lock.tablename, database_lock.partname, database_lock.lockIdInternal) == (None, None, 2)
    assert (waits.lockid, waits.state, waits.acquiredat, waits.txnid) == (second.lockid, WAITING, None, 0)
    assert (waits.blockedByExtId, waits.blockedByIntId) == (first.lockid, 1)
    assert waits.lastheartbeat == clock()
    assert len(shown(client, dbname="Default")) == 3
    assert len(shown(client, dbname="default", tablename="T")) == 2
    assert len(shown(client, dbname="default", tablename="t", partname="p=1")) == 1
    assert shown(client, dbname="defaul") == shown(client, dbname="default", tablename="u") == []


def test_show_locks_tells_of_each_component_what_it_waits_for(client: Client) -> None:
    first = client.lock(request(on("t")))
    second = client.lock(request(on("t", part="p=1"), on("t", part="p=2"), on("u")))
    blocked_by = [(one.tablename, one.partname, one.blockedByExtId) for one in shown(client, dbname="default")[1:]]
    assert blocked_by == [("t", "p=1", first.lockid), ("t", "p=2", first.lockid), ("u", None, None)]
    client.lock(request(on("u")))
    assert shown(client, dbname="default", tablename="u")[1].blockedByExtId == second.lockid


def test_bad_requests_and_limits(client: Client) -> None:
    with pytest.raises(TApplicationException, match="nothing to lock"):
        client.lock(request())
    with pytest.raises(TApplicationException, match="no lock type 9"):
        client.lock(request(on(kind=9)))
    with pytest.raises(TApplicationException, match="too long"):
        client.lock(request(on("t" * 129)))
    with pytest.raises(TApplicationException, match="no database"):
        client.lock(request(on("t", db="")))
    with pytest.raises(TApplicationException, match=r"10,001 things to lock; at most 10,000"):
        client.lock(request(*(on("t", part=f"p={number}") for number in range(10_001))))
    with pytest.raises(TApplicationException, match="61 more were asked for, and there may be 60"):
        client.lock(request(*(on("t", part=f"p={number}") for number in range(61))))
    ids = [client.lock(request(on(f"t{number}"))).lockid for number in range(20)]
    with pytest.raises(TApplicationException, match="20 locks"):
        client.lock(request(on()))
    client.unlock(UnlockRequest(ids[0]))
    assert client.lock(request(on())).state == ACQUIRED
    with pytest.raises(NoSuchLockException, match="No such lock lockid:987"):
        check(client, 987)
    client.heartbeat(HeartbeatRequest())


def test_locks_stay_with_a_table_that_is_renamed(client: Client) -> None:
    client.create_table(table("t"))
    held = client.lock(request(on("t", part="p=1")))
    waits = client.lock(request(on("t")))
    renamed = table("u")
    client.alter_table("default", "t", renamed)
    assert {(one.lockid, one.tablename, one.partname) for one in shown(client)} == {
        (held.lockid, "u", "p=1"),
        (waits.lockid, "u", None),
    }
    assert check(client, waits.lockid) == WAITING
    assert client.lock(request(on("t"))).state == ACQUIRED
    assert client.lock(request(on("u"))).state == WAITING
    client.unlock(UnlockRequest(held.lockid))
    assert check(client, waits.lockid) == ACQUIRED


def test_locks_outlive_a_dropped_table(client: Client) -> None:
    client.create_database(database("d"))
    client.create_table(table("t", db="d"))
    held = client.lock(request(on("t", db="d")))
    client.drop_table("d", "t", True)
    assert check(client, held.lockid) == ACQUIRED
    assert client.lock(request(on("t", db="d"))).state == WAITING


class _Held:
    """Notes who holds what, to see whether two do at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: dict[int, int] = {}
        self.violations: list[dict[int, int]] = []
        self.turns = 0

    def enter(self, who: int, kind: int) -> None:
        with self._lock:
            self.turns += 1
            self._holders[who] = kind
            if LockType.EXCLUSIVE in self._holders.values() and len(self._holders) > 1:
                self.violations.append(dict(self._holders))

    def leave(self, who: int) -> None:
        with self._lock:
            del self._holders[who]


@contextmanager
def _connected(port: int) -> Iterator[Client]:
    transport = TBufferedTransport(TSocket("127.0.0.1", port))
    transport.open()
    yield Client(TBinaryProtocolAccelerated(transport, fallback=False))
    transport.close()


def _wait_for(client: Client, wanted: LockRequest) -> int:
    response = client.lock(wanted)
    until = time.monotonic() + 60
    while response.state != ACQUIRED:
        assert time.monotonic() < until, "a lock was not acquired"
        response = client.check_lock(CheckLockRequest(response.lockid))
    return int(response.lockid)


def test_many_lockers_at_once(connect: Connect, catalog: Catalog) -> None:
    """Writers change a parameter by reading and writing the table; readers share. Two services over one store."""
    turns, writers, readers = 6, 4, 2
    held, failures = _Held(), list[BaseException]()
    with HmsBridge(catalog) as second, ExitStack() as stack:
        elsewhere = [stack.enter_context(_connected(second.port)) for _ in range(3)]
        clients = [connect() for _ in range(writers + readers - len(elsewhere))] + elsewhere
        made = table("t")
        made.parameters["count"] = "0"
        clients[0].create_table(made)

        def work(who: int, client: Client) -> None:
            kind = LockType.EXCLUSIVE if who < writers else LockType.SHARED_READ
            try:
                for _ in range(turns):
                    lock_id = _wait_for(client, request(on("t", kind)))
                    held.enter(who, kind)
                    if kind == LockType.EXCLUSIVE:
                        now = client.get_table("default", "t")
                        now.parameters["count"] = str(int(now.parameters["count"]) + 1)
                        client.alter_table("default", "t", now)
                    held.leave(who)
                    client.unlock(UnlockRequest(lock_id))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(random.sample(clients, len(clients)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert held.violations == []
        assert held.turns == turns * (writers + readers)
        assert clients[0].get_table("default", "t").parameters["count"] == str(turns * writers)
        assert shown(clients[0]) == []


def test_the_service_sweeps(tmp_path: Path, clock: Clock) -> None:
    """Nobody asks for the locks again; the setting says how long their holders may be silent."""
    settings = Settings(
        store=store_url(tmp_path), warehouse=str(tmp_path), grpc_port=0, hms_port=0, txn_timeout_s=60.0, cores="all"
    )
    with Service(settings, clock=clock) as service, _connected(service.hms.port if service.hms else 0) as client:
        client.lock(request(on()))
        clock.advance(59_999)
        service._sweeper.once()
        assert len(shown(client)) == 1
        clock.advance(1)
        service._sweeper.once()
        assert shown(client) == []
