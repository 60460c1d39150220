"""Tables as clients of Hive 4 ask for them: defaults, nulls, projections, materialized views, compare-and-swap."""

import threading
from pathlib import Path
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    EnvironmentContext,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
)

from lakemark_thrift import ttypes
from tests.integration.conftest import Client, Connect
from tests.integration.hms_objects import columns, database, path, placed, table
from tests.integration.hms_raw import Raw


def plain(name: str, **fields: Any) -> ttypes.Table:
    """A table with nothing but what no metastore goes without."""
    storage = ttypes.StorageDescriptor(cols=[ttypes.FieldSchema("a", "int", None)], serdeInfo=ttypes.SerDeInfo())
    return ttypes.Table(tableName=name, dbName=fields.pop("dbName", "default"), sd=storage, **fields)


def view(name: str, *, rewrites: bool, of: str = "t") -> ttypes.Table:
    metadata = ttypes.CreationMetadata(catName="hive", dbName="default", tblName=name, tablesUsed={f"default.{of}"})
    return plain(name, tableType="MATERIALIZED_VIEW", rewriteEnabled=rewrites, creationMetadata=metadata)


def stored(raw: Raw, name: str, db: str = "default") -> ttypes.Table:
    found = raw.call("get_table", dbname=db, tbl_name=name).success
    assert isinstance(found, ttypes.Table)
    return found


# -- defaults and what is refused -------------------------------------------------------------------------------------


def test_what_a_client_leaves_out_is_there(raw: Raw, warehouse: Path) -> None:
    assert raw.call("create_table", tbl=plain("t")).o3 is None
    found = stored(raw, "t")
    assert (found.tableType, found.ownerType, found.owner) == ("MANAGED_TABLE", ttypes.PrincipalType.USER, None)
    assert (found.catName, found.partitionKeys, list(found.parameters or {})) == ("hive", [], ["transient_lastDdlTime"])
    assert found.createTime
    assert found.id
    sd = found.sd
    assert sd is not None
    assert sd.location == f"file:{warehouse}/t"
    assert (sd.bucketCols, sd.sortCols, sd.parameters) == ([], [], {})
    assert sd.serdeInfo == ttypes.SerDeInfo(parameters={})
    assert sd.skewedInfo == ttypes.SkewedInfo([], [], {})


def test_a_table_keeps_its_id_whatever_clients_send(raw: Raw, client: Client) -> None:
    raw.call("create_table", tbl=plain("t", id=17))
    raw.call("create_table", tbl=plain("u"))
    first = stored(raw, "t").id
    assert first not in (17, stored(raw, "u").id)
    new = placed(client, table("t", cols="a bigint"))
    client.alter_table("default", "t", new)  # a client of Hive 2, which knows of no id
    assert stored(raw, "t").id == first
    new.tableName = "v"
    client.alter_table("default", "t", new)
    assert stored(raw, "v").id == first


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda new: setattr(new, "tableName", None), "name of the table is null"),
        (lambda new: setattr(new, "dbName", None), "name of the database is null"),
        (lambda new: setattr(new, "sd", None), "no storage descriptor"),
        (lambda new: setattr(new.sd, "cols", None), "no column list"),
        (lambda new: setattr(new.sd, "serdeInfo", None), "no SerDe"),
        (lambda new: setattr(new.sd.cols[0], "type", None), "'a' of table 't' has no type"),
    ],
    ids=["name", "database", "storage", "columns", "serde", "type"],
)
def test_what_is_null_is_named(client: Client, change: Any, said: str) -> None:
    client.create_table(table("t"))
    new = placed(client, table("t", cols="a int"))
    change(new)
    with pytest.raises(MetaException, match=said):
        client.create_table(new)
    with pytest.raises(MetaException, match=said):
        client.alter_table("default", "t", new)
    assert [column.name for column in client.get_table("default", "t").sd.cols] == ["a", "b"]


def test_a_definition_that_is_null_is_asked_for(raw: Raw, client: Client) -> None:
    client.create_table(table("t"))
    assert "needs a Table" in raw.call("create_table").o3.message
    assert "needs a Table" in raw.call("alter_table", dbname="default", tbl_name="t").o2.message
    assert "needs a Database" in raw.call("create_database").o3.message
    assert "needs a Function" in raw.call("create_function").o3.message
    assert "needs a Catalog" in raw.call("create_catalog", catalog=ttypes.CreateCatalogRequest()).o3.message


def test_an_altered_table_has_a_location(client: Client) -> None:
    client.create_table(table("t"))
    with pytest.raises(MetaException, match="no location"):
        client.alter_table("default", "t", table("t"))
    client.alter_table("default", "t", table("u"))  # a rename may leave it out
    assert path(client.get_table("default", "u").sd.location).name == "u"


