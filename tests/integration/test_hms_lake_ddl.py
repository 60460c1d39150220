"""Lake tables created, altered and dropped through the Metastore protocol, and what is refused."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    AlreadyExistsException,
    EnvironmentContext,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
    Table,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark.errors import TableNotFound
from lakemark.types import format_type
from lakemark_hms.bridge import HmsBridge
from lakemark_hms.lake.facet import SparkFacet
from lakemark_server.catalog.drop_policy import PROTECTED_PROPERTY
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.service import Catalog
from lakemark_server.kv import Store
from lakemark_server.snapshots.service import Snapshots
from tests.integration.conftest import Client
from tests.integration.hms_objects import partition, table

WAY = r"default\.t is a lake table: its rows are written by INSERT INTO t__append"
LAKE = {"lakemark.type": "lake"}


def lake(name: str = "t", **options: object) -> Table:
    parameters = LAKE | dict(options.pop("parameters", {}))  # type: ignore[call-overload]
    return table(name, parameters=parameters, **options)  # type: ignore[arg-type]


def found(catalog: Catalog, name: str = "t") -> LakeTable:
    return catalog.get_lake_table("hive", "default", name)


def test_columns_come_from_the_column_list(client: Client, catalog: Catalog, warehouse: Path) -> None:
    own = {"lakemark.conflict.policy": "table", "team": "blue", "comment": "hello", "spark.sql.create.version": "4.3.0"}
    client.create_table(lake(cols="a int, b array<string>", keys="day date", parameters=own))
    made = found(catalog)
    columns = [(c.name, format_type(c.type)) for c in made.schema.columns]
    assert columns == [("a", "int"), ("b", "array<string>"), ("day", "date")]
    assert made.schema.partition_columns == ("day",)
    assert dict(made.record.properties) == LAKE | {"lakemark.conflict.policy": "table", "team": "blue"}
    assert (made.record.comment, made.record.owner, made.record.external) == ("hello", "tester", False)
    assert made.record.location.startswith(f"file:{warehouse}/t-")
    assert client.get_all_tables("default") == ["t"]
    assert client.get_tables_by_type("default", "*", "VIRTUAL_VIEW") == ["t"]


@pytest.mark.parametrize("parts", [1, 3])
def test_sparks_own_record_of_the_columns_is_better(client: Client, catalog: Catalog, parts: int) -> None:
    field = {"nullable": True, "metadata": {}}
    fields = [
        {"name": "Id", "type": "long", "nullable": False, "metadata": {"comment": "key"}},
        {"name": "Tags", "type": {"type": "array", "elementType": "string", "containsNull": True}, **field},
        {"name": "Code", "type": "string", "nullable": True, "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}},
        {"name": "Seen", "type": "timestamp_ntz", **field},
        {"name": "Day", "type": "date", **field},
    ]
    text = json.dumps({"type": "struct", "fields": fields})
    size = -(-len(text) // parts)
    schema = {f"spark.sql.sources.schema.part.{at}": text[at * size : (at + 1) * size] for at in range(parts)}
    schema["spark.sql.sources.schema.numParts"] = str(parts)
    if parts == 1:
        schema = {"spark.sql.sources.schema": text}
    schema["spark.sql.sources.provider"] = "parquet"
    client.create_table(lake(cols="col array<string>", keys="day date", parameters=schema))
    made = found(catalog)
    columns = [(c.name, format_type(c.type), c.nullable, c.comment) for c in made.schema.columns]
    assert columns == [
        ("Id", "bigint", False, "key"),
        ("Tags", "array<string>", True, ""),
        ("Code", "varchar(3)", True, ""),
        ("Seen", "timestamp_ntz", True, ""),
        ("Day", "date", True, ""),
    ]
    assert made.schema.partition_columns == ("Day",)
    assert dict(made.record.properties) == LAKE


def test_a_chosen_place_is_kept_and_survives_the_drop(client: Client, catalog: Catalog, tmp_path: Path) -> None:
    client.create_table(lake(location=f"{tmp_path}/mine", parameters={"EXTERNAL": "TRUE"}))
    assert found(catalog).record.location == f"file:{tmp_path}/mine"
    client.drop_table("default", "t", True)
    assert (tmp_path / "mine").is_dir()
    with pytest.raises(TableNotFound):
        found(catalog)


def test_what_is_dropped_can_be_brought_back(client: Client, catalog: Catalog) -> None:
    client.create_table(lake())
    made = found(catalog)
    client.drop_table("default", "t", True)
    assert Path(made.record.location.removeprefix("file:")).is_dir()
    (dropped,) = catalog.dropped.listed("")
    assert not dropped.dropped.keep_files
    assert catalog.dropped.undrop("", "default", "t").table_id == made.table_id


def test_what_is_purged_is_deleted_at_once(client: Client, catalog: Catalog) -> None:
    """``DROP TABLE … PURGE``, and the form of Hive's clients."""
    client.create_table(lake())
    place = Path(found(catalog).record.location.removeprefix("file:"))
    assert place.is_dir()
    client.drop_table_with_environment_context("default", "t", True, EnvironmentContext(properties={"ifPurge": "TRUE"}))
    assert not place.exists()
    assert catalog.dropped.listed("") == []


