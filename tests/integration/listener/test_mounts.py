"""Databases of an outside Metastore, mounted here: they are read through, and never written."""

from __future__ import annotations

import pytest

from lakemark import Client
from lakemark.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from lakemark_hms.outside import Metastore, OutsideRefused
from lakemark_thrift.ttypes import Database, GetTablesRequest
from tests.integration.listener import objects
from tests.integration.listener.conftest import Outside, until
from tests.integration.listener.objects import add_partitions, create, get, table


@pytest.fixture
def mounted(client: Client, here: Metastore, there: Metastore, outside: Outside) -> str:
    """The database ``sales`` there is ``legacy`` here."""
    there.call("create_database", database=objects.database("sales", parameters={"p": "1"}))
    create(there, table("days", keys="day string, hour int", parameters={"k": "v"}))
    add_partitions(there, "days", [("a", "1"), ("a", "2"), ("b", "1")])
    there.call("create_function", func=objects.function("f"))
    here.call("create_database", database=objects.database("own"))
    client.mounts.create("legacy", outside.uri, "sales", cache_s=0)
    until(lambda: "legacy" in here.call("get_all_databases"))
    return "legacy"


def test_reads_go_through(client: Client, here: Metastore, there: Metastore, mounted: str) -> None:
    assert here.call("get_all_databases") == ["default", "own", "legacy"]
    assert here.call("get_databases", pattern="leg*") == ["legacy"]
    assert here.call("get_database", name="legacy").name == "legacy"
    assert here.call("get_database", name="@hive#legacy").parameters == {"p": "1"}
    assert here.call("get_all_tables", db_name="legacy") == ["days"]
    ours, theirs = get(here, "legacy", "days"), get(there, "sales", "days")
    assert (ours.dbName, ours.tableName, ours.sd, ours.parameters) == ("legacy", "days", theirs.sd, theirs.parameters)
    request = GetTablesRequest(dbName="legacy", tblNames=["days", "none"])
    assert [one.dbName for one in here.call("get_table_objects_by_name_req", req=request).tables] == ["legacy"]
    place = {"db_name": "legacy", "tbl_name": "days"}
    assert [one.values for one in here.call("get_partitions", **place, max_parts=-1)] == [
        ["a", "1"],
        ["a", "2"],
        ["b", "1"],
    ]
    (one,) = here.call("get_partitions_by_filter", **place, filter='day = "b"', max_parts=-1)
    assert (one.dbName, one.values) == ("legacy", ["b", "1"])
    assert len(here.call("get_partition_names", **place, max_parts=-1)) == 3
    assert here.call("get_functions", dbName="legacy", pattern="*") == ["f"]
    assert here.call("get_function", dbName="legacy", funcName="f").dbName == "legacy"
    metas = here.call("get_table_meta", db_patterns="*", tbl_patterns="*", tbl_types=[])
    assert [(one.dbName, one.tableName) for one in metas] == [("legacy", "days")]
    assert client.databases.list() == ["default", "legacy", "own"]
    assert [(one.name, one.kind) for one in client.tables.list("legacy")] == [("days", "warehouse")]


def test_another_catalog_may_have_the_name_for_itself(client: Client, here: Metastore, mounted: str) -> None:
    client.quotas.set("tenant", databases=5)
    here.call("create_database", database=objects.database(mounted, catalogName="tenant"))
    assert here.call("get_all_tables", db_name=f"@tenant#{mounted}") == []
    assert here.call("get_database", name=f"@tenant#{mounted}").catalogName == "tenant"
    assert here.call("get_all_tables", db_name=mounted) == ["days"]


def test_writes_are_refused_with_the_reason(here: Metastore, there: Metastore, mounted: str) -> None:
    days = get(here, "legacy", "days")
    writes = {
        "create_table": {"tbl": table("new", db="legacy")},
        "alter_table": {"dbname": "legacy", "tbl_name": "days", "new_tbl": days},
        "drop_table": {"dbname": "legacy", "name": "days", "deleteData": True},
        "drop_database": {"name": "legacy", "deleteData": True, "cascade": True},
        "alter_database": {"dbname": "legacy", "db": Database(name="legacy")},
        "drop_partition": {"db_name": "legacy", "tbl_name": "days", "part_vals": ["a", "1"], "deleteData": True},
        "create_function": {"func": objects.function("g", db="legacy")},
        "drop_function": {"dbName": "legacy", "funcName": "f"},
    }
    for method, args in writes.items():
        with pytest.raises(OutsideRefused, match="mounted here to be read: change it there"):
            here.call(method, **args)
    assert there.call("get_all_tables", db_name="sales") == ["days"]
    assert len(there.call("get_partition_names", db_name="sales", tbl_name="days", max_parts=-1)) == 3


def test_errors_say_which_side_failed(client: Client, here: Metastore, outside: Outside, mounted: str) -> None:
    with pytest.raises(OutsideRefused, match=f"the Metastore at {outside.uri} refused get_table_req") as refused:
        here.call("get_table_req", req=objects.GetTableRequest(dbName="legacy", tblName="none"))
    assert refused.value.details["error"] == "NoSuchObjectException"
    assert here.find("get_table", dbname="own", tbl_name="none") is None
    outside.stop()
    with pytest.raises(OutsideRefused, match=f"the Metastore at {outside.uri} does not answer"):
        get(here, "legacy", "days")
    with pytest.raises(Unavailable, match="does not answer"):
        client.tables.list("legacy")
    create(here, table("mine", db="own"))
    assert here.call("get_all_databases") == ["default", "own", "legacy"]


def test_answers_are_kept_for_a_while(client: Client, here: Metastore, there: Metastore, outside: Outside) -> None:
    there.call("create_database", database=objects.database("sales"))
    client.mounts.create("sales", outside.uri, cache_s=1_000)
    until(lambda: "sales" in here.call("get_all_databases"))
    assert here.call("get_all_tables", db_name="sales") == []
    create(there, table("t"))
    assert here.call("get_all_tables", db_name="sales") == []
    outside.stop()
    assert here.call("get_all_tables", db_name="sales") == []


def test_names_are_taken_once(client: Client, outside: Outside) -> None:
    client.databases.create("sales")
    with pytest.raises(AlreadyExists, match="there is a database 'sales' here"):
        client.mounts.create("sales", outside.uri)
    made = client.mounts.create("legacy", outside.uri, "sales")
    with pytest.raises(AlreadyExists, match="mounted under the name"):
        client.databases.create("legacy")
    with pytest.raises(AlreadyExists, match="already"):
        client.mounts.create("legacy", outside.uri)
    with pytest.raises(InvalidArgument, match="address"):
        client.mounts.create("other", "nowhere")
    assert client.mounts.list() == [client.mounts.get("legacy")] == [made]
    assert client.mounts.drop("legacy")
    with pytest.raises(NotFound):
        client.mounts.get("legacy")
    client.databases.create("legacy")
