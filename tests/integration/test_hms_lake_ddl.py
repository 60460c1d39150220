"""Lake tables made, altered and dropped through the Metastore protocol, and what is refused."""

import json
from pathlib import Path

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    AlreadyExistsException,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    Table,
)

from lakemark.errors import TableNotFound
from lakemark.types import format_type
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.service import Catalog
from tests.integration.conftest import Client
from tests.integration.hms_objects import partition, table

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
    assert made.record.location == f"file:{warehouse}/t"
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


def test_dropping_deletes_what_the_service_placed(client: Client, warehouse: Path) -> None:
    client.create_table(lake())
    assert (warehouse / "t").is_dir()
    client.drop_table("default", "t", True)
    assert not (warehouse / "t").exists()


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
    way = r"default\.t is a lake table: its rows are written through lakemark_spark or the gRPC API"
    with pytest.raises(InvalidObjectException, match=way):
        client.add_partition(partition(["1"], of="t"))
    with pytest.raises(InvalidOperationException, match=way):
        client.alter_partition("default", "t", partition(["1"], of="t"))
    with pytest.raises(MetaException, match=way):
        client.drop_partition("default", "t", ["1"], True)
    with pytest.raises(InvalidOperationException, match=way):
        client.rename_partition("default", "t", ["1"], partition(["2"], of="t"))
    with pytest.raises(MetaException, match=way):
        client.drop_partition_by_name("default", "t", "p=1", True)
    with pytest.raises(InvalidObjectException, match=r"default\.t@v1 is a lake table"):
        client.add_partition(partition(["1"], of="t@v1"))
