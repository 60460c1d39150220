"""Quotas of tenants, counted in the store: what is taken is given back, and only one request gets the last unit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lakemark.errors import InvalidArgument, LakemarkError, QuotaExceeded
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1.admin_pb2 import Quota, Usage
from lakemark_server.admission import usage
from lakemark_server.admission.limits import Limits
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog.service import Catalog
from lakemark_server.kv import Store, open_store
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.service import Timeline
from lakemark_server.verify import verify
from tests.lakes import FLAT, Clock, file, files, profile
from tests.stores import store_url
from tests.wire import Wire, refused

WAIT_S = 60.0


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """The stores of two processes: two on one PostgreSQL database, or one SQLite store, which only one may open."""
    url = store_url(tmp_path)
    one = open_store(url)
    other = one if url.startswith("sqlite") else open_store(url)
    yield one, other
    other.close()
    one.close()


def catalog_on(store: Store, directory: Path, **limits: int) -> Catalog:
    quotas = Quotas(store, Limits(**limits))
    made = Catalog(store, str(directory / "warehouse"), quotas=quotas)
    made.ensure_default_database()
    return made


def create(catalog: Catalog, name: str) -> None:
    record = LakeTableRecord(catalog="hive", database="default", name=name)
    catalog.create_lake_table(record, FLAT)


def used(store: Store, catalog: str = "hive") -> Usage:
    return store.read(lambda tx: usage.read(tx, catalog))


def outcomes(work: Callable[[int], None], count: int) -> list[LakemarkError | None]:
    """The results of ``count`` threads that begin together."""
    start = threading.Barrier(count)

    def one(number: int) -> LakemarkError | None:
        start.wait(WAIT_S)
        try:
            work(number)
        except LakemarkError as error:
            return error
        return None

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_tables_and_databases_are_counted_and_given_back(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store, _ = stores
    catalog = catalog_on(store, tmp_path, tables=2, databases=2)
    create(catalog, "a")
    create(catalog, "b")
    with pytest.raises(QuotaExceeded, match="has 2 tables, its quota is 2, and 1 more were asked for: drop some") as no:
        create(catalog, "c")
    assert no.value.details == {"catalog": "hive", "limit": "tables", "allowed": "2", "used": "2", "asked": "1"}
    assert used(store) == Usage(tables=2, databases=1)

    catalog.dropped.drop("hive", "default", "a", now=True)
    create(catalog, "c")
    catalog.create_database(DatabaseRecord(name="db"))
    with pytest.raises(QuotaExceeded, match="2 databases"):
        catalog.create_database(DatabaseRecord(name="other"))
    catalog.create_database(DatabaseRecord(catalog="elsewhere", name="other"))
    catalog.drop_database("hive", "db")
    assert used(store) == Usage(tables=2, databases=1)
    assert used(store, "elsewhere") == Usage(databases=1)


def test_of_what_two_services_take_at_once_no_more_than_the_quota_is_there(
    stores: tuple[Store, Store], tmp_path: Path
) -> None:
    catalogs = [catalog_on(store, tmp_path, tables=10) for store in stores]

    def work(number: int) -> None:
        create(catalogs[number % 2], f"t{number}")

    found = outcomes(work, 24)

    assert sum(error is None for error in found) == 10
    assert all(isinstance(error, QuotaExceeded) for error in found if error is not None)
    assert used(stores[0]).tables == 10
    assert len(catalogs[0].list_tables("hive", "default")) == 10


def test_far_from_the_limit_nobody_conflicts(stores: tuple[Store, Store]) -> None:
    """Two concurrent transactions that take from the quota both succeed at the first attempt."""
    store, _ = stores
    first, second = store.begin(), store.begin()
    tenant = usage.Tenant("hive", Limits())
    usage.take(first, tenant, usage.TABLES, 1)
    usage.take(second, tenant, usage.TABLES, 1)
    first.commit()
    second.commit()
    assert used(store).tables == 2


def test_asking_again_with_a_request_id_counts_once(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store, _ = stores
    catalog = catalog_on(store, tmp_path)
    record = LakeTableRecord(catalog="hive", database="default", name="a")
    for _ in range(3):
        catalog.create_lake_table(record, FLAT, request_id="one")
    for _ in range(3):
        catalog.dropped.drop("hive", "default", "a", request_id="two")
    assert used(store).tables == 0


def test_a_tenants_own_limits_hold_at_once_here_and_soon_elsewhere(stores: tuple[Store, Store], tmp_path: Path) -> None:
    now = [0.0]
    here = Quotas(stores[0], Limits(tables=5), cache_s=5.0)
    there = Quotas(stores[1], Limits(tables=5), cache_s=5.0, clock_s=lambda: now[0])
    assert here.of("hive").tables == there.of("hive").tables == 5

    answer = here.set("hive", Quota(tables=1, request_burst=0), request_id="a")
    assert (answer.own, answer.limits.tables, answer.limits.databases) == (
        Quota(tables=1, request_burst=0),
        1,
        Limits().databases,
    )
    assert here.of("hive").tables == 1
    assert there.of("hive").tables == 5, "kept for a while"
    now[0] = 5.0
    assert there.of("hive") == here.of("hive")

    assert here.set("hive", Quota(), clear=["tables"]).own == Quota(request_burst=0)
    assert here.set("hive", Quota(databases=3), clear_all=True).own == Quota(databases=3)
    assert here.of("hive").tables == 5


def test_what_no_quota_can_be(stores: tuple[Store, Store]) -> None:
    quotas = Quotas(stores[0])
    with pytest.raises(InvalidArgument, match="no limit 'tabels'; there are: requests_per_second"):
        quotas.set("hive", Quota(), clear=["tabels"])
    for wrong in (Quota(tables=-1), Quota(requests_per_second=float("nan")), Quota(requests_per_second=float("inf"))):
        with pytest.raises(InvalidArgument, match="must lie between 0"):
            quotas.set("hive", wrong)
    assert quotas.get("hive").own == Quota()


def test_the_list_has_tenants_with_databases_or_limits(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store, _ = stores
    catalog = catalog_on(store, tmp_path)
    for name in ("b", "d"):
        catalog.create_database(DatabaseRecord(catalog=name, name="x"))
        catalog.create_database(DatabaseRecord(catalog=name, name="y"))
    for name in ("a", "b", "z"):
        catalog.quotas.set(name, Quota(tables=7))
    assert [one.catalog for one in catalog.quotas.list()] == ["a", "b", "d", "hive", "z"]
    assert [one.catalog for one in catalog.quotas.list(after="b", limit=2)] == ["d", "hive"]
    assert [(one.own.tables, one.usage.databases) for one in catalog.quotas.list()][:3] == [(7, 0), (7, 2), (0, 2)]


# -- open instants and staged files ------------------------------------------------------------------------------------


class Writers:
    """A service, and writers of its tables."""

    def __init__(self, service: Service, clock: Clock) -> None:
        self.service = service
        self.clock = clock
        self.wire = Wire(service.grpc_address)
        self.wire.create()

    def limit(self, **limits: int) -> None:
        self.service.catalog.quotas.set("hive", Quota(**limits), clear_all=True)

    def used(self) -> tuple[int, int, int]:
        """Open instants, staged files and their bytes."""
        now = used(self.service.store)
        return now.open_instants, now.staged_files, now.staged_bytes

    def stage(self, instant: int, sequence: int, count: int) -> None:
        new = [file(instant, f"g{sequence}-{number}", 1, size=10) for number in range(count)]
        self.wire.timeline.StageFiles(
            t.StageFilesRequest(table=self.wire.table, instant=instant, sequence=sequence, added=files(*new))
        )

    def commit(self, instant: int, *names: str) -> t.CommitResponse:
        new = [file(instant, name, 1, size=10) for name in names]
        return self.wire.timeline.Commit(
            t.CommitRequest(table=self.wire.table, instant=instant, added=files(*new) if new else None)
        )


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    clock = Clock()
    given: dict[str, Any] = {
        "store": store_url(tmp_path),
        "warehouse": str(tmp_path / "warehouse"),
        "grpc_port": 0,
        "hms_enabled": False,
        "sweep_interval_s": 3_600,
    }
    with Service(Settings(**given), clock=clock) as service:
        made = Writers(service, clock)
        yield made
        made.wire.close()
        assert verify(service.store) == []


def test_every_end_of_a_writer_gives_back_what_it_had(writers: Writers) -> None:
    wire = writers.wire
    committed, rolled_back, lost, dropped = (wire.open().instant for _ in range(4))
    for instant in (committed, rolled_back, lost, dropped):
        writers.stage(instant, 1, 3)
    writers.stage(committed, 2, 2)
    writers.stage(committed, 2, 2)  # the same request again
    assert writers.used() == (4, 14, 140)

    for _ in range(2):
        writers.commit(committed, "inline")
    assert writers.used() == (3, 9, 90)
    for _ in range(2):
        wire.timeline.RollbackInstant(t.RollbackInstantRequest(table=wire.table, instant=rolled_back))
    assert writers.used() == (2, 6, 60)
    writers.clock.advance(100_000)
    wire.timeline.Heartbeat(t.HeartbeatRequest(table=wire.table, instants=[dropped]))
    writers.clock.advance(100_000)
    assert [instant for _, instant in writers.service.timeline.roll_back_expired()] == [lost]
    assert writers.used() == (1, 3, 30)
    assert verify(writers.service.store) == []

    writers.service.catalog.dropped.drop("", "default", "t", now=True)
    assert used(writers.service.store) == Usage(databases=1)


def test_a_commit_that_is_refused_gives_back_what_it_had(writers: Writers) -> None:
    wire = writers.wire
    first, second = wire.open().instant, wire.open(t.OVERWRITE_PARTITIONS, profile=profile(1)).instant
    writers.stage(first, 1, 2)
    writers.commit(second, "a")
    assert writers.used() == (1, 2, 20)
    with refused("commit_conflict"):
        writers.commit(first, "b")
    assert writers.used() == (0, 0, 0)


def test_open_instants_of_all_tables_are_limited(writers: Writers) -> None:
    writers.limit(open_instants=2)
    other = Wire(writers.service.grpc_address, "other")
    other.create()
    one = writers.wire.open(request_id="one").instant
    other.open()
    with refused("quota_exceeded", "has 2 open instants", "commit some or roll them back") as told:
        other.open()
    assert told().detail.details["limit"] == "open_instants"
    assert writers.wire.open(request_id="one").instant == one, "asking again is not one more"
    writers.commit(one, "a")
    other.open()
    other.close()


def test_staged_files_and_their_bytes_are_limited(writers: Writers) -> None:
    writers.limit(staged_files=5, staged_bytes=40)
    one, two = writers.wire.open().instant, writers.wire.open().instant
    writers.stage(one, 1, 3)
    with refused("quota_exceeded", "3 files that are staged and not committed, its quota is 5, and 3 more"):
        writers.stage(two, 1, 3)
    with refused("quota_exceeded", "30 bytes of files", "its quota is 40"):
        writers.stage(two, 1, 2)
    writers.commit(one)
    writers.stage(two, 1, 3)
    writers.commit(two)
    assert writers.used() == (0, 0, 0)


def test_what_writers_take_at_once_is_no_more_than_the_quota(writers: Writers) -> None:
    writers.limit(open_instants=5)
    wires = [Wire(writers.service.grpc_address, f"t{number}") for number in range(4)]
    for wire in wires:
        wire.create()
    twin = Timeline(
        writers.service.store, writers.service.snapshots, writers.clock, quotas=Quotas(writers.service.store)
    )
    tables = [writers.service.catalog.get_lake_table("", "default", f"t{number}") for number in range(4)]

    def work(number: int) -> None:
        timeline = (twin, writers.service.timeline)[number % 2]
        timeline.open(tables[number // 2 % 4].table_id, OpenJob(t.APPEND, profile=t.WorkProfile()))

    found = outcomes(work, 24)
    assert sum(error is None for error in found) == 5
    assert {type(error) for error in found} == {type(None), QuotaExceeded}
    assert writers.used()[0] == 5
    for wire in wires:
        wire.close()


def test_a_wrong_counter_is_found(writers: Writers) -> None:
    store = writers.service.store
    writers.stage(writers.wire.open().instant, 1, 2)
    assert used(store) == Usage(tables=1, databases=1, open_instants=1, staged_files=2, staged_bytes=20)
    store.transact(lambda tx: usage.add(tx, "hive", usage.TABLES, 1))
    assert verify(store) == ["catalog 'hive': its counter says 2 tables, there are 1"]
    store.transact(lambda tx: usage.add(tx, "hive", usage.TABLES, -1))


def test_limits_that_may_not_be_waited_for(stores: tuple[Store, Store]) -> None:
    """Requests are admitted by the last known limits, and a thread reads the current ones."""
    now, reads = [0.0], threading.Semaphore(0)
    here, there = Quotas(stores[0], Limits(tables=5)), Quotas(stores[1], Limits(tables=5), clock_s=lambda: now[0])
    here.set("hive", Quota(tables=1))
    original = there._read_again

    def counted(catalog: str, changes: int) -> None:
        original(catalog, changes)
        reads.release()

    there._read_again = counted  # type: ignore[method-assign]
    assert there.known("hive").tables == 5, "nothing is known yet"
    assert reads.acquire(timeout=WAIT_S)
    assert there.known("hive").tables == 1
    here.set("hive", Quota(tables=2))
    now[0] = 10.0
    assert there.known("hive").tables == 1
    assert reads.acquire(timeout=WAIT_S)
    assert there.known("hive").tables == 2
    there.set("hive", Quota(tables=3))
    assert there.known("hive").tables == 3, "what is changed here holds at once"
    here.close()
    there.close()
    now[0] = 20.0
    assert there.known("hive").tables == 3, "what was known last"
