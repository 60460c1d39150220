"""Locations that would make the service delete, empty or move what belongs to somebody else, or to nobody here."""

from __future__ import annotations

from pathlib import Path

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import InvalidObjectException
from thrift.Thrift import TException

from lakemark_core import storage
from lakemark_core.errors import Unavailable
from lakemark_proto.v1 import admin_pb2 as a
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import types_pb2 as p
from lakemark_proto.v1.admin_pb2_grpc import AdminServiceStub
from lakemark_server.process import Service
from lakemark_server.verify import verify
from tests.integration.attacks.thrift_client import Client
from tests.integration.hms_objects import database, partition, table
from tests.integration.hms_raw import Raw
from tests.wire import Wire, refused

PURGED = {"EXTERNAL": "TRUE", "external.table.purge": "true"}
EXTERNAL = {"EXTERNAL": "TRUE"}


@pytest.fixture
def victim(client: Client, tmp_path: Path) -> Path:
    """A file of the managed table ``v.victim``."""
    client.create_database(database("v"))
    client.create_table(table("victim", db="v"))
    file = tmp_path / "warehouse" / "v.db" / "victim" / "file"
    file.write_text("precious")
    return file


@pytest.fixture
def lake(wire: Wire, victim: Path) -> Path:
    """The directory of the lake table ``v.lake``, with a file."""
    wire.table = p.TableName(database="v", table="lake")
    directory = Path(wire.create().location.removeprefix("file:"))
    (directory / "file").write_text("precious")
    return directory


def truncate(raw: Raw, db: str, name: str) -> str:
    """What the refusal says."""
    return str(raw.call("truncate_table", dbName=db, tableName=name).o1.message)


def spellings(place: Path) -> list[str]:
    """Names of one directory: with dots and doubled slashes, by a link and with an escape."""
    link = place.parent.parent / "link"
    if not link.exists():
        link.symlink_to(place.parent)
    escaped = f"{place.parent}/%{ord(place.name[0]):x}{place.name[1:]}"
    return [
        str(place),
        f"file://{place}/",
        f"{place}/../{place.name}",
        f"{link}/{place.name}",
        escaped,
        f"{place}/inside",
    ]


@pytest.mark.parametrize("parameters", [{}, PURGED], ids=["managed", "purged"])
def test_no_table_owns_the_directory_of_another(client: Client, victim: Path, parameters: dict[str, str]) -> None:
    for location in [*spellings(victim.parent), str(victim.parent.parent)]:
        with pytest.raises(InvalidObjectException, match="cannot have the location"):
            client.create_table(table("robber", db="default", location=location, parameters=parameters))
    client.create_table(table("robber", location=str(victim.parent.parent.parent / "free")))
    moved = client.get_table("default", "robber")
    moved.sd.location = str(victim.parent)
    with pytest.raises(TException, match=r"table v\.victim has its directory there"):
        client.alter_table("default", "robber", moved)
    assert victim.exists()


def test_nothing_is_at_inside_or_around_a_lake_table(client: Client, wire: Wire, lake: Path) -> None:
    for parameters in ({}, PURGED, EXTERNAL):
        for location in [*spellings(lake), str(lake.parent)]:
            with pytest.raises(InvalidObjectException, match="cannot have the location"):
                client.create_table(table("robber", location=location, parameters=parameters))
    wire.table = p.TableName(database="default", table="other")
    for location in [*spellings(lake), str(lake.parent)]:
        with refused("location_taken", "choose another directory"):
            wire.create(location=location)


def test_a_partition_at_a_table_of_another_deletes_nothing(client: Client, raw: Raw, victim: Path, lake: Path) -> None:
    client.create_table(table("robber", keys="p string"))
    for value, location in enumerate(spellings(victim.parent)):
        client.add_partition(partition([str(value)], of="robber", location=location))
    for location, owner in ((lake, r"lake table v\.lake"), (lake.parent, "database v")):
        with pytest.raises(InvalidObjectException, match=f"{owner} has its directory there"):
            client.add_partition(partition(["other"], of="robber", location=str(location)))
    assert "cannot be truncated" in truncate(raw, "default", "robber")
    assert client.drop_partition("default", "robber", ["0"], True)
    client.drop_table("default", "robber", True)
    assert victim.exists()


