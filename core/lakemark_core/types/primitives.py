"""The table of primitive types: one record for each type without parameters.

Whatever spells a type is derived from these records, or is held against them by
``tests/unit/core/types/test_primitives.py``. What the code does with *values* depends on their ``ValueKind`` alone, so
that a type of a known kind needs a record and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import pyarrow as pa


class ValueKind(StrEnum):
    """What the values of a type are. The names are those of the fields of ``lakemark.v1.Value``."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOATING = "floating"
    TEXT = "text"
    BINARY = "binary"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"


@dataclass(frozen=True, slots=True)
class PrimitiveRecord:
    """What one type is called, and how it is stored.

    ``name`` is how Hive and Spark SQL write the type; ``spark_name`` is what Spark writes in the JSON of its schemas.
    ``parquet`` is the physical type that writers use. ``bits`` is the width of an integer, and ``decimal_digits`` the
    precision of the decimal that Spark makes of it beside a decimal; ``significand_bits`` is the width of the integers
    that a floating-point type holds exactly. ``literal_suffix`` is the letter that Spark SQL puts behind a constant of
    the type.
    """

    name: str
    kind: ValueKind
    arrow: pa.DataType
    parquet: str
    spark_name: str
    aliases: tuple[str, ...] = ()
    bits: int = 0
    decimal_digits: int = 0
    significand_bits: int = 0
    literal_suffix: str = ""


# Types of one kind stand in the order of their width: the last one holds the values of all of them.
_RECORDS: Final = (
    PrimitiveRecord("boolean", ValueKind.BOOLEAN, pa.bool_(), "BOOLEAN", "boolean"),
    PrimitiveRecord(
        "tinyint",
        ValueKind.INTEGER,
        pa.int8(),
        "INT32",
        "byte",
        aliases=("byte",),
        bits=8,
        decimal_digits=3,
        literal_suffix="Y",
    ),
    PrimitiveRecord(
        "smallint",
        ValueKind.INTEGER,
        pa.int16(),
        "INT32",
        "short",
        aliases=("short",),
        bits=16,
        decimal_digits=5,
        literal_suffix="S",
    ),
    PrimitiveRecord(
        "int", ValueKind.INTEGER, pa.int32(), "INT32", "integer", aliases=("integer",), bits=32, decimal_digits=10
    ),
    PrimitiveRecord(
        "bigint",
        ValueKind.INTEGER,
        pa.int64(),
        "INT64",
        "long",
        aliases=("long",),
        bits=64,
        decimal_digits=20,
        literal_suffix="L",
    ),
    PrimitiveRecord(
        "float", ValueKind.FLOATING, pa.float32(), "FLOAT", "float", aliases=("real",), significand_bits=24
    ),
    PrimitiveRecord("double", ValueKind.FLOATING, pa.float64(), "DOUBLE", "double", significand_bits=53),
    PrimitiveRecord("string", ValueKind.TEXT, pa.string(), "BYTE_ARRAY", "string"),
    PrimitiveRecord("binary", ValueKind.BINARY, pa.binary(), "BYTE_ARRAY", "binary"),
    PrimitiveRecord("date", ValueKind.DATE, pa.date32(), "INT32", "date"),
    PrimitiveRecord(
        "timestamp",
        ValueKind.TIMESTAMP,
        pa.timestamp("us", tz="UTC"),
        "INT64",
        "timestamp",
        aliases=("timestamp_ltz",),
    ),
    PrimitiveRecord("timestamp_ntz", ValueKind.TIMESTAMP_NTZ, pa.timestamp("us"), "INT64", "timestamp_ntz"),
)

PRIMITIVES: Final = {record.name: record for record in _RECORDS}
"""The records by name."""
