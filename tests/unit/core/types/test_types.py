"""Type strings, schemas, ids, and whether files fit."""

from __future__ import annotations

import copy
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import InvalidSchema
from lakemark_core.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    Char,
    Decimal,
    Field,
    ListOf,
    MapOf,
    Schema,
    Struct,
    Type,
    Varchar,
    assign_ids,
    check_fits,
    format_type,
    parse_type,
    schema_to_arrow,
    to_arrow,
)

SIMPLE = [BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ]
names = st.text(st.characters(exclude_characters=",;:", exclude_categories=["C", "Z"]), min_size=1, max_size=5)
types: st.SearchStrategy[Type] = st.recursive(
    st.sampled_from([*SIMPLE, Decimal(38, 38), Decimal(1, 0), Varchar(1), Char(255)]),
    lambda inner: st.one_of(
        st.builds(ListOf, inner),
        st.builds(MapOf, inner, inner),
        st.lists(
            st.builds(Field, st.just(0), names, inner), min_size=1, max_size=3, unique_by=lambda f: f.name.lower()
        ).map(lambda fields: Struct(tuple(fields))),
    ),
    max_leaves=6,
)


@given(types)
def test_a_type_survives_its_text(column_type: Type) -> None:
    assert parse_type(format_type(column_type)) == column_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LONG", BIGINT),
        (" integer ", INT),
        ("short", SMALLINT),
        ("byte", TINYINT),
        ("real", FLOAT),
        ("double precision", DOUBLE),
        ("decimal", Decimal(10, 0)),
        ("numeric( 5 )", Decimal(5, 0)),
        ("dec(5, 2)", Decimal(5, 2)),
        ("timestamp with local time zone", TIMESTAMP),
        ("timestamp_ltz", TIMESTAMP),
        ("character(3)", Char(3)),
        ("array < int >", ListOf(INT)),
        (
            "struct<a int, `b c`:map<string,double>>",
            Struct((Field(0, "a", INT), Field(0, "b c", MapOf(STRING, DOUBLE)))),
        ),
        ("struct<`a``b`:int>", Struct((Field(0, "a`b", INT),))),
        ("struct<a:int NOT NULL COMMENT 'it''s \\'x'>", Struct((Field(0, "a", INT, False, "it's 'x"),))),
        ("struct<type:string,array:int>", Struct((Field(0, "type", STRING), Field(0, "array", INT)))),
    ],
)
def test_spellings(text: str, expected: Type) -> None:
    assert parse_type(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a type, found the end"),
        ("array<", "found the end"),
        ("uniontype<int>", "'uniontype' is not a type"),
        ("interval", "not a type"),
        ("decimal(39,2)", "precision 39"),
        ("decimal(5,6)", "scale 6"),
        ("decimal(x)", "expected a number"),
        ("decimal(99999999999999)", "expected a number"),
        ("varchar", r"expected '\('"),
        ("varchar(0)", "varchar length 0"),
        ("char(256)", "char length 256"),
        ("map<int>", "expected ','"),
        ("int int", "expected the end"),
        ("struct<>", "expected a field name"),
        ("struct<a:int,A:int>", "two fields 'a'"),
        ("struct<a:int not>", "expected NULL"),
        ("array<int>>", "expected the end"),
        ("array<" * 70 + "int" + ">" * 70, "deeper than 64"),
        ("int'", "cannot read"),
        ("x" * 1_000_001, "characters"),
    ],
)
def test_what_is_not_a_type(text: str, says: str) -> None:
    with pytest.raises(InvalidSchema, match=says):
        parse_type(text)


def column(name: str, column_type: Type = INT, **more: Any) -> Field:
    return Field(0, name, column_type, **more)


def test_partition_columns_come_last_in_the_order_of_the_path() -> None:
    schema = Schema.build([column("Month"), column("a"), column("origin", STRING)], ["ORIGIN", "month"])
    assert [field.name for field in schema.columns] == ["a", "origin", "Month"]
    assert schema.partition_columns == ("origin", "Month")
    assert [field.name for field in schema.data_columns] == ["a"]
    assert [field.name for field in schema.partition_fields] == ["origin", "Month"]
    assert schema.is_partition("MONTH")
    assert not schema.is_partition("a")


@pytest.mark.parametrize(
    ("columns", "partitions", "says"),
    [
        ([], [], "at least one column"),
        ([column("a")], ["a"], "at least one column"),
        ([column("a"), column("A")], [], "two columns 'A'"),
        ([column("")], [], "empty"),
        ([column(" a")], [], "begins or ends"),
        ([column("a,b")], [], "contains ','"),
        ([column("a\nb")], [], "contains"),
        ([column("ä" * 128)], [], "longer than 255 bytes"),
        ([column("a"), column("b")], ["c"], "'c' is not among the columns a, b"),
        ([column("a"), column("b")], ["b", "B"], "named twice"),
        ([column("a"), column("b", DOUBLE)], ["b"], "of type double cannot be a partition column"),
        ([column("a"), column("b", ListOf(INT))], ["b"], "cannot be a partition column"),
        ([column("a"), column("b", BINARY)], ["b"], "cannot be a partition column"),
        ([column("a", Struct((column("x"), column("X"))))], [], "struct 'a' has two columns"),
        ([column("a", ListOf(Struct(())))], [], "struct 'a' has no fields"),
        ([Field(1, "a", INT), Field(2, "b", ListOf(INT, 1))], [], "id 1 is used twice"),
        ([Field(-1, "a", INT)], [], "negative"),
    ],
)
def test_schemas_that_cannot_be(columns: list[Field], partitions: list[str], says: str) -> None:
    with pytest.raises(InvalidSchema, match=says):
        Schema.build(columns, partitions)


