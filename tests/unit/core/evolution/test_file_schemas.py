"""Files of older schemas: why some cannot be read, which share one scan, and their columns in Arrow and SQL."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pyarrow as pa
import pytest

from lakemark_core.errors import InvalidSchema
from lakemark_core.evolution import parse_path, read_alike, readable_with, reading_groups, source_of
from lakemark_core.evolution.arrow import as_column
from lakemark_core.evolution.paths import format_path
from lakemark_core.evolution.sql import column_sql, missing_sql
from lakemark_core.types import Field, ListOf, MapOf, Schema, Struct, Type, parse_type, to_arrow


def column(column_id: int, name: str, column_type: str | Type, *, nullable: bool = True) -> Field:
    return Field(column_id, name, parse_type(column_type) if isinstance(column_type, str) else column_type, nullable)


def schema(*columns: Field, partitions: tuple[str, ...] = (), schema_id: int = 1) -> Schema:
    return Schema.build(columns, partitions, schema_id)


A, B, M = column(1, "a", "int"), column(2, "b", "string"), column(3, "m", "int")


@pytest.mark.parametrize(
    ("latest", "partitions", "reason"),
    [
        ([replace(A, type=parse_type("tinyint")), M], ("m",), "narrower"),
        ([replace(A, nullable=False), M], ("m",), "'a' is NOT NULL now and was not then"),
        ([A, column(4, "c", "int", nullable=False), M], ("m",), "'c' is NOT NULL now and did not exist then"),
        ([A, M], (), "partition columns were m and are none now"),
        ([A, replace(M, name="n")], ("n",), "partition columns were m and are n now"),
        ([A, replace(M, type=parse_type("decimal(12,2)"))], ("m",), "names of its partitions would change"),
    ],
)
def test_why_files_cannot_be_read(latest: list[Field], partitions: tuple[str, ...], reason: str) -> None:
    (found,) = readable_with(schema(A, M, partitions=("m",)), schema(*latest, partitions=partitions))
    assert reason in found


def test_files_are_read_after_legal_changes() -> None:
    latest = schema(
        B, replace(A, name="x", type=parse_type("bigint")), replace(M, type=parse_type("bigint")), partitions=("m",)
    )
    assert readable_with(schema(A, M, partitions=("m",)), latest) == []


def test_nested_fields_are_named_in_reasons() -> None:
    old = Struct((column(2, "x", "double"),))
    new = Struct((column(2, "x", "int"), column(3, "y", "int", nullable=False)))
    for wrap in (lambda t: t, lambda t: ListOf(t, 9), lambda t: MapOf(parse_type("string"), t, 8, 9)):
        found = readable_with(schema(column(1, "s", wrap(old))), schema(column(1, "s", wrap(new))))
        assert len(found) == 2
        assert "x' was double and is int" in found[0]
        assert "y' is NOT NULL" in found[1]


def groups(wanted: Schema, *schemas: Schema) -> list[set[int]]:
    numbered = {number: replace(one, schema_id=number) for number, one in enumerate(schemas, 1)}
    return [set(group) for group in reading_groups(numbered, wanted)]


def test_added_columns_need_no_scan_of_their_own() -> None:
    assert groups(schema(A, B), schema(A), schema(A, B)) == [{1, 2}]
    assert groups(schema(B, A), schema(A), schema(A, B), schema(B, A)) == [{1, 2, 3}]


def test_dropped_columns_do_not_matter() -> None:
    assert groups(schema(A), schema(A, B), schema(A)) == [{1, 2}]


def test_a_renamed_or_widened_column_splits() -> None:
    x = replace(A, name="x")
    assert groups(schema(x), schema(A), schema(x)) == [{1}, {2}]
    wide = replace(A, type=parse_type("bigint"))
    assert groups(schema(wide), schema(A), schema(wide)) == [{1}, {2}]
    assert groups(schema(replace(A, name="A")), schema(A), schema(replace(A, name="A"))) == [{1, 2}]


def test_a_name_that_came_back_splits() -> None:
    again = column(7, "b", "string")
    assert groups(schema(A, again), schema(A, B), schema(A), schema(A, again)) == [{1}, {2, 3}]
    renamed_to_it = replace(B, name="a")
    assert groups(schema(renamed_to_it), schema(A, B), schema(B), schema(renamed_to_it)) == [{1, 2}, {3}]


def test_old_schemas_that_read_alike_share_a_scan() -> None:
    x, wide = replace(A, name="x"), replace(B, type=parse_type("varchar(9)"))
    assert groups(schema(x, B), schema(A), schema(A, wide), schema(x, B)) == [{1, 2}, {3}]


def test_structs_must_have_the_same_fields_to_be_read_alike() -> None:
    one, two = Struct((column(2, "x", "int"),)), Struct((column(2, "x", "int"), column(3, "y", "int")))
    assert read_alike(one, Struct((column(2, "X", "int"),)))
    assert not read_alike(one, two)
    assert not read_alike(one, Struct((column(4, "x", "int"),)))
    assert not read_alike(ListOf(one, 5), ListOf(two, 5))
    assert not read_alike(MapOf(parse_type("int"), one, 5, 6), MapOf(parse_type("int"), two, 5, 6))


POINT = Struct(
    (column(11, "x", "int"), column(12, "gone", "int"), column(13, "inner", Struct((column(14, "p", "date"),))))
)
POINT_NOW = Struct(
    (
        column(13, "within", Struct((column(15, "new", "string"), column(14, "q", "timestamp_ntz")))),
        column(11, "east", "bigint"),
        column(16, "gone", "int"),
    )
)
OLD = Struct((column(1, "points", ListOf(POINT, 10)), column(2, "prices", MapOf(parse_type("string"), POINT, 20, 21))))
# Map values have ids of their own in a real table; the same ones here keep the test short.
NEW = Struct(
    (column(1, "points", ListOf(POINT_NOW, 10)), column(2, "costs", MapOf(parse_type("string"), POINT_NOW, 20, 21)))
)


def test_lists_maps_and_structs_within_each_other_are_read_by_id() -> None:
    point = {"x": 1, "gone": 9, "inner": {"p": dt.date(2013, 2, 1)}}
    now = {"within": {"new": None, "q": dt.datetime(2013, 2, 1)}, "east": 1, "gone": None}
    bare, bare_now = {"x": None, "gone": None, "inner": None}, {"within": None, "east": None, "gone": None}
    rows = [
        {"points": [point, None, bare], "prices": {"a": point, "b": None}},
        {"points": [], "prices": {}},
        {"points": None, "prices": None},
        None,
        {"points": [point], "prices": {"c": bare}},
    ]
    expected = [
        {"points": [now, None, bare_now], "costs": [("a", now), ("b", None)]},
        {"points": [], "costs": []},
        {"points": None, "costs": None},
        None,
        {"points": [now], "costs": [("c", bare_now)]},
    ]
    arrow_type: pa.DataType = to_arrow(OLD)
    array = pa.array(rows, arrow_type)
    assert as_column(pa.chunked_array([array]), OLD, NEW).to_pylist() == expected
    for start in range(len(rows)):  # slices, whose buffers begin elsewhere
        sliced = as_column(pa.chunked_array([array.slice(start, 2)]), OLD, NEW)
        sliced.validate(full=True)
        assert sliced.to_pylist() == expected[start : start + 2]
    assert as_column(pa.chunked_array([array]).slice(0, 0), OLD, NEW).type == to_arrow(NEW)


def test_fields_of_a_file_may_have_another_order_and_case_or_be_missing() -> None:
    stored = pa.array([{"Y": 2, "x": 1}], pa.struct([("Y", pa.int8()), ("x", pa.int32())]))
    fields = Struct((column(1, "x", "bigint"), column(2, "y", "int"), column(3, "z", "int")))
    assert as_column(pa.chunked_array([stored]), fields, fields).to_pylist() == [{"x": 1, "y": 2, "z": None}]


def test_sql_of_columns() -> None:
    assert column_sql("`a`", parse_type("int"), parse_type("int")) == "`a`"
    assert column_sql("`a`", parse_type("char(3)"), parse_type("string")) == "`a`"
    assert column_sql("`a`", parse_type("int"), parse_type("decimal(12,2)")) == "CAST(`a` AS DECIMAL(12,2))"
    assert column_sql("`p`", POINT, POINT_NOW) == (
        "IF(`p` IS NULL, NULL, named_struct("
        "'within', IF(`p`.`inner` IS NULL, NULL, named_struct('new', CAST(NULL AS STRING), "
        "'q', CAST(`p`.`inner`.`p` AS TIMESTAMP_NTZ))), "
        "'east', CAST(`p`.`x` AS BIGINT), 'gone', CAST(NULL AS INT)))"
    )
    assert column_sql("`l`", ListOf(A.type, 5), ListOf(parse_type("bigint"), 5)) == (
        "transform(`l`, lakemark_0 -> CAST(lakemark_0 AS BIGINT))"
    )
    assert column_sql("`m`", MapOf(B.type, A.type, 5, 6), MapOf(B.type, parse_type("bigint"), 5, 6)) == (
        "transform_values(`m`, (lakemark_key_0, lakemark_0) -> CAST(lakemark_0 AS BIGINT))"
    )
    odd = Struct((column(1, "it's \\ a`b", "varchar(3)"),))
    assert missing_sql(odd) == "CAST(NULL AS STRUCT<`it's \\ a``b`: STRING>)"


def test_paths() -> None:
    assert parse_path("a.`b.c`.element") == ("a", "b.c", "element")
    assert format_path(("a", "b.c", "element")) == "a.`b.c`.element"
    for wrong in ("", "a.", ".a", "a..b", "a`b`", "`a", "``"):
        with pytest.raises(InvalidSchema):
            parse_path(wrong)


def test_the_source_of_a_column_is_found_by_id() -> None:
    assert source_of(replace(A, name="other"), [B, A]) == A
    assert source_of(column(9, "a", "int"), [B, A]) is None