def test_types_that_hive_does_not_have_are_refused(client: Client, raw: Raw) -> None:
    with pytest.raises(InvalidObjectException, match="'a' of table 't' has the type 'xyz'"):
        client.create_table(table("t", cols="a xyz"))
    with pytest.raises(InvalidObjectException, match="'p' of table 't' has the type 'json'"):
        client.create_table(table("t", keys="p json"))
    client.create_table(table("t", cols="a decimal(10,2), b struct<x:int>, c timestamp with local time zone"))
    with pytest.raises(InvalidOperationException, match="has the type 'xyz'"):
        client.alter_table("default", "t", placed(client, table("t", cols="a xyz")))


def test_a_table_can_become_a_view_and_its_files_stay(client: Client) -> None:
    client.create_table(table("t"))
    place = path(client.get_table("default", "t").sd.location)
    (place / "file").write_text("x")
    client.alter_table("default", "t", placed(client, table("t", kind="VIRTUAL_VIEW")))
    assert client.get_tables_by_type("default", "*", "VIRTUAL_VIEW") == ["t"]
    client.drop_table("default", "t", True)
    assert (place / "file").exists()


def test_unknown_databases_have_no_tables_and_no_functions(client: Client) -> None:
    assert client.get_all_tables("none") == []
    assert client.get_tables("none", "*") == []
    assert client.get_tables_by_type("none", "*", "VIRTUAL_VIEW") == []
    assert client.get_functions("none", "*") == []
    for call in (client.get_all_tables, client.get_database, lambda name: client.drop_database(name, True, True)):
        with pytest.raises(MetaException, match="name of the database is null"):
            call(None)


# -- projections and patterns -----------------------------------------------------------------------------------------


def ask(raw: Raw, names: list[str] | None = None, **fields: Any) -> Any:
    """Asks for tables with these fields only."""
    spec = None if names is None else ttypes.GetProjectionsSpec(fieldList=names)
    request = ttypes.GetTablesRequest(**({"dbName": "default", "projectionSpec": spec} | fields))
    return raw.call("get_table_objects_by_name_req", req=request)


def test_a_projection_has_the_fields_that_were_asked_for(raw: Raw, client: Client) -> None:
    client.create_table(table("t", parameters={"k": "v"}))
    (found,) = ask(raw, tblNames=["t"], names=["owner", "sd.location", "sd.serdeInfo.serializationLib"]).success.tables
    whole = stored(raw, "t")
    assert whole.sd is not None
    assert whole.sd.serdeInfo is not None
    lib = ttypes.SerDeInfo(serializationLib=whole.sd.serdeInfo.serializationLib)
    storage = ttypes.StorageDescriptor(location=whole.sd.location, serdeInfo=lib)
    assert found == ttypes.Table(owner="tester", sd=storage, createTime=0, lastAccessTime=0, retention=0)
    (found,) = ask(raw, tblNames=["t"], names=["dbName", "createTime"]).success.tables
    assert (found.dbName, found.catName, found.createTime, found.sd) == ("default", "hive", whole.createTime, None)
    for names in ([], ["owner", "parameters"]):  # as in Hive, who asks for a list gets whole tables
        assert ask(raw, tblNames=["t"], names=names).success.tables == [whole]
    assert "no fields nonsense" in ask(raw, tblNames=["t"], names=["nonsense"]).o1.message
    spec = ttypes.GetProjectionsSpec(excludeParamKeyPattern="k%")
    assert "by patterns" in ask(raw, tblNames=["t"], projectionSpec=spec).o2.message


def test_tables_by_pattern_of_names_and_of_databases(raw: Raw, client: Client) -> None:
    client.create_database(database("d"))
    for db, name in (("default", "ab"), ("default", "ac"), ("d", "ad")):
        client.create_table(table(name, db=db))

    def names(**fields: Any) -> list[str]:
        return [one.tableName for one in ask(raw, names=["tableName"], **fields).success.tables]

    assert names(tablesPattern="a*") == ["ab", "ac"]
    assert names(tablesPattern=".*", tblNames=["AC", "none"]) == ["ac"]
    assert names(dbName="*", tablesPattern="a*") == ["ad", "ab", "ac"]
    assert names(dbName="*", tablesPattern="x*") == []
    assert "no database 'none'" in ask(raw, dbName="none", tablesPattern="*").o3.message
    assert "list of table names is null" in ask(raw).o2.message


# -- materialized views -----------------------------------------------------------------------------------------------


