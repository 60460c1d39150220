"""Names that would be found never again, or that lead out of a directory; and catalogs that nobody made."""

from __future__ import annotations

from pathlib import Path

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import Function, FunctionType, InvalidObjectException, PrincipalType
from thrift.Thrift import TException

from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_proto.v1 import admin_pb2 as a
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import events_pb2 as e
from lakemark_proto.v1 import listeners_pb2 as n
from lakemark_proto.v1 import mounts_pb2 as m
from lakemark_proto.v1 import types_pb2 as p
from lakemark_proto.v1.admin_pb2_grpc import AdminServiceStub
from lakemark_proto.v1.events_pb2_grpc import EventServiceStub
from lakemark_proto.v1.listeners_pb2_grpc import ListenerServiceStub
from lakemark_proto.v1.mounts_pb2_grpc import MountServiceStub
from lakemark_server.kv import open_store
from lakemark_server.store.keyspace import DATABASES
from tests.integration.attacks.thrift_client import Client
from tests.integration.grpc_server import running_service
from tests.integration.hms_objects import database, table
from tests.stores import store_url
from tests.wire import Wire, refused

BAD = ("a\nb", "../..", "@a#b", "a b", "a/b", "a.b", "ä", "a\0b", "a`b", "x" * 129)


def create(wire: Wire, catalog: str, name: str = "d") -> c.Database:
    return wire.catalog.CreateDatabase(c.CreateDatabaseRequest(database=c.Database(catalog=catalog, name=name)))


@pytest.mark.parametrize("name", BAD, ids=range(len(BAD)))
def test_names_that_are_not_legal_are_refused_in_words(wire: Wire, client: Client, tmp_path: Path, name: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    with refused("invalid_name", "catalog name"):
        create(wire, name)
    with refused("invalid_name", "catalog name"):
        AdminServiceStub(wire.channel).SetQuota(a.SetQuotaRequest(catalog=name, quota=a.Quota(databases=1)))
    with refused("invalid_name", "catalog name"):
        EventServiceStub(wire.channel).ListEvents(e.ListEventsRequest(catalog=name))
    with refused("invalid_name", "catalog name"):
        request = n.CreateListenerRequest(catalog=name, name="x", uri="thrift://127.0.0.1:1")
        ListenerServiceStub(wire.channel).CreateListener(request)
    with refused("invalid_name", "catalog name"):
        mount = m.CreateMountRequest(catalog=name, name="x", uri="thrift://127.0.0.1:1")
        MountServiceStub(wire.channel).CreateMount(mount)
    with refused("invalid_name", "database name"):
        create(wire, "", name)
    wire.table = p.TableName(database="default", table=name)
    with refused("invalid_name", "table name"):
        wire.create()
    for call in (
        lambda: client.create_database(database(name)),
        lambda: client.create_table(table(name)),
        lambda: client.create_table(table(name, parameters={"lakemark.type": "lake"})),
        lambda: client.create_function(Function(name, "default", "x", "", PrincipalType.USER, 0, FunctionType.JAVA)),
    ):
        with pytest.raises(TException, match=r"not legal|at most 128|@catalog#database|there is no catalog"):
            call()
    made = [path for path in sorted(tmp_path.rglob("*")) if path not in before and path.is_dir()]
    assert made == []


def test_no_client_invents_a_catalog(wire: Wire, client: Client) -> None:
    with refused("not_found", "there is no catalog 'invented'", "lakemark quota set invented"):
        create(wire, "invented")
    with refused("not_found", "there is no catalog 'invented'"):
        mount = m.CreateMountRequest(catalog="invented", name="x", uri="thrift://127.0.0.1:1")
        MountServiceStub(wire.channel).CreateMount(mount)
    with pytest.raises((InvalidObjectException, TException), match="invented"):
        client.create_database(database("@invented#d"))
    create(wire, "", "d")
    create(wire, "hive", "e")
    AdminServiceStub(wire.channel).SetQuota(a.SetQuotaRequest(catalog="Made", quota=a.Quota(databases=1)))
    assert create(wire, "made").catalog == "made"
    with refused("quota_exceeded"):
        create(wire, "made", "e")


def test_clients_make_catalogs_if_the_service_is_set_so(tmp_path: Path) -> None:
    with running_service(tmp_path, client_catalogs=True) as service:
        wire = Wire(service.grpc_address)
        assert create(wire, "invented").catalog == "invented"
        with refused("invalid_name", "catalog name"):
            create(wire, "../..")
        wire.close()


def test_catalogs_of_an_older_store_go_on(tmp_path: Path) -> None:
    with running_service(tmp_path):
        pass
    store = open_store(store_url(tmp_path))
    old = DatabaseRecord(catalog="my-cat", name="d", database_id=900, location=f"file:{tmp_path}/d")
    store.transact(lambda tx: tx.set(DATABASES.key("my-cat", "d"), old.SerializeToString()))
    store.close()
    with running_service(tmp_path) as service:
        wire = Wire(service.grpc_address)
        assert create(wire, "my-cat", "e").name == "e"
        listed = wire.catalog.ListDatabases(c.ListDatabasesRequest(catalog="my-cat"))
        assert list(listed.names) == ["d", "e"]
        wire.close()
