"""Names, columns, partitions and times as users write them."""

import datetime as dt

import pytest

from lakemark.client.model import milliseconds
from lakemark.client.names import parse_columns, parse_table_name
from lakemark.client.partitions import partition_values
from lakemark.errors import InvalidArgument, InvalidName, InvalidSchema
from lakemark.types import BIGINT, INT, Schema


def test_tables_are_named_with_their_database() -> None:
    name = parse_table_name("`db`.t")
    assert (name.catalog, name.database, name.table) == ("", "db", "t")
    assert parse_table_name("hive.db.t").catalog == "hive"


@pytest.mark.parametrize("text", ["", "t", "a.b.c.d", "db.", ".t", "db..t"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_table_name(text)


@pytest.mark.parametrize("text", ["db.t@v12", "db.t@dev@v1", "`db`.`t`@tag"])
def test_a_snapshot_is_no_table(text: str) -> None:
    with pytest.raises(
        InvalidName, match=r"names a snapshot where a table is wanted: write '.*t`?'; .* by version, time"
    ):
        parse_table_name(text)


@pytest.mark.parametrize(
    "columns", ["month int, id bigint COMMENT 'key'", {"month": "int", "id": "bigint"}, {"month": INT, "id": BIGINT}]
)
def test_columns_in_every_form(columns: object) -> None:
    schema = parse_columns(columns, ["month"])  # type: ignore[arg-type]
    assert [(column.name, column.type) for column in schema.columns] == [("id", BIGINT), ("month", INT)]
    assert parse_columns(schema).partition_columns == ("month",)


@pytest.mark.parametrize("columns", ["", "id", "id nothing", {"id": "no"}])
def test_columns_that_are_none(columns: object) -> None:
    with pytest.raises(InvalidSchema):
        parse_columns(columns)  # type: ignore[arg-type]


SCHEMA: Schema = parse_columns("id bigint, Month int, day date, name string", ["Month", "day", "name"])


def test_partitions_in_every_form() -> None:
    wanted = (1, dt.date(2020, 1, 31), "1")
    assert partition_values({"month": "1", "DAY": "2020-01-31", "name": "1"}, SCHEMA) == wanted
    assert partition_values(wanted, SCHEMA) == wanted
    assert partition_values((None, None, None), SCHEMA) == (None, None, None)


@pytest.mark.parametrize("partition", [{}, {"month": 1}, (1,), {"month": "x", "day": None, "name": None}])
def test_partitions_that_do_not_fit(partition: object) -> None:
    with pytest.raises(InvalidArgument):
        partition_values(partition, SCHEMA)  # type: ignore[arg-type]


def test_times() -> None:
    assert milliseconds(5) == 5
    assert milliseconds("1970-01-01T00:00:01") == 1000
    assert milliseconds("1970-01-01T02:00:01+02:00") == 1000
    assert milliseconds(dt.datetime(1970, 1, 1, 0, 0, 1)) == 1000
    with pytest.raises(InvalidArgument, match="not a time"):
        milliseconds("yesterday")