def test_no_database_takes_along_what_lies_in_its_directory(
    client: Client, wire: Wire, victim: Path, lake: Path, tmp_path: Path
) -> None:
    for at, location in enumerate((tmp_path, tmp_path / "warehouse")):
        client.create_database(database(f"robber{at}", locationUri=str(location)))
        client.drop_database(f"robber{at}", True, True)
    with pytest.raises(InvalidObjectException, match=r"lake table v\.lake has its directory there"):
        client.create_database(database("robber", locationUri=str(lake)))
    with refused("location_taken", "has the directory around it"):
        new = c.Database(name="robber", location=f"file:{lake}/1")
        wire.catalog.CreateDatabase(c.CreateDatabaseRequest(database=new))
    assert victim.exists()
    assert (lake / "file").exists()


def test_a_rename_moves_no_directory_of_another(client: Client, victim: Path) -> None:
    with pytest.raises(InvalidObjectException, match="cannot have the location"):
        client.create_table(table("victim", location=str(victim.parent)))
    client.create_table(table("reader", location=str(victim.parent), parameters=EXTERNAL))
    for name, db in (("reader", "default"), ("victim", "v")):
        renamed = client.get_table(db, name)
        renamed.tableName = "other"
        if db == "v":
            with pytest.raises(TException, match=r"cannot be moved: table default\.other has its directory there"):
                client.alter_table(db, name, renamed)
        else:
            client.alter_table(db, name, renamed)
    assert victim.exists()


def test_what_a_reader_has_outlives_the_owner(client: Client, raw: Raw, victim: Path) -> None:
    client.create_table(table("reader", location=str(victim.parent), parameters=EXTERNAL))
    assert "cannot be truncated: table default.reader has its directory there" in truncate(raw, "v", "victim")
    client.drop_table("v", "victim", True)
    client.drop_database("v", True, True)
    assert victim.exists()
    client.drop_table("default", "reader", True)
    assert victim.exists()


def test_databases_of_two_catalogs_share_no_directory(client: Client, wire: Wire, victim: Path) -> None:
    AdminServiceStub(wire.channel).SetQuota(a.SetQuotaRequest(catalog="tenant", quota=a.Quota(databases=9)))
    new = c.Database(catalog="tenant", name="v")
    made = wire.catalog.CreateDatabase(c.CreateDatabaseRequest(database=new))
    assert not str(victim).startswith(made.location.removeprefix("file:"))
    wire.catalog.DropDatabase(c.DropDatabaseRequest(catalog="tenant", name="v"))
    assert victim.exists()


def test_data_elsewhere_are_read_and_never_deleted(client: Client, raw: Raw, tmp_path: Path) -> None:
    precious = tmp_path / "data" / "file"
    precious.parent.mkdir()
    precious.write_text("precious")
    for at, parameters in enumerate(({}, PURGED)):
        client.create_table(table(f"t{at}", location=str(precious.parent), parameters=parameters))
        assert "its data are not deleted" in truncate(raw, "default", f"t{at}")
        client.drop_table("default", f"t{at}", True)
    client.create_database(database("d", locationUri=str(precious.parent)))
    client.create_table(table("t", db="d"))
    client.drop_database("d", True, True)
    assert precious.exists()


def test_what_was_dropped_is_not_deleted_when_somebody_else_lives_there(
    service: Service, client: Client, wire: Wire, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drop that left its files holds the directory until they are gone."""

    def fails(uri: str, *_: object) -> None:
        raise Unavailable(f"{uri}: not now")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "delete_directory", fails)
        with refused("files_left", "the table is dropped"):
            wire.catalog.DropTable(c.DropTableRequest(name=wire.table, purge=True, now=True))
    for location in (lake, lake / "below"):
        with pytest.raises(InvalidObjectException, match="is still being deleted"):
            client.create_table(table("next", location=str(location)))
    assert verify(service.store) == []
