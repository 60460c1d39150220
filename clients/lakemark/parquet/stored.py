"""How a parquet file stores its columns, and whether plain Spark reads that as the table's types.

Spark's vectorized reader asks for the type of the table. What it makes of another one in the file depends on its
release: the rules here are those of Spark 3.5, which later ones contain; ``tests/e2e/test_lake_schema.py`` holds
them against both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    SMALLINT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    Decimal,
    ListOf,
    MapOf,
    Schema,
    Struct,
    Type,
    format_type,
    to_arrow,
)

_BYTES: Final = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_DIGITS_OF_INT32: Final = 9
_DIGITS_OF_INT64: Final = 18
_NOT_IN_SPARK: Final = frozenset({"BROTLI", "LZO", "BYTE_STREAM_SPLIT"})
"""Compressions and encodings."""


def check_stored(schema: Schema, metadata: pq.FileMetaData) -> list[str]:
    """Why plain Spark does not read a file's columns as ``schema`` has them; empty if it reads them exactly.

    The file fits by its Arrow schema (``lakemark.types.check_fits``), as what Lakemark's own readers cast does.
    """
    reasons = []
    fields = metadata.schema.to_arrow_schema()
    leaves = (leaf for field in fields for leaf in _leaves(schema.field(field.name).type, field.type, field.name))
    for index, (name, wanted, given) in enumerate(leaves):
        stored = metadata.schema.column(index)
        reasons += [
            f"column '{name}' is stored with {one}, which Spark 3.5 cannot read: write the file without that"
            for one in _manners(metadata, index) & _NOT_IN_SPARK
        ]
        if pa.types.is_null(given):
            if wanted not in (TINYINT, SMALLINT, INT, DATE):  # the types that are INT32 in parquet, as nulls are
                reasons.append(
                    f"column '{name}' is {format_type(wanted)} in the table and has nothing but nulls, without a type, "
                    "in the file, which Spark cannot read: leave it out of the file, or give it the type"
                )
        elif not _read_exactly(wanted, stored.physical_type, json.loads(stored.logical_type.to_json())):
            reasons.append(
                f"column '{name}' is {format_type(wanted)} in the table and {given}, stored as {stored.physical_type}, "
                f"in the file, which Spark 3.5 cannot read as {format_type(wanted)}: write it as {to_arrow(wanted)}"
            )
    return reasons


def _manners(metadata: pq.FileMetaData, index: int) -> set[str]:
    """The compressions and encodings of a column."""
    chunks = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
    return {manner for chunk in chunks for manner in (chunk.compression, *chunk.encodings)}


def _leaves(wanted: Type, given: pa.DataType, name: str) -> Iterator[tuple[str, Type, pa.DataType]]:
    """The columns of the file in their order: name, type in the table, type in the file."""
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
            yield name, wanted, given


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