NESTED = Struct((column("city", STRING), column("tags", MapOf(STRING, ListOf(INT)))))


def test_ids_are_given_once_and_never_again() -> None:
    schema, last = assign_ids(Schema.build([column("a"), column("place", NESTED), column("b")]))
    assert [field.id for field in schema.columns] == [1, 2, 3]
    assert last == schema.last_id == 8
    place = schema.field("place").type
    assert isinstance(place, Struct)
    assert [field.id for field in place.fields] == [4, 5]
    assert assign_ids(schema, last) == (schema, last)
    grown = Schema.build([*schema.columns, column("c")])
    again, last = assign_ids(grown, last_id=20)
    assert again.field("c").id == last == 21
    assert again.columns[:3] == schema.columns


def test_look_up_by_name_path_and_id() -> None:
    schema, _ = assign_ids(Schema.build([column("Alpha"), column("place", NESTED)]))
    assert schema.field("ALPHA").name == "Alpha"
    city = schema.find_path(("Place", "CITY"))
    assert city is not None
    assert schema.find_id(city.id) == city
    assert schema.find_path(("alpha", "x")) is None
    assert schema.find_path(()) is None
    assert schema.find_id(99) is None
    with pytest.raises(InvalidSchema, match="no column 'alhpa'; did you mean 'Alpha'"):
        schema.field("alhpa")
    with pytest.raises(InvalidSchema, match="the columns are Alpha, place"):
        schema.field("qqq")


def test_arrow_types_carry_field_ids() -> None:
    schema, _ = assign_ids(Schema.build([column("a", Decimal(10, 2), nullable=False), column("place", NESTED)]))
    arrow = schema_to_arrow(schema)
    assert arrow.field("a").metadata == {b"PARQUET:field_id": b"1"}
    assert not arrow.field("a").nullable
    assert to_arrow(TIMESTAMP) == pa.timestamp("us", tz="UTC")
    assert to_arrow(TIMESTAMP_NTZ) == pa.timestamp("us")
    assert to_arrow(Varchar(3)) == pa.string()
    assert check_fits(schema, arrow) == []


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        (BIGINT, pa.int32()),
        (INT, pa.int8()),
        (SMALLINT, pa.uint8()),
        (DOUBLE, pa.float32()),
        (Decimal(10, 2), pa.decimal128(5, 2)),
        (STRING, pa.large_string()),
        (STRING, pa.dictionary(pa.int32(), pa.string())),
        (Varchar(5), pa.string()),
        (BINARY, pa.large_binary()),
        (TIMESTAMP, pa.timestamp("ms", tz="Europe/Berlin")),
        (TIMESTAMP, pa.timestamp("ns")),  # INT96, as Spark writes it
        (TIMESTAMP_NTZ, pa.timestamp("us")),
        (DATE, pa.date32()),
        (INT, pa.null()),
        (ListOf(BIGINT), pa.list_(pa.int32())),
        (MapOf(STRING, DOUBLE), pa.map_(pa.string(), pa.float32())),
        (Struct((column("x"), column("y"))), pa.struct({"X": pa.int32()})),
    ],
)
def test_files_that_fit(wanted: Type, given: pa.DataType) -> None:
    assert check_fits(Schema.build([column("a", wanted)]), pa.schema({"A": given})) == []


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        (INT, pa.int64()),
        (INT, pa.uint32()),
        (BIGINT, pa.uint64()),
        (FLOAT, pa.float64()),
        (BIGINT, pa.float64()),
        (DOUBLE, pa.int32()),
        (Decimal(10, 2), pa.decimal128(11, 2)),
        (Decimal(10, 2), pa.decimal128(10, 1)),
        (STRING, pa.binary()),
        (BINARY, pa.string()),
        (DATE, pa.timestamp("us")),
        (TIMESTAMP, pa.timestamp("us")),
        (TIMESTAMP, pa.timestamp("ns", tz="UTC")),
        (TIMESTAMP_NTZ, pa.timestamp("us", tz="UTC")),
        (TIMESTAMP_NTZ, pa.timestamp("ns")),
        (BOOLEAN, pa.int8()),
        (ListOf(INT), pa.list_(pa.int64())),
        (MapOf(STRING, INT), pa.map_(pa.string(), pa.string())),
        (Struct((column("x"),)), pa.struct({"x": pa.int32(), "y": pa.int32()})),
        (Struct((column("x"),)), pa.int32()),
    ],
)
def test_files_that_do_not_fit(wanted: Type, given: pa.DataType) -> None:
    (reason,) = check_fits(Schema.build([column("a", wanted)]), pa.schema({"a": given}))
    assert "column 'a" in reason


def test_all_reasons_are_told() -> None:
    schema = Schema.build([column("a", nullable=False), column("b", TIMESTAMP), column("p")], ["p"])
    given = pa.schema([("b", pa.timestamp("us")), ("c", pa.int32()), ("C", pa.int32()), ("p", pa.int32())])
    assert check_fits(schema, given) == [
        "column 'p' is a partition column: leave it out of the file",
        "the file has column 'C' twice (case does not matter)",
        "column 'a' is NOT NULL in the table and missing in the file",
        "column 'b' is timestamp in the table and timestamp[us] in the file; write microseconds, adjusted to UTC",
        "column 'C' of the file is not in the table",
    ]


def test_equal_schemas_hash_alike_and_take_no_hash_to_another_process() -> None:
    one, other = (Schema.build([Field(1, "id", BIGINT)], schema_id=1) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert hash(one) != hash(Schema.build(one.columns, schema_id=2))
    copied = copy.copy(one)  # as pickle does it
    assert copied == one
    assert "_hash" in vars(one)
    assert not {"_hash", "_by_name", "_by_id"} & set(vars(copied))