def test_a_protected_table_is_not_dropped(client: Client, catalog: Catalog) -> None:
    client.create_table(lake(parameters={PROTECTED_PROPERTY: "true"}))
    with pytest.raises(MetaException, match=r"default\.t is protected and cannot be dropped"):
        client.drop_table("default", "t", True)
    assert found(catalog).name == "default.t"


def test_a_warehouse_table_does_not_take_a_lake_table_with_it(
    client: Client, catalog: Catalog, warehouse: Path
) -> None:
    """No other table has a directory at that of a lake table, around it or inside it."""
    client.create_table(lake(location=f"{warehouse}/w/inside", parameters={"EXTERNAL": "TRUE"}))
    for parameters in ({}, {"EXTERNAL": "TRUE"}):
        for place in ("w", "w/inside", "w/inside/deep"):
            with pytest.raises(InvalidObjectException, match=r"lake table default\.t has (its|the) directory"):
                client.create_table(table("w", location=f"{warehouse}/{place}", parameters=parameters))
    client.create_table(table("other", keys="p string"))
    with pytest.raises(InvalidObjectException, match=r"partition p=1 of default\.other cannot have the location"):
        client.add_partition(partition(["1"], of="other", location=f"{warehouse}/w/inside"))
    assert found(catalog).name == "default.t"


def test_what_cannot_be_a_lake_table(client: Client, warehouse: Path) -> None:
    text = lake()
    text.sd.inputFormat = "org.apache.hadoop.mapred.TextInputFormat"
    with pytest.raises(InvalidObjectException, match=r"parquet, not as org.apache.hadoop.mapred.TextInputFormat"):
        client.create_table(text)
    with pytest.raises(InvalidObjectException, match="parquet, not as orc"):
        client.create_table(lake(parameters={"spark.sql.sources.provider": "orc"}))
    buckets = lake()
    buckets.sd.numBuckets, buckets.sd.bucketCols = 4, ["a"]
    with pytest.raises(InvalidObjectException, match="bucketed"):
        client.create_table(buckets)
    with pytest.raises(InvalidObjectException, match="view"):
        client.create_table(lake(kind="VIRTUAL_VIEW"))
    with pytest.raises(InvalidObjectException, match="not a policy"):
        client.create_table(lake(parameters={"lakemark.conflict.policy": "hope"}))
    with pytest.raises(InvalidObjectException, match="uniontype"):
        client.create_table(lake(cols="a uniontype<int,string>"))
    (warehouse / "full").mkdir(parents=True)
    (warehouse / "full" / "part-0.parquet").write_text("rows of a CREATE TABLE AS SELECT")
    with pytest.raises(InvalidObjectException, match="AS SELECT is not possible"):
        client.create_table(lake("full"))
    assert client.get_all_tables("default") == []
    client.create_table(table("t"))
    with pytest.raises(AlreadyExistsException):
        client.create_table(lake())
    with pytest.raises(InvalidOperationException, match="cannot be turned into a lake table"):
        client.alter_table("default", "t", lake())


def test_writes_are_refused_with_the_right_way(client: Client) -> None:
    client.create_table(lake(keys="p string"))
    with pytest.raises(InvalidObjectException, match=WAY):
        client.add_partition(partition(["1"], of="t"))
    with pytest.raises(InvalidOperationException, match=WAY):
        client.alter_partition("default", "t", partition(["1"], of="t"))
    with pytest.raises(MetaException, match=WAY):
        client.drop_partition("default", "t", ["1"], True)
    with pytest.raises(InvalidOperationException, match=WAY):
        client.rename_partition("default", "t", ["1"], partition(["2"], of="t"))
    with pytest.raises(MetaException, match=WAY):
        client.drop_partition_by_name("default", "t", "p=1", True)
    with pytest.raises(InvalidObjectException, match=r"default\.t@v1 is a lake table"):
        client.add_partition(partition(["1"], of="t@v1"))


@pytest.fixture
def reading(catalog: Catalog, store: Store) -> Iterator[Client]:
    """A client of a bridge that shows lake tables as Spark sees them."""
    with HmsBridge(catalog, SparkFacet(Snapshots(store, 1 << 20))) as bridge:
        transport = TBufferedTransport(TSocket("127.0.0.1", bridge.port))
        transport.open()
        yield Client(TBinaryProtocolAccelerated(transport, fallback=False))
        transport.close()


def test_without_a_facet_a_lake_table_cannot_be_read(client: Client) -> None:
    client.create_table(lake())
    with pytest.raises(NoSuchObjectException):
        client.get_table("default", "t")


