"""Which types are assigned to which, and what is refused, in words. What Spark makes of the SQL: end-to-end tests."""

from __future__ import annotations

import pytest

from lakemark_core.types import parse_type
from lakemark_spark.assignment import assigned_sql, misfits


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("int", "tinyint"),
        ("decimal(38,10)", "double"),
        ("double", "decimal(4,2)"),
        ("binary", "string"),
        ("boolean", "char(5)"),
        ("timestamp", "date"),
        ("date", "timestamp_ntz"),
        ("array<struct<A:bigint>>", "array<struct<a:int>>"),
        ("map<int,string>", "map<bigint,varchar(3)>"),
    ],
)
def test_what_an_insert_takes_is_taken(given: str, wanted: str) -> None:
    assert misfits(parse_type(given), parse_type(wanted), "c") == []


@pytest.mark.parametrize(
    ("given", "wanted", "told"),
    [
        ("string", "int", "column 'c' is string; the table has int; cast it yourself"),
        ("boolean", "int", "column 'c' is boolean; the table has int"),
        ("int", "timestamp", "column 'c' is int; the table has timestamp"),
        ("timestamp", "bigint", "column 'c' is timestamp; the table has bigint"),
        ("array<string>", "array<date>", "column 'c.element' is string; the table has date"),
        ("map<string,int>", "map<int,int>", "column 'c.key' is string; the table has int"),
        ("struct<a:int,b:boolean>", "struct<a:int,b:int>", "column 'c.b' is boolean; the table has int"),
        ("struct<b:int,a:int>", "struct<a:int,b:int>", "struct 'c' has the fields b, a; the table has a, b"),
        ("array<int>", "string", "column 'c' is array<int>; the table has string"),
        ("int", "array<int>", "column 'c' is int; the table has array<int>"),
    ],
)
def test_what_it_does_not_take_is_told(given: str, wanted: str, told: str) -> None:
    (reason,) = misfits(parse_type(given), parse_type(wanted), "c")
    assert reason.startswith(told)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("int", "bigint"), ("decimal(4,1)", "decimal(6,2)"), ("bigint", "double"), ("array<int>", "array<bigint>")],
)
def test_where_every_value_fits_a_cast_is_all(given: str, wanted: str) -> None:
    assert assigned_sql("`c`", parse_type(given), parse_type(wanted), "c").startswith("CAST(`c` AS ")


def test_a_name_with_quotes_stays_a_text() -> None:
    sql = assigned_sql("`it's`", parse_type("int"), parse_type("tinyint"), "it's so")
    assert r"concat('a value of column \'it\'s so\' does not fit into tinyint: ', `it's`)" in sql
