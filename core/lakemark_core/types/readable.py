"""Whether plain Spark reads a data file's columns as the table's types.

Spark's vectorized reader asks for the type of the table. What it makes of another one in the file depends on its
release: the rules here are those of Spark 3.5, which later ones contain; ``tests/e2e/test_lake_schema.py`` holds
them against both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lakemark_core.types.arrow import to_arrow
from lakemark_core.types.model import (
    BIGINT,
    DOUBLE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Decimal,
    ListOf,
    MapOf,
    Primitive,
    Struct,
    Type,
)
from lakemark_core.types.primitives import PRIMITIVES, ValueKind
from lakemark_core.types.schema import Schema
from lakemark_core.types.text import format_type

_BYTES: Final = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_FLOATING: Final[dict[pa.DataType, str]] = {
    record.arrow: record.parquet for record in PRIMITIVES.values() if record.kind is ValueKind.FLOATING
}
_STORED_NULLS: Final = "INT32"
"""The parquet type of a column that was written without a type."""
_BITS_OF_INT64: Final = 64
_DIGITS_OF_INT32: Final = 9
_DIGITS_OF_INT64: Final = 18


def check_readable(schema: Schema, file_schema: pa.Schema) -> list[str]:
    """Why plain Spark does not read files of this Arrow schema, which fits (``check_fits``), as ``schema`` has them.

    An Arrow schema does not tell how a file stores decimals and nanoseconds, nor how it is compressed and encoded. All
    of these count as readable here; ``lakemark_core.parquet.stored`` checks them in the files.
    """
    return [
        reason for leaf in leaves_of(schema, file_schema) for reason in misread(leaf, _surely_stored(leaf.given), {})
    ]


class Leaf(NamedTuple):
    """A column of a file without columns below it: its type in the table, and its Arrow type."""

    name: str
    wanted: Type
    given: pa.DataType


def leaves_of(schema: Schema, file_schema: pa.Schema) -> Iterator[Leaf]:
    """The columns of files of this Arrow schema, which fits, in their order."""
    for field in file_schema:
        yield from _leaves(schema.field(field.name).type, field.type, field.name)


def misread(leaf: Leaf, physical: str, logical: dict[str, Any]) -> list[str]:
    """Why Spark does not read the column; empty if it does.

    ``physical`` is the column's physical parquet type, "" if it is not known; ``logical`` is its logical type as JSON.
    """
    name, wanted, given = leaf
    if pa.types.is_null(given):
        if isinstance(wanted, Primitive) and wanted.record.parquet == _STORED_NULLS:
            return []
        return [
            f"column '{name}' is {format_type(wanted)} in the table and has nothing but nulls, without a type, "
            "in the file, which Spark cannot read: leave it out of the file, or give it the type"
        ]
    if not physical or _read_exactly(wanted, physical, logical):
        return []
    return [
        f"column '{name}' is {format_type(wanted)} in the table and {given}, stored as {physical}, in the file, which "
        f"Spark 3.5 cannot read as {format_type(wanted)}: write it as {to_arrow(wanted)}"
    ]


def _surely_stored(given: pa.DataType) -> str:
    """The parquet type that every writer stores an Arrow type as; "" where there are several."""
    if isinstance(given, pa.DictionaryType):
        return _surely_stored(given.value_type)
    if pa.types.is_integer(given) and given != pa.uint32():
        return "INT64" if given.bit_width == _BITS_OF_INT64 else "INT32"
    return _FLOATING.get(given, "")


def _leaves(wanted: Type, given: pa.DataType, name: str) -> Iterator[Leaf]:
    match wanted:
        case Struct(fields) if isinstance(given, pa.StructType):
            types = {field.name.lower(): field.type for field in fields}
            for index in range(given.num_fields):
                inner = given.field(index)
                yield from _leaves(types[inner.name.lower()], inner.type, f"{name}.{inner.name}")
        case ListOf(element) if isinstance(given, pa.ListType | pa.LargeListType):
            yield from _leaves(element, given.value_type, name + ".element")
        case MapOf(key, value) if isinstance(given, pa.MapType):
            yield from _leaves(key, given.key_type, name + ".key")
            yield from _leaves(value, given.item_type, name + ".value")
        case _:
            yield Leaf(name, wanted, given)


def _read_exactly(wanted: Type, physical: str, logical: dict[str, Any]) -> bool:
    if wanted == BIGINT:
        # An unsigned INT32 is the one narrower integer that Spark reads as bigint.
        unsigned = logical.get("isSigned") is False and logical.get("bitWidth") == 32
        return physical == "INT64" or unsigned
    if wanted == DOUBLE:
        return physical == "DOUBLE"
    if isinstance(wanted, Decimal):
        if wanted.precision <= _DIGITS_OF_INT32:
            return physical == "INT32" or physical in _BYTES
        return physical in _BYTES or (physical == "INT64" and wanted.precision <= _DIGITS_OF_INT64)
    if wanted in (TIMESTAMP, TIMESTAMP_NTZ):
        return physical == "INT96" or logical.get("timeUnit") in ("milliseconds", "microseconds")
    return True