def test_properties_comment_and_name_can_be_altered(reading: Client, catalog: Catalog) -> None:
    reading.create_table(lake(parameters={"team": "blue", "old": "1"}))
    shown = reading.get_table("default", "t")
    assert shown.tableType == "VIRTUAL_VIEW"
    shown.parameters |= {"team": "red", "comment": "hello", "transient_lastDdlTime": "17", "lakemark.version": "99"}
    del shown.parameters["old"]
    reading.alter_table("default", "t", shown)
    assert dict(found(catalog).record.properties) == LAKE | {"team": "red"}
    assert found(catalog).record.comment == "hello"
    shown = reading.get_table("default", "t")
    assert shown.parameters["comment"] == "hello"
    del shown.parameters["comment"]
    reading.alter_table("default", "t", shown)
    assert found(catalog).record.comment == ""
    shown = reading.get_table("default", "t")
    shown.tableName = "u"
    reading.alter_table("default", "t", shown)
    assert found(catalog, "u").record.name == "u"
    assert reading.get_all_tables("default") == ["u"]


@pytest.mark.parametrize("expected", ["blue", "green"])
def test_changes_of_a_lake_table_cannot_depend_on_a_parameter(reading: Client, catalog: Catalog, expected: str) -> None:
    """A swap that does not compare would overwrite what another client has changed."""
    reading.create_table(lake(parameters={"team": "blue"}))
    shown = reading.get_table("default", "t")
    shown.parameters["team"] = "red"
    context = EnvironmentContext({"expected_parameter_key": "team", "expected_parameter_value": expected})
    with pytest.raises(InvalidOperationException, match=r"default\.t is a lake table: .*expected_parameter_key"):
        reading.alter_table_with_environment_context("default", "t", shown, context)
    assert dict(found(catalog).record.properties) == LAKE | {"team": "blue"}
    reading.alter_table_with_environment_context("default", "t", shown, EnvironmentContext({}))
    assert dict(found(catalog).record.properties) == LAKE | {"team": "red"}


def test_nothing_else_of_a_lake_table_can_be_altered(reading: Client, catalog: Catalog) -> None:
    reading.create_table(lake(keys="p string"))
    before = found(catalog).record

    def refused(change: Callable[[Table], object], reason: str) -> None:
        shown = reading.get_table("default", "t")
        change(shown)
        with pytest.raises(InvalidOperationException, match=reason):
            reading.alter_table("default", "t", shown)

    refused(lambda t: setattr(t, "viewOriginalText", "SELECT 1"), "its text")
    refused(lambda t: setattr(t, "tableType", "MANAGED_TABLE"), "its type")
    refused(lambda t: setattr(t.sd, "location", "/elsewhere"), "its location")
    refused(lambda t: t.parameters.pop("lakemark.type"), "cannot be changed")
    refused(lambda t: t.parameters.update({"lakemark.conflict.policy": "hope"}), "not a policy")
    hidden = reading.get_table("default", "t@v0")
    with pytest.raises(InvalidOperationException, match=r"default\.t@v0 is a lake table"):
        reading.alter_table("default", "t@v0", hidden)
    with pytest.raises(MetaException, match="snapshot of a lake table"):
        reading.drop_table("default", "t@v0", True)
    assert found(catalog).record == before


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"lakemark.typ": "lake"}, "'lakemark.typ' is not known; did you mean 'lakemark.type'?"),
        ({"lakemark.Type": "lake"}, "'lakemark.Type' is not known; did you mean 'lakemark.type'?"),
        ({"LAKEMARK.TYPE": "lake"}, "'LAKEMARK.TYPE' is not known; did you mean 'lakemark.type'?"),
        ({"lakemark.type": "lakes"}, "lakemark.type = 'lakes' is not a type of table: the only one is 'lake'"),
        ({"lakemark.conflict.policy": "table"}, "is only for lake tables, and this is not one: add TBLPROPERTIES"),
    ],
)
def test_what_seems_to_be_meant_as_a_lake_table_is_no_warehouse_table(
    client: Client, parameters: dict[str, str], words: str
) -> None:
    """Otherwise a typing error would silently make a table without commits."""
    for _ in range(2):
        with pytest.raises(InvalidObjectException, match=words.replace("?", r"\?")):
            client.create_table(table("t", parameters=parameters))
    assert client.get_all_tables("default") == []
    client.create_table(table("t"))
    changed = table("t", parameters=parameters)
    with pytest.raises(InvalidOperationException, match=words.replace("?", r"\?")):
        client.alter_table("default", "t", changed)


def test_options_of_the_files_make_no_lake_table(client: Client) -> None:
    """Spark puts the values of ``DataFrameWriter.option`` and ``OPTIONS`` there."""
    optioned = table("t")
    optioned.sd.serdeInfo.parameters = {"lakemark.type": "lake", "path": "file:/x"}
    with pytest.raises(InvalidObjectException, match=r"lakemark.type is given as an option .* with TBLPROPERTIES"):
        client.create_table(optioned)
