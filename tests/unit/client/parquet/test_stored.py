"""Which files plain Spark would not read as the table's types."""

from __future__ import annotations

import datetime as dt
import io
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark_core.parquet.stored import check_stored
from lakemark_core.types import Field, Schema, check_fits, check_readable, parse_type

NOON = dt.datetime(2024, 1, 1, 12)
BIG = pa.array([Decimal("1.25"), None], pa.decimal128(12, 2))
SMALL = pa.array([Decimal("1.25"), None], pa.decimal128(5, 2))


def reasons(wanted: str, array: pa.Array[Any], **options: Any) -> list[str]:
    """The reasons against a file with one column ``A`` whose Arrow schema fits the table."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"A": array}), sink, **options)
    metadata = pq.read_metadata(sink)
    schema = Schema.build([Field(1, "a", parse_type(wanted))])
    arrow = metadata.schema.to_arrow_schema()
    assert check_fits(schema, arrow) == []
    found = check_stored(schema, metadata)
    assert set(check_readable(schema, arrow)) <= set(found), "who sees less refuses no more"
    return found


@pytest.mark.parametrize(
    ("wanted", "given", "told"),
    [
        ("bigint", pa.int32(), True),
        ("bigint", pa.dictionary(pa.int8(), pa.int32()), True),
        ("bigint", pa.uint16(), True),
        ("bigint", pa.uint32(), False),
        ("bigint", pa.dictionary(pa.int8(), pa.int64()), False),
        ("double", pa.float32(), True),
        ("string", pa.null(), True),
        ("date", pa.null(), False),
        ("array<bigint>", pa.list_(pa.int16()), True),
        ("struct<x:int,y:double>", pa.struct([("Y", pa.float32())]), True),
        ("decimal(12,2)", pa.decimal128(5, 2), False),  # as bytes it can be read
        ("timestamp", pa.timestamp("ns"), False),  # as INT96 it can be read
    ],
)
def test_what_can_be_told_by_the_arrow_schema_alone(wanted: str, given: pa.DataType, told: bool) -> None:
    schema = Schema.build([Field(1, "a", parse_type(wanted))])
    assert check_fits(schema, pa.schema({"A": given})) == []
    assert bool(check_readable(schema, pa.schema({"A": given}))) == told


@pytest.mark.parametrize(
    ("wanted", "array", "options"),
    [
        ("tinyint", pa.array([1], pa.int8()), {}),
        ("smallint", pa.array([255], pa.uint8()), {}),
        ("int", pa.array([1], pa.int16()), {}),
        ("int", pa.array([1], pa.uint8()), {}),
        ("bigint", pa.array([1 << 31], pa.uint32()), {}),
        ("bigint", pa.array([1], pa.int64()).dictionary_encode(), {}),
        ("float", pa.array([1.0], pa.float32()), {}),
        ("double", pa.array([1.0]), {}),
        ("decimal(9,2)", SMALL, {"store_decimal_as_integer": True}),
        ("decimal(18,2)", BIG, {"store_decimal_as_integer": True}),
        ("decimal(38,2)", SMALL, {}),
        ("string", pa.array(["a"], pa.large_string()), {}),
        ("binary", pa.array([b"abcd"], pa.binary(4)), {}),
        ("date", pa.array([dt.date(2024, 1, 1)], pa.date64()), {}),
        ("timestamp", pa.array([NOON], pa.timestamp("ms", "Europe/Berlin")), {}),
        ("timestamp", pa.array([NOON], pa.timestamp("ns")), {"use_deprecated_int96_timestamps": True}),
        ("timestamp_ntz", pa.array([NOON], pa.timestamp("s")), {}),
        ("int", pa.nulls(2), {}),
        ("int", pa.array([1], pa.int32()), {"compression": "zstd", "data_page_version": "2.0"}),
        ("array<struct<x:int,y:map<string,bigint>>>", pa.array([[{"y": [("k", 1)], "x": 2}]], pa.list_(
            pa.struct([("y", pa.map_(pa.string(), pa.int64())), ("X", pa.int32())]))), {}),
    ],
)  # fmt: skip
def test_what_spark_reads_exactly(wanted: str, array: pa.Array[Any], options: dict[str, Any]) -> None:
    assert reasons(wanted, array, **options) == []


@pytest.mark.parametrize(
    ("wanted", "array", "options", "told"),
    [
        ("bigint", pa.array([1], pa.int32()), {}, "a is bigint in the table and int32, stored as INT32, in the file"),
        ("bigint", pa.array([1], pa.uint16()), {}, "uint16, stored as INT32, in the file"),
        ("double", pa.array([1.0], pa.float32()), {}, "float, stored as FLOAT, .* write it as double"),
        ("decimal(12,2)", SMALL, {"store_decimal_as_integer": True}, "stored as INT32, .* write it as decimal128.12"),
        ("decimal(20,2)", BIG, {"store_decimal_as_integer": True}, "stored as INT64, .* write it as decimal128.20, 2"),
        ("timestamp", pa.array([NOON], pa.timestamp("ns")), {}, "stored as INT64, .* write it as timestamp.us, tz=UTC"),
        ("int", pa.array([1], pa.int32()), {"compression": "brotli"}, "a is stored with BROTLI"),
        ("double", pa.array([1.0]), {"column_encoding": {"A": "BYTE_STREAM_SPLIT"}, "use_dictionary": False},
         "a is stored with BYTE_STREAM_SPLIT"),
        ("string", pa.nulls(2), {}, "a is string in the table and has nothing but nulls, .* leave it out of the file"),
        ("array<int>", pa.nulls(2), {}, r"a is array<int> in the table and has nothing but nulls"),
        ("array<bigint>", pa.array([[1]], pa.list_(pa.int32())), {}, "a.element is bigint"),
        ("map<string,double>", pa.array([[("k", 1)]], pa.map_(pa.string(), pa.float32())), {}, "a.value is double"),
        ("struct<x:int,y:bigint>", pa.array([{"Y": 1, "x": 2}], pa.struct([("Y", pa.int32()), ("x", pa.int32())])), {},
         "a.y is bigint in the table and int32"),
    ],
)  # fmt: skip
def test_what_it_does_not_read_is_told(wanted: str, array: pa.Array[Any], options: dict[str, Any], told: str) -> None:
    (reason,) = reasons(wanted, array, **options)
    assert re.search(told, reason.replace("'", ""), re.IGNORECASE), reason
