"""Tables and views through the Metastore protocol."""

from pathlib import Path

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    AlreadyExistsException,
    EnvironmentContext,
    GetTableRequest,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
    ShowCompactRequest,
    UnknownDBException,
    UnknownTableException,
)
from thrift.Thrift import TApplicationException

from lakemark_hms.wire.codec import encode_struct
from lakemark_hms.wire.cut import STRING, STRUCT, cut, patch
from lakemark_hms.wire.splice import string_value, struct, struct_field, value_field
from lakemark_thrift import ttypes
from lakemark_thrift.services import METHODS
from tests.integration.conftest import Client
from tests.integration.hms_objects import columns, database, partition, path, placed, table
from tests.integration.hms_raw import Raw


def encode_names(database_name: str, table_name: str) -> bytes:
    """The first two arguments of a method, without the struct's end."""
    names = (value_field(STRING, 1, string_value(database_name)), value_field(STRING, 2, string_value(table_name)))
    return b"".join(struct(*names))[:-1]


def test_a_managed_table_gets_its_place_and_its_times(client: Client, warehouse: Path) -> None:
    client.create_database(database("d"))
    client.create_table(table("Trips", db="D", parameters={"comment": "all trips"}))
    found = client.get_table("d", "TRIPS")
    assert (found.tableName, found.dbName, found.owner, found.tableType) == ("trips", "d", "tester", "MANAGED_TABLE")
    assert found.sd.location == f"file:{warehouse}/d.db/trips"
    assert path(found.sd.location).is_dir()
    assert found.createTime > 1_700_000_000
    assert found.parameters["transient_lastDdlTime"] == str(found.createTime)
    assert found.parameters["comment"] == "all trips"
    assert [(c.name, c.type) for c in found.sd.cols] == [("a", "int"), ("b", "string")]
    assert client.get_table_req(GetTableRequest("d", "trips")).table == found


def test_the_external_parameter_decides_on_the_type(client: Client, tmp_path: Path) -> None:
    client.create_table(table("t", parameters={"EXTERNAL": "TRUE"}, location=f"{tmp_path}/mine"))
    found = client.get_table("default", "t")
    assert found.tableType == "EXTERNAL_TABLE"
    assert found.sd.location == f"file:{tmp_path}/mine"
    assert (tmp_path / "mine").is_dir()
    client.create_table(table("u", kind="EXTERNAL_TABLE"))
    assert client.get_table("default", "u").tableType == "MANAGED_TABLE"


@pytest.mark.parametrize(
    ("parameters", "delete", "above", "stays"),
    [
        ({}, True, "warehouse", False),
        ({}, False, "warehouse", True),
        ({}, True, "elsewhere", True),
        ({"EXTERNAL": "TRUE"}, True, "warehouse", True),
        ({"EXTERNAL": "TRUE", "external.table.purge": "true"}, True, "warehouse", False),
        ({"EXTERNAL": "TRUE", "external.table.purge": "true"}, True, "elsewhere", True),
    ],
    ids=["managed", "managed-kept", "managed-elsewhere", "external", "external-purged", "purged-elsewhere"],
)
def test_dropping_deletes_the_data_that_the_table_owns(
    client: Client, parameters: dict[str, str], delete: bool, above: str, stays: bool, tmp_path: Path
) -> None:
    place = tmp_path / above
    client.create_table(table("t", parameters=parameters, keys="p string", location=f"{place}/data"))
    client.add_partition(partition(["1"], of="t"))
    client.add_partition(partition(["2"], of="t", location=f"{place}/outside"))
    (place / "data" / "p=1" / "file").write_text("x")
    client.drop_table("default", "t", delete)
    assert (place / "data").exists() is stays
    assert (place / "outside").exists() is stays
    with pytest.raises(NoSuchObjectException):
        client.get_table("default", "t")