def test_materialized_views_for_rewriting(raw: Raw, client: Client) -> None:
    client.create_database(database("d"))
    for new in (plain("t"), view("mv", rewrites=True), view("off", rewrites=False)):
        raw.call("create_table", tbl=new)
    assert raw.call("get_materialized_views_for_rewriting", db_name="default").success == ["mv"]
    assert raw.call("get_materialized_views_for_rewriting", db_name="d").success == []
    assert raw.call("get_materialized_views_for_rewriting", db_name="none").success == []
    found = raw.call("get_all_materialized_view_objects_for_rewriting").success
    assert found == [stored(raw, "mv")]


def test_what_a_view_was_made_of_survives_and_can_be_replaced(raw: Raw, client: Client) -> None:
    raw.call("create_table", tbl=view("mv", rewrites=True))
    assert stored(raw, "mv").creationMetadata.tablesUsed == {"default.t"}  # type: ignore[union-attr]
    changed = client.get_table("default", "mv")  # Hive 2 knows no such metadata
    changed.parameters["k"] = "v"
    client.alter_table("default", "mv", changed)
    kept = stored(raw, "mv")
    assert kept.parameters is not None
    assert kept.parameters["k"] == "v"
    assert kept.creationMetadata is not None
    assert kept.creationMetadata.tablesUsed == {"default.t"}
    new = ttypes.CreationMetadata(
        catName="hive", dbName="default", tblName="mv", tablesUsed={"default.t", "default.u"}, validTxnList="7"
    )
    raw.call("update_creation_metadata", catName="hive", dbname="default", tbl_name="MV", creation_metadata=new)
    found = stored(raw, "mv").creationMetadata
    assert found is not None
    assert (found.tablesUsed, found.validTxnList) == ({"default.t", "default.u"}, "7")
    assert found.materializationTime is not None
    assert found.materializationTime > 1_700_000_000_000
    raw.call("create_table", tbl=plain("t"))
    refused = raw.call(
        "update_creation_metadata", catName="hive", dbname="default", tbl_name="t", creation_metadata=new
    )
    assert "is not a materialized view" in refused.o2.message


# -- compare-and-swap -------------------------------------------------------------------------------------------------

WRITERS, APPENDS = 6, 10


def append(client: Client, item: str) -> int:
    """Adds an item as Iceberg's clients add a snapshot. Returns how often another one was faster."""
    lost = 0
    while True:
        now = client.get_table("default", "t")
        seen = now.parameters["metadata_location"]
        now.parameters["metadata_location"] = f"{seen},{item}"
        expected = {"expected_parameter_key": "metadata_location", "expected_parameter_value": seen}
        try:
            client.alter_table_with_environment_context("default", "t", now, EnvironmentContext(expected))
        except MetaException as error:
            assert "The table has been modified" in error.message  # noqa: PT017 - every other error fails the test
            lost += 1
            continue
        return lost


def test_concurrent_appends_lose_nothing(connect: Connect) -> None:
    connect().create_table(table("t", parameters={"metadata_location": "start"}))
    begun, failures, lost = threading.Barrier(WRITERS), list[BaseException](), list[int]()

    def write(writer: int, client: Client) -> None:
        try:
            begun.wait()
            lost.extend(append(client, f"{writer}-{number}") for number in range(APPENDS))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(writer, connect())) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    items = connect().get_table("default", "t").parameters["metadata_location"].split(",")
    wanted = {f"{writer}-{number}" for writer in range(WRITERS) for number in range(APPENDS)}
    assert (len(items), set(items)) == (1 + len(wanted), {"start"} | wanted)
    assert len(lost) == len(wanted)


def test_swaps_change_columns_together_with_what_they_expect(client: Client) -> None:
    client.create_table(table("t", cols="a int", parameters={"at": "1"}))
    new = placed(client, table("t", cols="a int, b int", parameters={"at": "2"}))
    expected = {"expected_parameter_key": "at", "expected_parameter_value": "0"}
    with pytest.raises(MetaException, match="modified"):
        client.alter_table_with_environment_context("default", "t", new, EnvironmentContext(expected))
    assert client.get_table("default", "t").sd.cols == columns("a int")


# -- a table that is not created yet ----------------------------------------------------------------------------------


def test_a_table_is_not_changed_on_its_way_to_be_created(raw: Raw, client: Client) -> None:
    """HiveServer2 4 asks before each CREATE TABLE AS SELECT."""
    new = plain("t", dbName="@hive#default", parameters={"k": "v"}, tableType="EXTERNAL_TABLE")
    asked = ttypes.CreateTableRequest(table=new)
    made = raw.call("translate_table_dryrun", request=asked).success
    assert (made.catName, made.parameters, made.tableType) == ("hive", {"k": "v"}, "EXTERNAL_TABLE")
    made.catName = None
    assert made == new
    assert client.get_all_tables("default") == []
