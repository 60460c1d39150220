"""Quotas of tenants, counted in the store: what is taken is given back, and the last one is taken once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakemark.errors import InvalidArgument, LakemarkError, QuotaExceeded
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_proto.v1.admin_pb2 import Quota, Usage
from lakemark_server.admission import usage
from lakemark_server.admission.limits import Limits
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog.service import Catalog
from lakemark_server.kv import Store, open_store
from tests.lakes import FLAT
from tests.stores import store_url

WAIT_S = 60.0


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """What two processes see: two stores on one PostgreSQL database; one SQLite store, which only one may open."""
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
    """What ``count`` threads get that begin together."""
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

    catalog.drop_lake_table("hive", "default", "a")
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
    """Two transactions that take at the same moment both succeed at the first attempt."""
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
        catalog.drop_lake_table("hive", "default", "a", request_id="two")
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
