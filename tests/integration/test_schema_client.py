"""Schemas through the client and the command line: changes, history, and reading files of every schema."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.cli.app import run
from lakemark.errors import FailedPrecondition, InvalidSchema
from lakemark.evolution import AddColumn, DropColumn
from lakemark.types import Field, parse_type, schema_to_arrow
from tests.integration.grpc_server import connected, running_service

COLUMNS = (
    "id int, name string, x float, day date, address struct<city:string,zip:int>, points array<struct<x:int,y:int>>, "
    "prices map<string,struct<net:int>>, m int"
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path) as service, connected(service) as client:
        client.databases.create("db")
        yield client


@pytest.fixture
def table(client: Client) -> str:
    return client.tables.create("db.t", COLUMNS, partitioned_by=["m"]).name


def append(client: Client, table: str, *rows: dict[str, Any]) -> int:
    with client.begin(table, "append") as writer:
        writer.write(pa.Table.from_pylist(list(rows), schema=schema_to_arrow(writer.schema)))
        return writer.commit().version


def first_row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"n{number}",
        "x": 0.5,
        "day": dt.date(2013, 1, number),
        "address": {"city": "Ulm", "zip": number},
        "points": [{"x": 1, "y": 2}, None],
        "prices": [("a", {"net": 5})],
        "m": 1,
    }


def test_every_version_is_read_with_its_own_schema(client: Client, table: str) -> None:
    tables = client.tables
    append(client, table, first_row(1))
    tables.rename_column(table, "name", "who")
    tables.widen_column(table, "id", "decimal(12,2)")
    tables.widen_column(table, "x", "double")
    tables.widen_column(table, "day", "timestamp_ntz")
    tables.drop_column(table, "address.zip")
    tables.add_column(table, "zip string COMMENT 'new'", parent="address", first=True)
    tables.rename_column(table, "points.element.x", "east")
    tables.add_column(table, "gross int", parent="prices.value", after="net")
    tables.move_column(table, "x", first=True)
    version = tables.add_column(table, "tip int").version
    row = {
        "x": 1e300,
        "id": Decimal("7.25"),
        "who": "w",
        "day": dt.datetime(2013, 1, 1, 2, 3),
        "address": {"zip": "89073", "city": "Ulm"},
        "points": [{"east": 3, "y": 4}],
        "prices": [("b", {"net": 1, "gross": 2})],
        "tip": 9,
        "m": 2,
    }
    append(client, table, row)
    old = {
        "x": 0.5,
        "id": Decimal("1.00"),
        "who": "n1",
        "day": dt.datetime(2013, 1, 1),
        "address": {"zip": None, "city": "Ulm"},
        "points": [{"east": 1, "y": 2}, None],
        "prices": [("a", {"net": 5, "gross": None})],
        "tip": None,
        "m": 1,
    }
    assert client.read(table).sort_by("id").to_pylist() == [old, row]
    assert client.read(table, "id = 1").to_pylist() == [old]
    assert client.read(table, "who = 'n1' AND tip IS NULL", columns=["m", "WHO"]).to_pylist() == [{"m": 1, "who": "n1"}]
    assert client.read(table, "day >= '2013-01-01 01:00:00'").to_pylist() == [row]
    assert client.read(table, version=1).to_pylist() == [first_row(1)]
    assert client.read(table, version=2, columns=["who", "id"]).to_pylist() == [{"who": "n1", "id": 1}]
    assert client.read(table, version=version).to_pylist() == [old]


def test_a_name_that_came_back_does_not_bring_back_values(client: Client, table: str) -> None:
    append(client, table, first_row(1))
    client.tables.alter(table, [DropColumn("name"), AddColumn(Field(0, "name", parse_type("string")))])
    client.tables.alter(
        table, [DropColumn("points.element.y"), AddColumn(Field(0, "y", parse_type("int")), "points.element")]
    )
    (row,) = client.read(table, columns=["name", "points"]).to_pylist()
    assert row == {"name": None, "points": [{"x": 1, "y": None}, None]}
    assert client.read(table, "name = 'n1'").num_rows == 0
    assert client.read(table, version=1, columns=["name"]).to_pylist() == [{"name": "n1"}]


def test_a_writer_goes_on_with_the_schema_it_began_with(client: Client, table: str) -> None:
    with client.begin(table, "append") as writer:
        client.tables.rename_column(table, "name", "who")
        client.tables.drop_column(table, "x")
        writer.write(pa.Table.from_pylist([first_row(3)], schema=schema_to_arrow(writer.schema)))
        writer.commit()
    assert client.read(table, columns=["who", "id"]).to_pylist() == [{"who": "n3", "id": 3}]


def test_a_path_in_front_of_a_new_column_leads_into_a_struct(client: Client, table: str) -> None:
    tables = client.tables
    with pytest.raises(InvalidSchema, match=r"'id' cannot be read as columns, such as"):
        tables.add_column(table, "id")
    added = tables.add_column(table, "address.street string", after="city")
    assert added.schema.find("address.street") is None
    street = added.schema.find_path(["address", "street"])
    assert street is not None
    assert tables.add_column(table, "`a.b` int").schema.find("a.b") is not None


def test_methods(client: Client, table: str) -> None:
    tables = client.tables
    with pytest.raises(InvalidSchema, match="is not one column"):
        tables.add_column(table, "a int, b int")
    with pytest.raises(InvalidSchema, match="drop column m"):
        tables.alter(table, [DropColumn("m")], dry_run=True)
    with pytest.raises(FailedPrecondition, match="has schema 1 by now"):
        tables.alter(table, [DropColumn("x")], expected_schema_id=2)
    tables.comment_column(table, "name", "who it is")
    assert tables.alter(table, "DROP COLUMN x", dry_run=True).schema.find("x") is None  # type: ignore[union-attr]
    required = client.tables.create("db.required", "a int NOT NULL, b int").name
    assert tables.relax_column(required, "a").schema.field("a").nullable  # type: ignore[union-attr]
    history = tables.schemas(table)
    assert [(one.schema.schema_id, one.version, one.changes) for one in history] == [
        (1, 0, ()),
        (2, 1, ("comment on column name",)),
    ]


def lakemark(client: Client, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(["--server", client.address, *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_the_command_line(client: Client, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    def schema(*arguments: str) -> tuple[int, str]:
        return lakemark(client, capsys, "schema", *arguments)

    code, text = schema("add", table, "tip double COMMENT 'more'", "--after", "name", "--dry-run")
    assert (code, "would have schema 2; nothing was changed" in text) == (0, True)
    code, text = schema("drop", table, "m", "--dry-run")
    assert (code, "it is a partition column" in text) == (64, True)
    for arguments in (
        ("add", table, "tip double", "--after", "name"),
        ("add", table, "street string", "--to", "address", "--first"),
        ("rename", table, "points.element.x", "east", "--expect", "3"),
        ("widen", table, "prices.value.net", "bigint"),
        ("move", table, "tip", "--first"),
        ("comment", table, "id", "the key"),
        ("relax", table, "id"),
        ("drop", table, "x"),
        ("alter", table, "ADD COLUMN x DOUBLE; RENAME COLUMN name TO who"),
    ):
        assert schema(*arguments)[0] == 0, arguments
    code, text = schema("rename", table, "tip", "t", "--expect", "3")
    assert (code, "has schema 9 by now" in text) == (65, True)
    code, text = schema("show", table)
    assert "points.element.east" in text
    assert "the key" in text
    shown = json.loads(schema("show", table, "--version", "0", "--json")[1])
    assert shown["schema_id"] == 1
    changes = [line["changes"] for line in json.loads(schema("history", table, "--json")[1])]
    assert changes[-2:] == [["drop column x"], ["add column x double", "rename column name to who"]]
    assert len(changes) == 9
    assert "created" in schema("history", table)[1]
