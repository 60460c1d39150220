"""Properties and columns that would have engines read something else than the table."""

from __future__ import annotations

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import FieldSchema
from thrift.Thrift import TException

from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.process import Service
from tests.integration.attacks.thrift_client import Client
from tests.integration.hms_objects import table
from tests.wire import Wire, refused

OF_ENGINES = (
    "view.sqlConfig.spark.sql.ansi.enabled",
    "view.query.out.col.0",
    "view.catalogAndNamespace.part.0",
    "EXTERNAL",
    "external",
    "spark.sql.sources.provider",
    "Spark.SQL.sources.schema",
    "spark.sql.create.version",
    "transient_lastDdlTime",
    "table_type",
    "metadata_location",
    "presto_view",
    "lakemark.location",
)
SCHEMA = p.Schema(columns=[p.Column(name="id", type=p.Type(primitive="bigint"))])


def create(wire: Wire, schema: p.Schema = SCHEMA, **properties: str) -> c.Table:
    return wire.catalog.CreateTable(c.CreateTableRequest(name=wire.table, schema=schema, properties=properties))


@pytest.mark.parametrize("name", OF_ENGINES)
def test_properties_of_engines_are_refused_in_words_or_left_out(wire: Wire, client: Client, name: str) -> None:
    with refused("invalid_argument", name):
        create(wire, **{name: "x"})
    create(wire, mine="1")
    with refused("invalid_argument", name):
        wire.catalog.SetTableProperties(c.SetTablePropertiesRequest(name=wire.table, set={name: "x"}))
    planted = "parquet" if name == "spark.sql.sources.provider" else "planted"
    # Spark and Hive send their own with every definition, so that these are left out without a word.
    client.create_table(table("u", parameters={"lakemark.type": "lake", "mine": "2", name: planted}))
    shown = client.get_table("default", "u").parameters
    assert shown.get(name) != planted
    assert shown["mine"] == "2"
    altered = client.get_table("default", "t")
    altered.parameters[name] = planted
    client.alter_table("default", "t", altered)
    shown = client.get_table("default", "t").parameters
    assert shown.get(name) != planted
    assert shown["mine"] == "1"


def test_properties_of_engines_in_older_stores_are_not_shown_to_them(
    service: Service, wire: Wire, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("lakemark_server.catalog.engine_names.check_set", lambda names: None)
        create(wire, **{"view.sqlConfig.x": "planted", "mine": "1"})
    shown = client.get_table("default", "t").parameters
    assert "view.sqlConfig.x" not in shown
    assert shown["mine"] == "1"
    removal = c.SetTablePropertiesRequest(name=wire.table, remove=["view.sqlConfig.x"])
    assert "view.sqlConfig.x" not in wire.catalog.SetTableProperties(removal).properties


@pytest.mark.parametrize("name", ["${spark.app.id}", "a${spark.master}b", "${"])
def test_columns_that_spark_would_replace_are_refused_in_words(wire: Wire, client: Client, name: str) -> None:
    plain = p.Column(name="id", type=p.Type(primitive="bigint"))
    bad = p.Column(name=name, type=p.Type(primitive="bigint"))
    nested = p.Column(name="s", type=p.Type(struct=p.StructType(fields=[bad])))
    for column in (bad, nested):
        with refused("invalid_schema", "${"):
            create(wire, p.Schema(columns=[plain, column]))
    create(wire)
    for change in (
        c.SchemaChange(add=c.SchemaChange.AddColumn(column=bad)),
        c.SchemaChange(rename=c.SchemaChange.RenameColumn(column="id", new_name=name)),
    ):
        with refused("invalid_schema", "${"):
            wire.catalog.AlterSchema(c.AlterSchemaRequest(name=wire.table, changes=[change]))
    sent = table("u", parameters={"lakemark.type": "lake"})
    sent.sd.cols.append(FieldSchema(name, "int", None))
    with pytest.raises(TException, match="variable"):
        client.create_table(sent)
