"""Columns of lake tables changed through the Metastore protocol: by column lists, and by ``lakemark.alter``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    FieldSchema,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    Table,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark.types import format_type
from lakemark_hms.bridge import HmsBridge
from lakemark_hms.lake.facet import SparkFacet
from lakemark_server.catalog.service import Catalog
from lakemark_server.kv import Store
from lakemark_server.snapshots.service import Snapshots
from tests.integration.conftest import Client
from tests.integration.hms_objects import table

COLS = "id int, s struct<a:int,b:string>, l array<struct<x:int>>"
REFUSED = (InvalidOperationException, InvalidObjectException, MetaException)


@pytest.fixture
def hive(catalog: Catalog, store: Store) -> Iterator[Client]:
    """A client of a bridge that shows lake tables as Spark sees them, with a table ``t``."""
    with HmsBridge(catalog, SparkFacet(Snapshots(store, 1 << 20))) as bridge:
        transport = TBufferedTransport(TSocket("127.0.0.1", bridge.port))
        transport.open()
        client = Client(TBinaryProtocolAccelerated(transport, fallback=False))
        client.create_table(table("t", parameters={"lakemark.type": "lake"}, cols=COLS, keys="m int"))
        yield client
        transport.close()


def columns(catalog: Catalog) -> dict[str, tuple[int, str]]:
    schema = catalog.get_lake_table("hive", "default", "t").schema
    return {one.name: (one.id, format_type(one.type)) for one in schema.columns}


def schema_id(catalog: Catalog) -> int:
    return catalog.get_lake_table("hive", "default", "t").record.schema_id


def alter(client: Client, change: Callable[[Table], object]) -> None:
    shown = client.get_table("default", "t")
    change(shown)
    client.alter_table("default", "t", shown)


def place(shown: Table, name: str) -> FieldSchema:
    return next(one for one in shown.sd.cols if one.name == name)


def test_columns_are_added_at_the_end_as_hive_does(hive: Client, catalog: Catalog) -> None:
    alter(hive, lambda t: t.sd.cols.append(FieldSchema("tip", "decimal(8,2)", "more")))
    found = columns(catalog)
    assert list(found) == ["id", "s", "l", "tip", "m"]
    assert found["tip"] == (9, "decimal(8,2)")
    assert catalog.get_lake_table("hive", "default", "t").schema.field("tip").comment == "more"
    shown = hive.get_table("default", "t")
    assert [one.name for one in shown.sd.cols] == ["id", "s", "l", "tip", "m"]
    assert (shown.parameters["lakemark.version"], shown.parameters["lakemark.schema"]) == ("1", "2")


def test_change_column(hive: Client, catalog: Catalog) -> None:
    alter(hive, lambda t: setattr(place(t, "id"), "name", "key"))
    assert columns(catalog)["key"] == (1, "int")
    alter(hive, lambda t: setattr(place(t, "key"), "type", "bigint"))
    assert columns(catalog)["key"] == (1, "bigint")
    alter(hive, lambda t: setattr(place(t, "key"), "comment", "the key"))
    assert catalog.get_lake_table("hive", "default", "t").schema.field("key").comment == "the key"
    alter(hive, lambda t: setattr(place(t, "m"), "type", "bigint"))
    assert columns(catalog)["m"] == (4, "bigint")


def test_columns_of_structs(hive: Client, catalog: Catalog) -> None:
    alter(hive, lambda t: setattr(place(t, "s"), "type", "struct<a:bigint,c:double,b:string>"))
    assert columns(catalog)["s"] == (2, "struct<a:bigint,c:double,b:string>")
    alter(hive, lambda t: setattr(place(t, "l"), "type", "array<struct<x:int,y:int>>"))
    alter(hive, lambda t: setattr(place(t, "l"), "type", "array<struct<y:int>>"))
    assert columns(catalog)["l"] == (3, "array<struct<y:int>>")
    assert schema_id(catalog) == 4


def test_replace_columns_drops_and_moves(hive: Client, catalog: Catalog) -> None:
    alter(hive, lambda t: t.sd.cols.reverse())
    assert list(columns(catalog)) == ["l", "s", "id", "m"]
    alter(hive, lambda t: t.sd.cols.remove(place(t, "s")))
    assert list(columns(catalog)) == ["l", "id", "m"]


def refused(client: Client, catalog: Catalog, reason: str, change: Callable[[Table], object]) -> None:
    before = schema_id(catalog)
    with pytest.raises(REFUSED) as error:
        alter(client, change)
    assert reason in str(error.value)
    assert schema_id(catalog) == before


def test_what_is_refused(hive: Client, catalog: Catalog) -> None:
    refused(hive, catalog, "partition column", lambda t: t.sd.cols.remove(place(t, "m")))
    refused(hive, catalog, "is not lossless", lambda t: setattr(place(t, "id"), "type", "string"))
    refused(hive, catalog, "one by one", lambda t: setattr(place(t, "s"), "type", "int"))

    def replaced(shown: Table) -> None:
        place(shown, "id").name = "x"
        place(shown, "l").name = "y"

    refused(hive, catalog, "cannot be told", replaced)
    refused(
        hive,
        catalog,
        "cannot be told",
        lambda t: setattr(t.sd, "cols", [FieldSchema("z", "date", None), *t.sd.cols[1:]]),
    )


def test_a_list_of_columns_that_is_out_of_date_undoes_nothing(hive: Client, catalog: Catalog) -> None:
    stale = hive.get_table("default", "t")
    stale_too = hive.get_table("default", "t")
    alter(hive, lambda t: t.sd.cols.append(FieldSchema("tip", "int", None)))
    stale.parameters["team"] = "red"
    hive.alter_table("default", "t", stale)  # a property: the columns are those that were read
    assert "tip" in columns(catalog)
    assert catalog.get_lake_table("hive", "default", "t").record.properties["team"] == "red"
    stale_too.sd.cols.append(FieldSchema("other", "int", None))
    with pytest.raises(REFUSED, match="has schema 2 by now"):
        hive.alter_table("default", "t", stale_too)


def test_sparks_own_record_of_the_columns_counts(hive: Client, catalog: Catalog) -> None:
    def change(shown: Table) -> None:
        schema = json.loads(shown.parameters["spark.sql.sources.schema"])
        schema["fields"][0] |= {"name": "Key", "type": "long", "metadata": {"comment": "x"}}
        schema["fields"].insert(1, {"name": "Tip", "type": "double", "nullable": True, "metadata": {}})
        shown.parameters["spark.sql.sources.schema"] = json.dumps(schema)

    refused(hive, catalog, "cannot be told", change)

    def add(shown: Table) -> None:
        schema = json.loads(shown.parameters["spark.sql.sources.schema"])
        schema["fields"].insert(1, {"name": "Tip", "type": "double", "nullable": True, "metadata": {}})
        shown.parameters["spark.sql.sources.schema"] = json.dumps(schema)

    alter(hive, add)
    assert list(columns(catalog)) == ["id", "Tip", "s", "l", "m"]


def test_changes_in_a_property(hive: Client, catalog: Catalog) -> None:
    def statements(text: str) -> Callable[[Table], object]:
        return lambda t: t.parameters.update({"lakemark.alter": text})

    alter(hive, statements("ADD COLUMN Tip DOUBLE COMMENT 'more' AFTER id; RENAME COLUMN s.a TO `a b`"))
    assert columns(catalog)["Tip"] == (9, "double")
    assert columns(catalog)["s"] == (2, "struct<`a b`:int,b:string>")
    assert schema_id(catalog) == 2
    assert "lakemark.alter" not in hive.get_table("default", "t").parameters
    assert "lakemark.alter" not in catalog.get_lake_table("hive", "default", "t").record.properties
    refused(hive, catalog, "drop column m: it is a partition column", statements("DROP COLUMN id; DROP COLUMN m"))
    refused(hive, catalog, "is not a change of a schema", statements("DROP id"))


def test_spark_tries_again_without_columns_and_must_hear_the_reason(hive: Client, catalog: Catalog) -> None:
    def again(shown: Table) -> None:
        shown.sd.cols = [FieldSchema("col", "array<string>", "from deserializer")]
        shown.parameters["lakemark.alter"] = "ALTER COLUMN id TYPE SMALLINT"

    refused(hive, catalog, "smallint is narrower than int", again)
