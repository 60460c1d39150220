"""Databases through the Metastore protocol."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hmsclient.genthrift.hive_metastore.ttypes import (
    AlreadyExistsException,
    FunctionType,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
    PrincipalType,
)
from hmsclient.genthrift.hive_metastore.ttypes import Function as HiveFunction

from lakemark.errors import Unavailable
from lakemark_core import storage
from lakemark_server.host import logs
from tests.integration.conftest import Client
from tests.integration.hms_objects import database, partition, path, table


def test_there_is_a_database_called_default(client: Client, warehouse: Path) -> None:
    assert client.get_all_databases() == ["default"]
    assert client.get_database("default").locationUri == f"file:{warehouse}"


def test_a_database_is_made_with_its_directory_and_keeps_its_fields(client: Client, warehouse: Path) -> None:
    client.create_database(
        database("Sales", description="money", parameters={"k": "v"}, ownerName="ann", ownerType=PrincipalType.GROUP)
    )
    found = client.get_database("SALES")
    assert (found.name, found.description, found.parameters) == ("sales", "money", {"k": "v"})
    assert (found.ownerName, found.ownerType) == ("ann", PrincipalType.GROUP)
    assert found.locationUri == f"file:{warehouse}/sales.db"
    assert (warehouse / "sales.db").is_dir()


def test_a_given_location_is_used(client: Client, tmp_path: Path) -> None:
    client.create_database(database("far", locationUri=f"file://{tmp_path}/else/where/"))
    assert client.get_database("far").locationUri == f"file:{tmp_path}/else/where"
    assert (tmp_path / "else" / "where").is_dir()


def test_errors_are_the_declared_ones(client: Client) -> None:
    client.create_database(database("a"))
    with pytest.raises(AlreadyExistsException, match="Database a already exists"):
        client.create_database(database("A"))
    with pytest.raises(InvalidObjectException, match="not legal"):
        client.create_database(database("no/slash"))
    with pytest.raises(NoSuchObjectException, match="there is no database 'none'"):
        client.get_database("none")
    with pytest.raises(NoSuchObjectException):
        client.drop_database("none", True, False)
    with pytest.raises(NoSuchObjectException):
        client.alter_database("none", database("none"))
    with pytest.raises(MetaException, match="'default' of the catalog 'hive' cannot be dropped"):
        client.drop_database("default", True, True)


def test_names_are_listed_by_pattern(client: Client) -> None:
    for name in ("sales_eu", "sales_us", "hr"):
        client.create_database(database(name))
    assert client.get_databases("sales*") == ["sales_eu", "sales_us"]
    assert client.get_databases("HR|*_us") == ["hr", "sales_us"]
    assert client.get_databases("*") == client.get_databases(".*") == ["default", "hr", "sales_eu", "sales_us"]
    assert client.get_databases("x*") == []
    assert client.get_databases("sales") == []


def test_later_clients_put_the_catalog_in_front(client: Client) -> None:
    client.create_database(database("a"))
    assert client.get_database("@hive#a").name == "a"
    assert client.get_databases("@hive#a*") == ["a"]
    assert client.get_databases("@hive#") == ["a", "default"]
    client.create_table(table("t", db="a"))
    assert client.get_all_tables("@hive#a") == ["t"]
    assert client.get_table("@hive#a", "t").dbName == "a"
    with pytest.raises(NoSuchObjectException):
        client.get_database("@other#a")
    with pytest.raises(MetaException, match="not of the form"):
        client.get_database("@hive")


def test_alter_replaces_all_but_the_name(client: Client, warehouse: Path) -> None:
    client.create_database(database("a", description="old", parameters={"x": "1", "y": "2"}))
    client.alter_database("a", database("a", description="new", parameters={"x": "3"}, ownerName="bob"))
    found = client.get_database("a")
    assert (found.description, found.parameters, found.ownerName) == ("new", {"x": "3"}, "bob")
    assert found.locationUri == f"file:{warehouse}/a.db"
    client.alter_database("a", database("b", parameters={}))  # Hive has no names to change, and nothing to say about it
    found = client.get_database("a")
    assert (found.name, found.description, found.parameters, found.ownerName) == ("a", "new", {}, None)
    assert "b" not in client.get_all_databases()


def test_only_an_empty_database_is_dropped_without_cascade(client: Client, warehouse: Path) -> None:
    client.create_database(database("a"))
    client.create_table(table("t", db="a", keys="p string"))
    client.add_partition(partition(["1"], of="t", db="a"))
    client.create_function(HiveFunction("f", "a", "x.Y", "", PrincipalType.USER, 0, FunctionType.JAVA))
    with pytest.raises(InvalidOperationException, match="not empty"):
        client.drop_database("a", True, False)
    location = path(client.get_table("a", "t").sd.location)
    assert location.is_dir()
    client.drop_database("a", True, True)
    assert client.get_all_databases() == ["default"]
    assert not location.exists()
    assert not (warehouse / "a.db").exists()
    client.create_database(database("a"))
    assert client.get_all_tables("a") == []
    assert client.get_functions("a", "*") == []


def test_without_delete_data_the_directory_stays(client: Client, warehouse: Path) -> None:
    client.create_database(database("a"))
    client.drop_database("a", False, False)
    assert (warehouse / "a.db").is_dir()


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """What was logged since the last call."""
    configured = structlog.get_config()
    logs.configure("console", "info")
    yield lambda: capsys.readouterr().err
    structlog.configure(**configured)


def test_a_drop_stands_when_files_cannot_be_deleted(
    client: Client, warehouse: Path, monkeypatch: pytest.MonkeyPatch, log: Callable[[], str]
) -> None:
    """As in Hive's service, which logs it."""

    def fails(uri: str, *_: object) -> None:
        raise Unavailable(f"{uri} cannot be deleted")

    def cannot_be_moved(source: str, *_: object) -> storage.Move:
        raise Unavailable(f"{source} cannot be moved")

    client.create_database(database("d"))
    for name in ("t", "u"):
        client.create_table(table(name, db="d", keys="p int"))
    client.add_partition(partition(["1"], db="d", of="t"))
    (warehouse / "d.db" / "u" / "file").touch()
    monkeypatch.setattr(storage, "delete_directory", fails)
    monkeypatch.setattr(storage, "begin_move", cannot_be_moved)
    assert client.drop_partition("d", "t", ["1"], True)
    client.drop_table("d", "u", True)
    assert client.get_all_tables("d") == ["t"]
    client.drop_database("d", True, True)
    assert client.get_all_databases() == ["default"]
    assert (warehouse / "d.db" / "t").is_dir()
    told = log()
    for left in ("d.db/t/p=1", "d.db/u", "d.db/t", "d.db"):
        assert f"{warehouse}/{left} cannot be deleted" in told