@pytest.mark.parametrize("parameters", [{}, {"EXTERNAL": "TRUE"}], ids=["managed", "external"])
def test_a_table_has_neither_the_warehouse_nor_what_is_around_it(
    client: Client, warehouse: Path, parameters: dict[str, str]
) -> None:
    for place in (warehouse, warehouse.parent, f"{warehouse}/../{warehouse.name}"):
        with pytest.raises(InvalidObjectException, match="lies there, which is kept for the service"):
            client.create_table(table("t", location=str(place), parameters=parameters))
    for place in ("/", "hdfs://names", "s3a://bucket/"):
        with pytest.raises(InvalidObjectException, match="t location must not be root path"):
            client.create_table(table("t", location=str(place), parameters=parameters))


def test_errors_are_the_declared_ones(client: Client) -> None:
    client.create_table(table("t"))
    with pytest.raises(AlreadyExistsException, match=r"Table default\.t already exists"):
        client.create_table(table("T"))
    with pytest.raises(InvalidObjectException, match="nowhere"):
        client.create_table(table("t", db="nowhere"))
    with pytest.raises(InvalidObjectException, match="not legal"):
        client.create_table(table("no-dash"))
    with pytest.raises(InvalidObjectException, match="'a' twice"):
        client.create_table(table("v", cols="a int, A string"))
    with pytest.raises(InvalidObjectException, match="relative"):
        client.create_table(table("v", location="here/there"))
    with pytest.raises(NoSuchObjectException, match=r"default\.none table not found"):
        client.get_table("default", "none")
    with pytest.raises(NoSuchObjectException):
        client.get_table("nowhere", "t")
    with pytest.raises(NoSuchObjectException):
        client.drop_table("default", "none", True)
    with pytest.raises(InvalidOperationException, match="none"):
        client.alter_table("default", "none", table("none"))
    with pytest.raises(UnknownTableException):
        client.get_fields("default", "none")
    with pytest.raises(UnknownDBException):
        client.get_schema("nowhere", "t")
    with pytest.raises(TApplicationException, match="the method show_compact is not served here"):
        client.show_compact(ShowCompactRequest())
    assert client.get_all_tables("default") == ["t"]


def test_a_table_that_cannot_be_made_leaves_no_directory(client: Client, warehouse: Path) -> None:
    with pytest.raises(InvalidObjectException):
        client.create_table(table("x y"))
    assert list(warehouse.iterdir()) == []


def test_tables_are_listed_by_pattern_type_and_name(client: Client) -> None:
    for name in ("flights", "flows", "carriers"):
        client.create_table(table(name))
    view = table("v_flights", kind="VIRTUAL_VIEW")
    view.viewOriginalText = view.viewExpandedText = "SELECT 1"
    client.create_table(view)
    assert client.get_all_tables("default") == ["carriers", "flights", "flows", "v_flights"]
    assert client.get_tables("default", "fl*") == ["flights", "flows"]
    assert client.get_tables("default", "FL?WS|car*") == ["carriers"]
    assert client.get_tables_by_type("default", "*", "VIRTUAL_VIEW") == ["v_flights"]
    assert client.get_tables_by_type("default", "*flights", "MANAGED_TABLE") == ["flights"]
    found = client.get_table_objects_by_name("default", ["flows", "none", "flights"])
    assert [one.tableName for one in found] == ["flows", "flights"]
    meta = client.get_table_meta("*", "*flights", ["VIRTUAL_VIEW", "MANAGED_TABLE"])
    assert [(one.dbName, one.tableName, one.tableType) for one in meta] == [
        ("default", "flights", "MANAGED_TABLE"),
        ("default", "v_flights", "VIRTUAL_VIEW"),
    ]


def test_columns_with_and_without_partition_columns(client: Client) -> None:
    client.create_table(table("t", keys="p date"))
    assert [c.name for c in client.get_fields("default", "t")] == ["a", "b"]
    assert [c.name for c in client.get_schema("default", "t")] == ["a", "b", "p"]


