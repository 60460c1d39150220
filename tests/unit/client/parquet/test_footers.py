"""Statistics from footers against the values themselves: bounds are valid, counts are correct or unknown."""

from __future__ import annotations

import datetime as dt
import io
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.client.names import parse_columns
from lakemark.files import ColumnStatistics
from lakemark.parquet import describe_metadata
from lakemark_core.parquet.bounds import TEXT_LENGTH_MAX, cut_bytes, cut_text, read_bound
from lakemark_core.types import BIGINT, DATE, DOUBLE, TIMESTAMP, TIMESTAMP_NTZ, Schema, assign_ids, schema_to_arrow

COLUMNS = """
    i bigint, small tinyint, x double, f float, d decimal(9,2), s string, bin binary, flag boolean, day date,
    ts timestamp, ntz timestamp_ntz, st struct<a:int,b:string>, list array<int>
"""
SCHEMA: Schema = assign_ids(parse_columns(COLUMNS))[0]
ARROW = schema_to_arrow(SCHEMA)


def footer(table: pa.Table, schema: Schema = SCHEMA, **options: Any) -> dict[int, ColumnStatistics]:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    metadata = pq.read_metadata(io.BytesIO(sink.getvalue()))
    return {one.column_id: one for one in describe_metadata(metadata, schema).statistics}


text = st.text(st.characters(codec="utf-8"), max_size=90)
rows = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-128, 127),
        "x": st.none() | st.floats(),
        "f": st.none() | st.floats(width=32),
        "d": st.none() | st.decimals(-9_999_999, 9_999_999, places=2),
        "s": st.none() | text,
        "bin": st.none() | st.binary(max_size=90),
        "flag": st.none() | st.booleans(),
        "day": st.none() | st.dates(),
        "ts": st.none() | st.datetimes(timezones=st.just(dt.UTC)),
        "ntz": st.none() | st.datetimes(),
        "st": st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(-5, 5), "b": st.none() | text}),
        "list": st.none() | st.lists(st.integers(-5, 5), max_size=3),
    }
)


@settings(max_examples=60)
@given(st.lists(rows, min_size=1, max_size=12), st.integers(1, 5))
def test_what_is_said_holds_for_the_values(values: list[dict[str, Any]], group_rows: int) -> None:
    found = footer(pa.Table.from_pylist(values, schema=ARROW), row_group_size=group_rows)

    columns = [(column.id, [row[column.name] for row in values]) for column in SCHEMA.columns]
    struct = SCHEMA.field("st").type
    for field in struct.fields:  # type: ignore[union-attr]
        columns.append((field.id, [row["st"] and row["st"][field.name] for row in values]))
    for column_id, all_values in columns:
        statistics = found.get(column_id, ColumnStatistics(column_id))
        present = [value for value in all_values if value is not None]
        if statistics.null_count is not None:
            assert statistics.null_count == len(all_values) - len(present)
        comparable: list[Any] = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
        if statistics.nan_count is not None:
            assert statistics.nan_count == len(present) - len(comparable)
        if statistics.min is not None:
            assert all(statistics.min <= value for value in comparable)
            assert statistics.min_truncated or statistics.min in comparable
        if statistics.max is not None:
            assert all(value <= statistics.max for value in comparable)
            assert statistics.max_truncated or statistics.max in comparable


def test_known_values_are_not_left_out() -> None:
    when = dt.datetime(2020, 1, 1, 12)
    row = {
        "i": 1,
        "small": 2,
        "x": 0.5,
        "f": 1.5,
        "d": Decimal("1.50"),
        "s": "a",
        "bin": b"b",
        "flag": True,
        "day": when.date(),
        "ts": when.replace(tzinfo=dt.UTC),
        "ntz": when,
        "st": {"a": 7, "b": "z"},
    }
    found = footer(pa.Table.from_pylist([row], schema=ARROW))

    for column in SCHEMA.columns:
        if column.name in row and column.name != "st":
            one = found[column.id]
            assert (one.min, one.max, one.null_count) == (row[column.name], row[column.name], 0), column.name
    inner = SCHEMA.find_path(("st", "a"))
    assert inner is not None
    assert found[inner.id].max == 7
    assert found[SCHEMA.field("x").id].nan_count is None, "Arrow's writer passes over NaN"


