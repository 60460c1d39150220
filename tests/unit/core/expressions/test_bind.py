"""Binding: names become ids, literals get the columns' types. What is exact stays exact, the rest becomes Unknown."""

from __future__ import annotations

import pytest

from lakemark_core.errors import InvalidPredicate
from lakemark_core.expressions import Compare, Unknown, bind, columns_of, normalize, parse_predicate, to_sql
from lakemark_core.types import Field, Schema, assign_ids, parse_type

SCHEMA, _ = assign_ids(
    Schema.build(
        [
            Field(0, name, parse_type(kind))
            for name, kind in {
                "i": "int",
                "l": "bigint",
                "tiny": "tinyint",
                "x": "double",
                "f": "float",
                "m": "decimal(10,2)",
                "w": "decimal(38,10)",
                "s": "string",
                "v": "varchar(3)",
                "c": "char(3)",
                "d": "date",
                "t": "timestamp",
                "n": "timestamp_ntz",
                "b": "boolean",
                "y": "binary",
                "place": "struct<city:string,zip:int>",
                "tags": "array<string>",
            }.items()
        ]
    )
)


def bound(text: str) -> str:
    return to_sql(normalize(bind(parse_predicate(text), SCHEMA))).replace("`", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A literal between two values of the column's type.
        ("i > 1.5", "i > 1"),
        ("i >= 1.5", "i > 1"),
        ("i < 1.5", "i <= 1"),
        ("i < -1.5", "i <= -2"),
        ("i = 1.5", "FALSE"),
        ("NOT i = 1.5", "i IS NOT NULL"),
        ("i != 1.5", "i IS NOT NULL"),
        ("i <=> 1.5", "i IS NULL AND i IS NOT NULL"),
        ("i = 2.0", "i = 2"),
        ("m > 1.005", "m > 1.00"),
        ("m = 1", "m = 1.00"),
        # Beyond the type.
        ("tiny < 128", "tiny IS NOT NULL"),
        ("tiny >= 128", "FALSE"),
        ("NOT tiny >= 128", "tiny IS NOT NULL"),
        ("tiny > -129", "tiny IS NOT NULL"),
        ("i = 2147483648", "FALSE"),
        ("i IN (1, 2147483648)", "i IN (1)"),
        ("i NOT IN (2147483648)", "i IS NOT NULL"),
        ("m < 100000000", "m IS NOT NULL"),
        # Doubles.
        ("i < 1e0", "i < 1"),
        ("i < CAST('NaN' AS DOUBLE)", "i IS NOT NULL"),
        ("i > CAST('-Infinity' AS DOUBLE)", "i IS NOT NULL"),
        ("x = 1", "x = 1.0D"),
        ("x < 0.1", "x < 0.1D"),
        ("f = 0.1", "f = 0.1D"),
        ("f = 16777216", "f = 16777216.0D"),
        ("m = 0.1D", "m = 0.10"),
        # Texts.
        ("d >= '2013-1-31'", "d >= DATE '2013-01-31'"),
        ("d = '2013-01-31 10:00'", "d = DATE '2013-01-31'"),
        ("d IN ('2013-01-31')", "d IN (DATE '2013-01-31')"),
        ("t < '2013-01-31'", "t < TIMESTAMP '2013-01-31 00:00:00Z'"),
        ("t < DATE '2013-01-31'", "t < TIMESTAMP '2013-01-31 00:00:00Z'"),
        ("n < TIMESTAMP '2013-01-31 01:00:00+01:00'", "n < TIMESTAMP_NTZ '2013-01-31 00:00:00'"),
        ("d < TIMESTAMP_NTZ '2013-01-31 01:00:00'", "d <= DATE '2013-01-31'"),
        ("i = ' 5 '", "i = 5"),
        ("x < '1.5'", "x < 1.5D"),
        ("b = 'TRUE'", "b = TRUE"),
        ("b = ' no'", "b = FALSE"),
        ("m < '1.5'", "m < 1.50"),
        ("m < CAST('1.5' AS DECIMAL(10,0))", "m < 2.00"),
        ("m = CAST(-2.5 AS DECIMAL(10,0))", "m = -3.00"),
        ("n = '2013-01-31 10:00:00+05:00'", "n = TIMESTAMP_NTZ '2013-01-31 10:00:00'"),
        ("l = -9223372036854775808L", "l = -9223372036854775808"),
        ("isnan(x)", "x = CAST('nan' AS DOUBLE)"),
        ("isnan(i)", "i IS NULL AND i IS NOT NULL"),
        ("NOT isnan(x)", "x IS NULL OR x != CAST('nan' AS DOUBLE)"),
        ("x != X", "FALSE"),
        ("NOT x != x", "x IS NOT NULL"),
        ("x <=> x", "x IS NULL OR x IS NOT NULL"),
        ("isnotnull(x)", "x IS NOT NULL"),
        ("b", "b = TRUE"),
        ("v = 'abcdef'", "v = 'abcdef'"),
        ("y < X'0A'", "y < X'0A'"),
        # NULL.
        ("i = NULL", "FALSE"),
        ("NOT i = NULL", "FALSE"),
        ("i <=> NULL", "i IS NULL"),
        ("NOT i <=> NULL", "i IS NOT NULL"),
        ("i IN (1, NULL)", "i IN (1)"),
        ("i NOT IN (1, NULL)", "FALSE"),
        ("i IN (NULL)", "FALSE"),
        ("NOT i <=> 1", "i IS NULL OR i != 1"),
        ("place.CITY = 'x'", "place.CITY = 'x'"),
    ],
)
def test_literals_in_the_type_of_their_column(text: str, expected: str) -> None:
    assert bound(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "l = 9007199254740993D",  # other bigints are the same double
        "l IN (9007199254740993, 1D)",
        "w = 0.1D",  # too many digits for the order of doubles
        "i IN (1, '2')",
        "m NOT IN (0.1F, '1.50')",
        "w NOT IN (1, 0.12345678901)",
        "w = 0.12345678901",  # the common type has not enough digits
        "f = 16777217",  # float or double, by Spark's mode
        "s = 5",  # the text is cast, not the number
        "s IN ('x', 5)",
        "s = DATE '2013-01-01'",
        "i = '1.5'",
        "i IN ('05')",  # compared as texts in one mode
        "i = '2147483648'",
        "m = '1.23456789012345678'",
        "i = 0.5F",  # the column becomes float in one mode and double in the other
        "d IN ('2013-1-31')",
        "d < TIMESTAMP '2013-01-31 00:00:00'",  # a day begins with the session's zone
        "c = 'x'",
        "c LIKE 'x%'",
        "i LIKE '1%'",
        "startswith(d, '2013')",
        "y = 'x'",
        "s = upper('x')",
    ],
)
def test_what_is_left_to_the_engine(text: str) -> None:
    expr = bind(parse_predicate(text), SCHEMA)
    assert "Unknown" in repr(expr)
    assert all(column.id for column in columns_of(expr))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tag = 1", "there is no column 'tag'; did you mean 'tags'"),
        ("qqq = 1", "there is no column 'qqq'; the columns are i, l, tiny"),
        ("upper(q) = 'X'", "there is no column 'q'"),
        ("place.street = 'x'", "there is no field 'place.street': column 'place' has no such field"),
        ("i.x = 1", "'i' is not a struct"),
        ("i = 'abc'", "column 'i' is of type int and cannot be compared with 'abc'"),
        ("i = TRUE", "column 'i' is of type int and cannot be compared with TRUE"),
        ("i < DATE '2013-01-01'", "cannot be compared with DATE '2013-01-01'"),
        ("d = 5", "column 'd' is of type date and cannot be compared with 5"),
        ("d = 'soon'", "'soon' is not a date"),
        ("t IN ('soon')", "column 't' is of type timestamp .*'soon' is not a timestamp"),
        ("b = 1", "column 'b' is of type boolean"),
        ("b = 'on'", "column 'b' is of type boolean"),
        ("tab.i = 1", "there is no column 'tab'; if 'tab' is the table, leave it out: 'i'"),
        ("db.tab.place.zip = 1", "if 'db.tab' is the table, leave it out: 'place.zip'"),
        ("place = 'x'", "struct<city:string,zip:int> .* compare one of its fields"),
        ("tags LIKE 'x'", "column 'tags' is not text"),
    ],
)
def test_what_no_engine_would_take(text: str, says: str) -> None:
    with pytest.raises(InvalidPredicate, match=says):
        bind(parse_predicate(text), SCHEMA)


