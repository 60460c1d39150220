"""Types as Arrow types, and whether a data file's Arrow schema fits a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import pyarrow as pa

from lakemark_core.types.model import (
    INTEGER_BITS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Char,
    Decimal,
    Field,
    ListOf,
    MapOf,
    Primitive,
    Struct,
    Type,
    Varchar,
)
from lakemark_core.types.primitives import ValueKind
from lakemark_core.types.schema import Schema
from lakemark_core.types.text import format_type

_ArrowField: TypeAlias = "pa.Field[Any]"
_FIELD_ID_KEY = b"PARQUET:field_id"


def to_arrow(column_type: Type) -> pa.DataType:
    """The Arrow type in which Lakemark holds values of a column type; nested fields carry their parquet field ids."""
    match column_type:
        case Primitive():
            return column_type.record.arrow
        case Varchar() | Char():
            return pa.string()
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Struct(fields):
            return pa.struct([_arrow_field(field) for field in fields])
        case ListOf(element, element_id, nullable):
            return pa.list_(_arrow_field(Field(element_id, "element", element, nullable)))
        case MapOf(key, value, key_id, value_id, nullable):
            # The stubs know map_ of two types only; it takes fields as well.
            build_map = cast("Callable[[_ArrowField, _ArrowField], pa.DataType]", pa.map_)
            key_field = _arrow_field(Field(key_id, "key", key, nullable=False))
            return build_map(key_field, _arrow_field(Field(value_id, "value", value, nullable)))


def schema_to_arrow(schema: Schema) -> pa.Schema:
    """All columns of the table in their Arrow types (``to_arrow``), partition columns last."""
    return pa.schema([_arrow_field(column) for column in schema.columns])


def check_fits(schema: Schema, file_schema: pa.Schema) -> list[str]:
    """Why a data file with this Arrow schema (of its parquet footer) does not fit the table; empty if it fits.

    Columns are matched by name, whatever their case and order. A nullable column may be missing. Integers may be
    narrower than the table's, float may stand for double, a decimal may have fewer digits at the same scale.
    Partition columns must not be in the file: their values come from the partition, and two values could differ.
    """
    partitions = [name for name in file_schema.names if schema.is_partition(name)]
    reasons = [f"column '{name}' is a partition column: leave it out of the file" for name in partitions]
    fields = [field for field in file_schema if not schema.is_partition(field.name)]
    return reasons + _fields_misfit(schema.data_columns, fields, "")


def _arrow_field(field: Field) -> _ArrowField:
    metadata: dict[bytes | str, bytes | str] | None = {_FIELD_ID_KEY: str(field.id).encode()} if field.id else None
    return pa.field(field.name, to_arrow(field.type), nullable=field.nullable, metadata=metadata)


def _fields_misfit(wanted: Sequence[Field], given: Sequence[_ArrowField], prefix: str) -> list[str]:
    reasons: list[str] = []
    by_name: dict[str, _ArrowField] = {}
    for arrow_field in given:
        if arrow_field.name.lower() in by_name:
            reasons.append(f"the file has column '{prefix}{arrow_field.name}' twice (case does not matter)")
        by_name[arrow_field.name.lower()] = arrow_field
    for field in wanted:
        arrow_column = by_name.pop(field.name.lower(), None)
        if arrow_column is not None:
            reasons += _type_misfit(field.type, arrow_column.type, prefix + field.name)
        elif not field.nullable:
            reasons.append(f"column '{prefix}{field.name}' is NOT NULL in the table and missing in the file")
    reasons += [f"column '{prefix}{field.name}' of the file is not in the table" for field in by_name.values()]
    return reasons


def _type_misfit(wanted: Type, given: pa.DataType, name: str) -> list[str]:
    if isinstance(given, pa.DictionaryType):
        given = given.value_type
    match wanted:
        case Struct(fields) if isinstance(given, pa.StructType):
            return _fields_misfit(fields, [given.field(index) for index in range(given.num_fields)], name + ".")
        case ListOf(element) if isinstance(given, pa.ListType | pa.LargeListType):
            return _type_misfit(element, given.value_type, name + ".element")
        case MapOf(key, value) if isinstance(given, pa.MapType):
            return _type_misfit(key, given.key_type, name + ".key") + _type_misfit(
                value, given.item_type, name + ".value"
            )
    if pa.types.is_null(given) or _simple_fits(wanted, given):
        return []
    advice = _TIMESTAMP_ADVICE.get(wanted, "") if pa.types.is_timestamp(given) else ""
    return [f"column '{name}' is {format_type(wanted)} in the table and {given} in the file{advice}"]


_TIMESTAMP_ADVICE: dict[Type, str] = {
    TIMESTAMP: "; write microseconds, adjusted to UTC",
    TIMESTAMP_NTZ: "; write microseconds without a time zone",
}


def _simple_fits(wanted: Type, given: pa.DataType) -> bool:
    match wanted.kind:
        case ValueKind.INTEGER:
            # An unsigned type needs one bit more: Spark, too, reads uint8 as smallint.
            if pa.types.is_signed_integer(given):
                return given.bit_width <= INTEGER_BITS[wanted]
            return pa.types.is_unsigned_integer(given) and given.bit_width * 2 <= INTEGER_BITS[wanted]
        case ValueKind.FLOATING:
            return pa.types.is_float32(given) or given == to_arrow(wanted)
        case ValueKind.TEXT:
            return pa.types.is_string(given) or pa.types.is_large_string(given) or pa.types.is_string_view(given)
        case ValueKind.BINARY:
            return pa.types.is_binary(given) or pa.types.is_large_binary(given) or pa.types.is_fixed_size_binary(given)
        case ValueKind.DECIMAL if isinstance(wanted, Decimal):
            return isinstance(given, pa.Decimal128Type) and (
                given.scale == wanted.scale and given.precision <= wanted.precision
            )
        case ValueKind.TIMESTAMP | ValueKind.TIMESTAMP_NTZ:
            return isinstance(given, pa.TimestampType) and _timestamp_fits(wanted, given)
        case None:
            return False
    return given == to_arrow(wanted)


def _timestamp_fits(wanted: Type, given: pa.TimestampType[Any, Any]) -> bool:
    if str(given.unit) == "ns":
        # Parquet's INT96, Spark's default, is an instant that Arrow shows as naive nanoseconds; Spark reads no others.
        return wanted == TIMESTAMP and given.tz is None
    return (given.tz is not None) == (wanted == TIMESTAMP)