def test_alter_changes_columns_and_parameters_and_keeps_what_is_not_its_own(client: Client) -> None:
    client.create_table(table("t"))
    before = client.get_table("default", "t")
    changed = table("t", cols="a bigint, b string, c double", parameters={"k": "v"})
    changed.createTime = 17
    client.alter_table("default", "t", placed(client, changed))
    after = client.get_table("default", "t")
    assert [c.type for c in after.sd.cols] == ["bigint", "string", "double"]
    assert after.createTime == before.createTime
    assert after.sd.location == before.sd.location
    assert after.parameters["k"] == "v"
    assert int(after.parameters["transient_lastDdlTime"]) >= before.createTime


def test_partition_columns_cannot_be_altered(client: Client) -> None:
    client.create_table(table("t", keys="p string"))
    with pytest.raises(InvalidOperationException, match="partition keys can not be changed"):
        client.alter_table("default", "t", placed(client, table("t", keys="q string")))
    with pytest.raises(InvalidOperationException, match="partition keys can not be changed"):
        client.alter_table("default", "t", table("t", kind="VIRTUAL_VIEW"))


def test_renaming_a_managed_table_moves_its_directory_and_its_partitions(client: Client, tmp_path: Path) -> None:
    client.create_database(database("d"))
    client.create_table(table("old", keys="p string"))
    client.add_partition(partition(["1"], of="old"))
    client.add_partition(partition(["2"], of="old", location=f"{tmp_path}/outside"))
    before = client.get_table("default", "old")
    (path(before.sd.location) / "p=1" / "file").write_text("x")
    renamed = client.get_table("default", "old")
    renamed.tableName, renamed.dbName = "New", "d"
    client.alter_table("default", "old", renamed)
    after = client.get_table("d", "new")
    assert after.sd.location == client.get_database("d").locationUri + "/new"
    assert not path(before.sd.location).exists()
    one, two = client.get_partitions("d", "new", -1)
    assert (one.dbName, one.tableName, one.sd.location) == ("d", "new", after.sd.location + "/p=1")
    assert (path(one.sd.location) / "file").read_text() == "x"
    assert two.sd.location == f"file:{tmp_path}/outside"
    assert client.get_all_tables("default") == []


def test_renaming_leaves_a_directory_that_was_chosen(client: Client, tmp_path: Path) -> None:
    client.create_table(table("old", location=f"{tmp_path}/chosen"))
    renamed = client.get_table("default", "old")
    renamed.tableName = "new"
    client.alter_table("default", "old", renamed)
    assert client.get_table("default", "new").sd.location == f"file:{tmp_path}/chosen"
    assert (tmp_path / "chosen").is_dir()


def test_a_rename_to_a_taken_name_or_directory_changes_nothing(client: Client, warehouse: Path) -> None:
    client.create_table(table("a"))
    client.create_table(table("b"))
    renamed = client.get_table("default", "a")
    renamed.tableName = "b"
    with pytest.raises(InvalidOperationException, match="already exists"):
        client.alter_table("default", "a", renamed)
    (warehouse / "c").mkdir()
    (warehouse / "c" / "file").write_text("mine")
    renamed.tableName = "c"
    with pytest.raises(InvalidOperationException, match="exists already"):
        client.alter_table("default", "a", renamed)
    assert client.get_all_tables("default") == ["a", "b"]
    assert path(client.get_table("default", "a").sd.location).is_dir()


def test_a_new_location_is_for_partitions_to_come(client: Client, tmp_path: Path) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partition(partition(["1"], of="t"))
    old = client.get_table("default", "t").sd.location
    client.alter_table("default", "t", table("t", keys="p string", location=f"{tmp_path}/second"))
    client.add_partition(partition(["2"], of="t"))
    found = [one.sd.location for one in client.get_partitions("default", "t", -1)]
    assert found == [f"{old}/p=1", f"file:{tmp_path}/second/p=2"]


