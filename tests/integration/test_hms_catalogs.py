"""Catalogs through the Metastore protocol, by calls of Hive 4 (the bindings of Hive 2.3 know none)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakemark_hms.bridge import HmsBridge
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_proto.v1.admin_pb2 import Quota
from lakemark_server.catalog.service import Catalog
from lakemark_server.kv import Store
from lakemark_server.verify import places
from lakemark_thrift import ttypes
from tests.integration.conftest import Client
from tests.integration.hms_objects import path, table
from tests.integration.hms_raw import Raw

Create = Callable[..., Any]


@pytest.fixture
def create(raw: Raw) -> Create:
    def call(name: str, location: object, description: str | None = None) -> Any:
        catalog = ttypes.Catalog(name=name, description=description, locationUri=str(location))
        return raw.call("create_catalog", catalog=ttypes.CreateCatalogRequest(catalog=catalog))

    return call


def get(raw: Raw, name: str) -> Any:
    return raw.call("get_catalog", catName=ttypes.GetCatalogRequest(name=name))


def alter(raw: Raw, name: str, /, **fields: Any) -> Any:
    request = ttypes.AlterCatalogRequest(name=name, newCat=ttypes.Catalog(**fields))
    return raw.call("alter_catalog", rqst=request)


def drop(raw: Raw, name: str, *, if_exists: bool = False) -> Any:
    request = ttypes.DropCatalogRequest(name=name, ifExists=True if if_exists else None)
    return raw.call("drop_catalog", catName=request)


def new_database(raw: Raw, name: str, catalog: str, location: object = None) -> Any:
    where = None if location is None else str(location)
    return raw.call("create_database", database=ttypes.Database(name=name, catalogName=catalog, locationUri=where))


def new_table(raw: Raw, name: str, database: str, catalog: str) -> Any:
    storage = ttypes.StorageDescriptor(cols=[ttypes.FieldSchema("a", "int", None)], serdeInfo=ttypes.SerDeInfo())
    return raw.call("create_table", tbl=ttypes.Table(tableName=name, dbName=database, catName=catalog, sd=storage))


def test_a_catalog_has_a_location_a_time_and_a_database(raw: Raw, create: Create, tmp_path: Path) -> None:
    assert create("Sales", tmp_path / "sales", "what we sell").o1 is None
    assert (tmp_path / "sales").is_dir()
    found = get(raw, "SALES").success.catalog
    assert (found.name, found.description, found.locationUri) == ("sales", "what we sell", str(tmp_path / "sales"))
    assert found.createTime > 1_700_000_000
    assert raw.call("get_catalogs").success.names == ["hive", "sales"]
    default = raw.call("get_database", name="@sales#default").success
    assert (default.locationUri, default.catalogName) == (f"file:{tmp_path}/sales", "sales")
    assert (default.ownerName, default.ownerType) == ("public", ttypes.PrincipalType.ROLE)
    assert get(raw, "hive").success.catalog.name == "hive"


def test_databases_and_tables_lie_in_their_catalog_and_are_dropped_with_their_files(
    raw: Raw, create: Create, tmp_path: Path, client: Client, store: Store
) -> None:
    create("sales", tmp_path / "sales")
    new_database(raw, "eu", "sales")
    new_table(raw, "t", "eu", "sales")
    new_table(raw, "u", "default", "sales")
    found = raw.call("get_table", dbname="@sales#eu", tbl_name="t").success
    assert (found.catName, found.sd.location) == ("sales", f"file:{tmp_path}/sales/eu.db/t")
    in_default = raw.call("get_table", dbname="@sales#default", tbl_name="u").success
    assert in_default.sd.location == f"file:{tmp_path}/sales/u"
    assert client.get_all_tables("eu") == []  # of the catalog hive, which has no such database
    assert raw.call("get_all_databases").success == ["default"]
    assert raw.call("get_databases", pattern="@sales#").success == ["default", "eu"]
    assert places.check(store) == []
    for name, database in (("t", "eu"), ("u", "default")):
        (path(found.sd.location if name == "t" else in_default.sd.location) / "file").write_text("x")
        raw.call("drop_table", dbname=f"@sales#{database}", name=name, deleteData=True)
    assert not path(found.sd.location).exists()
    assert not path(in_default.sd.location).exists()
    raw.call("drop_database", name="@sales#eu", deleteData=True, cascade=False)
    assert sorted(one.name for one in (tmp_path / "sales").iterdir()) == []
    assert drop(raw, "sales").o1 is None
    assert not (tmp_path / "sales").exists()
    assert raw.call("get_catalogs").success.names == ["hive"]
    assert raw.call("get_database", name="@sales#default").o1 is not None
    assert places.check(store) == []


def test_a_catalog_that_is_not_empty_stays(raw: Raw, create: Create, tmp_path: Path) -> None:
    create("sales", tmp_path / "sales")
    new_table(raw, "t", "default", "sales")
    assert "still objects in the default database for catalog sales" in drop(raw, "sales").o2.message
    raw.call("drop_table", dbname="@sales#default", name="t", deleteData=True)
    new_database(raw, "eu", "sales")
    assert "non-default databases in the catalog sales" in drop(raw, "sales").o2.message
    assert get(raw, "sales").success is not None
    assert (tmp_path / "sales" / "eu.db").is_dir()


def test_its_default_database_can_be_dropped_and_made_again(raw: Raw, create: Create, tmp_path: Path) -> None:
    create("sales", tmp_path / "sales")
    assert raw.call("drop_database", name="@sales#default", deleteData=True, cascade=True).o3 is None
    assert (tmp_path / "sales").is_dir()
    new_database(raw, "default", "sales")
    found = raw.call("get_database", name="@sales#default").success
    assert found.locationUri == f"file:{tmp_path}/sales"
    new_table(raw, "t", "default", "sales")
    raw.call("drop_table", dbname="@sales#default", name="t", deleteData=True)
    assert list((tmp_path / "sales").iterdir()) == []
    drop(raw, "sales")
    assert not (tmp_path / "sales").exists()


def test_files_that_were_there_before_stay(raw: Raw, create: Create, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "precious").write_text("x")
    create("sales", tmp_path / "old")
    drop(raw, "sales")
    assert (tmp_path / "old" / "precious").exists()


def test_an_altered_location_is_that_of_later_databases(raw: Raw, create: Create, tmp_path: Path) -> None:
    create("sales", tmp_path / "first", "old")
    alter(raw, "sales", name="sales", locationUri=str(tmp_path / "second"))
    found = get(raw, "sales").success.catalog
    assert (found.locationUri, found.description) == (str(tmp_path / "second"), "old")
    new_database(raw, "eu", "sales")
    assert (tmp_path / "second" / "eu.db").is_dir()
    alter(raw, "sales", name="sales", description="new")
    found = get(raw, "sales").success.catalog
    assert (found.locationUri, found.description) == (str(tmp_path / "second"), "new")
    assert found.createTime > 1_700_000_000
    assert "cannot change a catalog's name" in alter(raw, "sales", name="other").o2.message
    assert alter(raw, "none", name="none").o1 is not None
    raw.call("drop_database", name="@sales#eu", deleteData=True, cascade=True)
    drop(raw, "sales")
    assert not (tmp_path / "first").exists()


def test_what_is_refused_says_why(raw: Raw, create: Create, tmp_path: Path, warehouse: Path) -> None:
    create("sales", tmp_path / "sales")
    assert "already exists" in create("Sales", tmp_path / "x").o1.message
    assert "already exists" in create("hive", tmp_path / "x").o1.message
    assert "not legal" in create("no-dash", tmp_path / "x").o2.message
    assert "specify a path" in create("other", "").o2.message
    assert "name is empty" in create(" ", tmp_path / "x").o2.message
    for name in ("", "x" * 20_000):
        assert "there is no catalog" in get(raw, name).o1.message
        assert "there is no catalog" in drop(raw, name).o1.message
        assert "there is no catalog" in alter(raw, name, description="x").o1.message
    assert "relative" in create("other", "a/b").o2.message
    assert "kept for the service" in create("other", warehouse).o2.message
    for place in (tmp_path / "sales", tmp_path / "sales" / "in", tmp_path):
        assert "cannot have the location" in create("other", place).o2.message
    assert not (tmp_path / "x").exists()
    request = ttypes.CreateCatalogRequest(catalog=ttypes.Catalog(locationUri="/x"))
    assert "null" in raw.call("create_catalog", catalog=request).o3.message
    assert "hive" in drop(raw, "hive").o3.message
    assert "there is no catalog 'none'" in drop(raw, "none").o1.message
    assert drop(raw, "none", if_exists=True).o1 is None
    assert "there is no catalog 'none'" in new_database(raw, "a", "none").o2.message  # not even where clients make some
    assert "there is no catalog 'none'" in get(raw, "none").o1.message
    assert raw.call("get_catalogs").success.names == ["hive", "sales"]


def test_nobody_has_the_directory_of_a_catalog(raw: Raw, create: Create, tmp_path: Path) -> None:
    create("sales", tmp_path / "sales")
    refused = new_database(raw, "thief", "hive", tmp_path / "sales")
    assert "catalog sales has its directory there" in refused.o2.message
    new_database(raw, "eu", "sales")
    refused = new_database(raw, "thief", "hive", tmp_path / "sales" / "eu.db" / "in")
    assert "database eu has the directory around it" in refused.o2.message


@pytest.mark.parametrize("parameters", [{}, {"EXTERNAL": "TRUE"}], ids=["managed", "external"])
def test_files_of_others_in_its_directory_stay(
    raw: Raw, create: Create, client: Client, warehouse: Path, parameters: dict[str, str]
) -> None:
    create("sales", warehouse / "sales")
    client.create_table(table("t", location=f"{warehouse}/sales/t", parameters=parameters))
    (warehouse / "sales" / "t" / "file").write_text("x")
    assert drop(raw, "sales").o1 is None
    assert (warehouse / "sales" / "t" / "file").exists()
    assert raw.call("get_catalogs").success.names == ["hive"]


def test_tables_stay_in_their_catalog(raw: Raw, create: Create, tmp_path: Path) -> None:
    create("sales", tmp_path / "sales")
    new_table(raw, "t", "default", "sales")
    new = raw.call("get_table", dbname="@sales#default", tbl_name="t").success
    new.catName = "hive"
    refused = raw.call("alter_table", dbname="@sales#default", tbl_name="t", new_tbl=new).o1
    assert "cannot be moved to another catalog" in refused.message
    assert raw.call("get_table", dbname="default", tbl_name="t").o2 is not None


@pytest.fixture
def strict(store: Store, warehouse: Path) -> Iterator[tuple[Catalog, Raw]]:
    """A service whose clients make no catalogs."""
    catalog = Catalog(store, str(warehouse), client_catalogs=False)
    catalog.ensure_default_database()
    with HmsBridge(catalog) as bridge:
        raw = Raw(bridge.port)
        yield catalog, raw
        raw.close()


def test_the_operator_says_who_has_catalogs(strict: tuple[Catalog, Raw], tmp_path: Path) -> None:
    catalog, raw = strict

    def create(name: str) -> Any:
        wanted = ttypes.Catalog(name=name, locationUri=str(tmp_path / name))
        return raw.call("create_catalog", catalog=ttypes.CreateCatalogRequest(catalog=wanted))

    assert "lakemark quota set sales" in create("sales").o2.message
    assert not (tmp_path / "sales").exists()
    catalog.quotas.set("sales", Quota(tables=5))
    assert raw.call("get_catalogs").success.names == ["hive"]
    assert create("sales").o2 is None
    assert raw.call("get_catalogs").success.names == ["hive", "sales"]
    drop(raw, "sales")
    assert create("sales").o2 is None


def test_a_catalog_without_a_definition_lies_in_the_warehouse(raw: Raw, catalog: Catalog, warehouse: Path) -> None:
    catalog.create_database(DatabaseRecord(catalog="lake", name="a"))
    found = get(raw, "lake").success.catalog
    assert (found.name, found.locationUri) == ("lake", f"file:{warehouse}/lake.catalog")
    assert raw.call("get_catalogs").success.names == ["hive", "lake"]
    assert "not created by a Metastore client" in alter(raw, "lake", name="lake", description="x").o2.message
    assert drop(raw, "lake").o2 is not None
    catalog.drop_database("lake", "a")
    assert drop(raw, "lake").o1 is not None