def test_columns_are_found_whatever_their_case_and_others_are_passed_over() -> None:
    found = footer(pa.table({"I": [3, None], "other": [1, 2]}))
    assert list(found.values()) == [ColumnStatistics(SCHEMA.field("i").id, 3, 3, 1)]


def test_files_without_statistics_or_rows() -> None:
    assert footer(pa.table({"i": [3]}), write_statistics=False) == {}
    empty = footer(pa.table({"i": pa.array([], pa.int64())}))
    assert empty.get(1, ColumnStatistics(1)).min is None


def test_int96_and_units() -> None:
    moment = pa.array([dt.datetime(2020, 1, 1, 0, 0, 0, 1500)], pa.timestamp("ns"))
    schema = assign_ids(parse_columns("ts timestamp"))[0]
    old = footer(pa.table({"ts": moment}), schema, use_deprecated_int96_timestamps=True).get(1, ColumnStatistics(1))
    assert (old.min, old.max) == (None, None)
    naive = footer(pa.table({"ts": moment}), schema)[1]
    assert naive.min is None, "a wall-clock time says nothing about instants"
    aware = footer(pa.table({"ts": moment.cast(pa.timestamp("ms", "UTC"), safe=False)}), schema)[1]
    assert aware.min == dt.datetime(2020, 1, 1, 0, 0, 0, 1000, tzinfo=dt.UTC)


def test_nanoseconds_are_rounded_outwards() -> None:
    logical = {"Type": "Timestamp", "isAdjustedToUTC": False, "timeUnit": "nanoseconds"}
    low = read_bound(-1, logical, "INT64", TIMESTAMP_NTZ, is_max=False)
    high = read_bound(1, logical, "INT64", TIMESTAMP_NTZ, is_max=True)
    assert (low.value, low.truncated) == (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), True)
    assert (high.value, high.truncated) == (dt.datetime(1970, 1, 1, 0, 0, 0, 1), True)


@pytest.mark.parametrize(
    ("raw", "logical", "physical", "column_type"),
    [
        (math.nan, {"Type": "None"}, "DOUBLE", DOUBLE),
        (10**12, {"Type": "Date"}, "INT32", DATE),
        (2**62, {"Type": "Timestamp", "isAdjustedToUTC": True, "timeUnit": "microseconds"}, "INT64", TIMESTAMP),
        (b"text", {"Type": "String"}, "BYTE_ARRAY", BIGINT),
        (5, {"Type": "None"}, "INT96", TIMESTAMP),
        (None, {"Type": "None"}, "INT64", BIGINT),
    ],
)
def test_what_cannot_be_trusted_is_unknown(raw: Any, logical: dict[str, Any], physical: str, column_type: Any) -> None:
    assert read_bound(raw, logical, physical, column_type, is_max=True).value is None


def test_unsigned_numbers() -> None:
    found = footer(pa.table({"i": pa.array([1, 2**32 - 1], pa.uint32())}))[1]
    assert (found.min, found.max) == (1, 2**32 - 1)


@given(st.text(max_size=200))
def test_cut_texts_enclose_the_text(value: str) -> None:
    low, high = cut_text(value, is_max=False).value, cut_text(value, is_max=True).value
    assert isinstance(low, str)
    assert low <= value
    assert len(low) <= TEXT_LENGTH_MAX
    assert high is None or (isinstance(high, str) and high >= value and len(high) <= TEXT_LENGTH_MAX)


@given(st.binary(max_size=200))
def test_cut_bytes_enclose_the_bytes(value: bytes) -> None:
    low, high = cut_bytes(value, is_max=False).value, cut_bytes(value, is_max=True).value
    assert isinstance(low, bytes)
    assert low <= value
    assert high is None or (isinstance(high, bytes) and high >= value)


def test_the_hard_ends_of_texts() -> None:
    assert cut_text("\U0010ffff" * 65, is_max=True).value is None
    before_surrogates = cut_text("a" * 63 + "\ud7ff" + "b", is_max=True).value
    assert before_surrogates == "a" * 63 + "\ue000"
    assert cut_bytes(b"\xff" * 65, is_max=True).value is None
    assert cut_bytes(b"a\xff" * 40, is_max=True).value == b"a\xff" * 31 + b"b"