def test_cascade_gives_partitions_the_new_columns(client: Client) -> None:
    client.create_table(table("t", keys="p string"))
    for value in ("1", "2"):
        client.add_partition(partition([value], of="t"))
    client.alter_table("default", "t", placed(client, table("t", cols="a int, b string, c date", keys="p string")))
    assert [len(one.sd.cols) for one in client.get_partitions("default", "t", -1)] == [2, 2]
    client.alter_table_with_environment_context(
        "default",
        "t",
        placed(client, table("t", cols="a int, b string, c date, d date", keys="p string")),
        EnvironmentContext({"CASCADE": "true"}),
    )
    found = client.get_partitions("default", "t", -1)
    assert [[c.name for c in one.sd.cols] for one in found] == [["a", "b", "c", "d"]] * 2
    assert [path(one.sd.location).name for one in found] == ["p=1", "p=2"]
    client.alter_table_with_cascade("default", "t", placed(client, table("t", cols="a int", keys="p string")), True)
    assert [[c.name for c in one.sd.cols] for one in client.get_partitions("default", "t", -1)] == [["a"]] * 2


def test_expected_parameters_make_alter_a_compare_and_swap(client: Client) -> None:
    client.create_table(table("t", parameters={"metadata_location": "v1"}))

    def swap(expected: str, new: str) -> None:
        context = {"expected_parameter_key": "metadata_location", "expected_parameter_value": expected}
        changed = placed(client, table("t", parameters={"metadata_location": new}))
        client.alter_table_with_environment_context("default", "t", changed, EnvironmentContext(context))

    swap("v1", "v2")
    with pytest.raises(MetaException, match="The table has been modified"):
        swap("v1", "v3")
    assert client.get_table("default", "t").parameters["metadata_location"] == "v2"


def test_views_keep_their_text_and_have_no_directory(client: Client, warehouse: Path) -> None:
    view = table("v", kind="VIRTUAL_VIEW")
    view.viewOriginalText, view.viewExpandedText = "select 1", "SELECT 1"
    client.create_table(view)
    found = client.get_table("default", "v")
    assert (found.viewOriginalText, found.viewExpandedText) == ("select 1", "SELECT 1")
    assert not found.sd.location
    assert list(warehouse.iterdir()) == []
    view.viewExpandedText = "SELECT 2"
    client.alter_table("default", "v", view)
    assert client.get_table("default", "v").viewExpandedText == "SELECT 2"
    client.drop_table("default", "v", True)
    assert client.get_all_tables("default") == []


def test_wide_tables_and_long_texts_survive(client: Client) -> None:
    wide = table("t", keys="p string")
    wide.sd.cols = columns(", ".join(f"column_{at} string" for at in range(20_000)))
    client.create_table(wide)
    assert len(client.get_table("default", "t").sd.cols) == 20_000
    one = partition(["1"], of="t")
    one.sd.cols = wide.sd.cols
    client.add_partition(one)
    client.add_partition(partition(["2"], of="t"))
    assert [len(p.sd.cols) for p in client.get_partitions("default", "t", -1)] == [20_000, 2]
    assert [len(p.sd.cols) for p in client.get_partitions("default", "t", 1)] == [20_000]
    client.drop_table("default", "t", True)


def test_truncate_empties_what_the_table_owns(client: Client, raw: Raw, tmp_path: Path) -> None:
    client.create_table(table("t", keys="p string"))
    client.create_table(table("ext", parameters={"EXTERNAL": "TRUE"}, location=f"{tmp_path}/ext"))
    files = []
    for value in ("1", "2"):
        client.add_partition(partition([value], of="t"))
        files.append(path(client.get_partition("default", "t", [value]).sd.location) / "file")
        files[-1].write_text("x")
    raw.call("truncate_table", dbName="default", tableName="t", partNames=["p=2"])
    assert [file.exists() for file in files] == [True, False]
    raw.call("truncate_table", dbName="default", tableName="t")
    assert [file.exists() for file in files] == [False, False]
    assert [file.parent.is_dir() for file in files] == [True, True]
    assert "external" in raw.call("truncate_table", dbName="default", tableName="ext").o1.message