def test_case_of_names_does_not_matter() -> None:
    expr = bind(parse_predicate("Place.Zip = 1"), SCHEMA)
    assert isinstance(expr, Compare)
    zip_field = SCHEMA.find_path(("place", "zip"))
    assert zip_field is not None
    assert expr.column.id == zip_field.id


def test_normal_form_of_predicates_that_are_not_bound() -> None:
    assert to_sql(normalize(parse_predicate("i IN (1, NULL)"))) == "`i` IN (1)"
    assert to_sql(normalize(parse_predicate("i NOT IN (1, NULL)"))) == "FALSE"
    assert to_sql(normalize(parse_predicate("NOT i IN (NULL)"))) == "FALSE"
    assert to_sql(normalize(parse_predicate("i <=> NULL OR i < NULL"))) == "`i` IS NULL"


def test_normal_form() -> None:
    assert bound("NOT (i < 1 AND NOT (s LIKE 'x%' OR d IS NULL))") == "i >= 1 OR s LIKE 'x%' OR d IS NULL"
    assert bound("i = 1 AND (TRUE OR x = 1) AND i = 1") == "i = 1"
    assert bound("i = 1 OR FALSE OR NULL") == "i = 1"
    assert bound("i = 1 AND NULL") == "FALSE"
    assert bound("NOT (i = 1 AND NULL)") == "i != 1"
    assert bound("NOT NOT startswith(s, 'x')") == "startswith(s, 'x')"
    negated = normalize(bind(parse_predicate("NOT upper(s) = 'X'"), SCHEMA))
    assert isinstance(negated, Unknown)
    assert negated.text == "NOT (UPPER(s) = 'X')"