def test_truncate_without_names_is_not_truncate_of_no_partition(client: Client, raw: Raw, warehouse: Path) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partition(partition(["1"], of="t"))
    client.create_table(table("flat"))
    files = {"t": warehouse / "t" / "p=1" / "file", "flat": warehouse / "flat" / "file"}
    for name, file in files.items():
        file.write_text("x")
        assert raw.call("truncate_table", dbName="default", tableName=name, partNames=[]).o1 is None
        request = ttypes.TruncateTableRequest(dbName="default", tableName=name, partNames=[])
        assert raw.call("truncate_table_req", req=request).o1 is None
        assert file.exists()
        request = ttypes.TruncateTableRequest(dbName="default", tableName=name)
        assert raw.call("truncate_table_req", req=request).o1 is None
        assert not file.exists()


def test_the_request_forms_of_later_releases(client: Client, raw: Raw) -> None:
    new = ttypes.Table(
        tableName="t",
        dbName="default",
        sd=ttypes.StorageDescriptor(cols=[ttypes.FieldSchema("a", "int", None)], serdeInfo=ttypes.SerDeInfo()),
        parameters={},
        tableType="MANAGED_TABLE",
    )
    raw.call("create_table_req", request=ttypes.CreateTableRequest(table=new))
    assert client.get_all_tables("default") == ["t"]
    assert new.sd is not None
    new.sd.location = client.get_table("default", "t").sd.location
    new.parameters = {"k": "v"}
    request = ttypes.AlterTableRequest(
        catName="hive", dbName="default", tableName="t", table=new, expectedParameterKey="k", expectedParameterValue="x"
    )
    assert "modified" in raw.call("alter_table_req", req=request).o2.message
    request.expectedParameterKey = None
    assert raw.call("alter_table_req", req=request).o1 is None
    assert client.get_table("default", "t").parameters["k"] == "v"
    update = ttypes.TableParamsUpdate(
        db_name="default", table_name="t", params={"k": "w"}, expected_param_key="k", expected_param_value="v"
    )
    assert raw.call("update_table_params", updates=[update]).o1 is None
    assert "modified" in raw.call("update_table_params", updates=[update]).o1.message
    assert client.get_table("default", "t").parameters["k"] == "w"
    names = raw.call("get_table_names_by_filter", dbname="default", filter='hive_filter_field_params__k = "w"')
    assert names.success == ["t"]
    assert raw.call("get_catalogs").success.names == ["hive"]
    assert raw.call("drop_table_req", dropTableReq=ttypes.DropTableRequest(dbName="default", tableName="t")).o1 is None
    assert client.get_all_tables("default") == []


def test_fields_that_nobody_knows_survive(client: Client, raw: Raw) -> None:
    client.create_table(table("t", keys="p string", parameters={"EXTERNAL": "TRUE"}))
    stored = encode_struct(raw.call("get_table", dbname="default", tbl_name="t").success)
    strange = struct([stored[:-1]], value_field(STRING, 900, string_value("from the future")))
    (descriptor,) = cut(ttypes.StorageDescriptor, b"".join(strange), 0, (7,))
    inner = patch(descriptor.raw, {901: (STRING, string_value("within"))})
    sent = patch(b"".join(strange), {7: (STRUCT, inner), 1: (STRING, string_value("u"))})
    raw.answer("create_table", b"".join(struct(struct_field(1, sent))))
    for _ in range(2):
        answer = raw.answer("get_table", encode_struct(METHODS["get_table"].args(dbname="default", tbl_name="u")))
        assert b"from the future" in answer
        assert b"within" in answer
        raw.answer("alter_table", encode_names("default", "u") + b"".join(struct(struct_field(3, sent))))

    new = ttypes.Partition(values=["1"], dbName="default", tableName="t", sd=descriptor.value, parameters={})
    new.sd.location = None
    strange = struct([encode_struct(new)[:-1]], value_field(STRING, 902, string_value("partition of the future")))
    raw.answer("add_partition", b"".join(struct(struct_field(1, b"".join(strange)))))
    args = METHODS["get_partitions"].args(db_name="default", tbl_name="t", max_parts=-1)
    assert b"partition of the future" in raw.answer("get_partitions", encode_struct(args))
