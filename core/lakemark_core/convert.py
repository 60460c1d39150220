"""Between the protobuf messages of ``lakemark.v1`` and the plain values that code works with.

Column values are Python's own: None, bool, int, float, str, bytes, ``decimal.Decimal``, ``datetime.date`` and
``datetime.datetime`` (with UTC for timestamp, naive for timestamp_ntz).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal as PyDecimal
from decimal import InvalidOperation
from typing import TypeAlias

from lakemark_core.errors import InvalidArgument, InvalidSchema
from lakemark_core.types import (
    BINARY,
    BOOLEAN,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Decimal,
    Field,
    ListOf,
    MapOf,
    Schema,
    Struct,
    Type,
    format_type,
    is_floating,
    is_integer,
    is_textual,
    parse_type,
)
from lakemark_proto.v1 import types_pb2 as pb

ColumnValue: TypeAlias = bool | int | float | str | bytes | PyDecimal | dt.date | dt.datetime | None

_EPOCH_DATE = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def type_from_proto(message: pb.Type) -> Type:
    match message.WhichOneof("kind"):
        case "primitive":
            return parse_type(message.primitive)
        case "struct":
            return Struct(tuple(field_from_proto(field) for field in message.struct.fields))
        case "list":
            element = message.list.element
            return ListOf(type_from_proto(element.type), element.id, not element.required)
        case "map":
            key, value = message.map.key, message.map.value
            return MapOf(type_from_proto(key.type), type_from_proto(value.type), key.id, value.id, not value.required)
        case _:
            raise InvalidSchema("a column has no type")


def type_to_proto(column_type: Type) -> pb.Type:
    match column_type:
        case Struct(fields):
            return pb.Type(struct=pb.StructType(fields=[field_to_proto(field) for field in fields]))
        case ListOf(element, element_id, nullable):
            return pb.Type(list=pb.ListType(element=field_to_proto(Field(element_id, "element", element, nullable))))
        case MapOf(key, value, key_id, value_id, nullable):
            return pb.Type(
                map=pb.MapType(
                    key=field_to_proto(Field(key_id, "key", key, nullable=False)),
                    value=field_to_proto(Field(value_id, "value", value, nullable)),
                )
            )
        case _:
            return pb.Type(primitive=format_type(column_type))


def field_from_proto(message: pb.Column) -> Field:
    try:
        column_type = type_from_proto(message.type)
    except InvalidSchema as error:
        raise InvalidSchema(f"column {message.name!r}: {error.message}") from error
    return Field(message.id, message.name, column_type, not message.required, message.comment)


def field_to_proto(field: Field) -> pb.Column:
    return pb.Column(
        id=field.id,
        name=field.name,
        type=type_to_proto(field.type),
        required=not field.nullable,
        comment=field.comment,
    )


def schema_from_proto(message: pb.Schema) -> Schema:
    """A checked schema. Raises InvalidSchema."""
    columns = [field_from_proto(column) for column in message.columns]
    return Schema.build(columns, list(message.partition_columns), message.schema_id)


def schema_to_proto(schema: Schema) -> pb.Schema:
    return pb.Schema(
        schema_id=schema.schema_id,
        columns=[field_to_proto(column) for column in schema.columns],
        partition_columns=schema.partition_columns,
    )


def value_to_proto(value: ColumnValue, column_type: Type) -> pb.Value:
    """Raises InvalidArgument if the value is not one of the type."""
    if value is None:
        return pb.Value(null=True)
    try:
        return _present_to_proto(value, column_type)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"{value!r} is not a value of type {format_type(column_type)}") from error


def _present_to_proto(value: ColumnValue, column_type: Type) -> pb.Value:
    if column_type == BOOLEAN and isinstance(value, bool):
        return pb.Value(boolean=value)
    if is_integer(column_type) and isinstance(value, int) and not isinstance(value, bool):
        return pb.Value(integer=value)
    if is_floating(column_type) and isinstance(value, int | float):
        return pb.Value(floating=value)
    if is_textual(column_type) and isinstance(value, str):
        return pb.Value(text=value)
    if column_type == BINARY and isinstance(value, bytes):
        return pb.Value(binary=value)
    if isinstance(column_type, Decimal) and isinstance(value, PyDecimal | int):
        return pb.Value(decimal=format(PyDecimal(value), "f"))
    if column_type == DATE and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return pb.Value(date=(value - _EPOCH_DATE).days)
    if column_type == TIMESTAMP and isinstance(value, dt.datetime) and value.tzinfo is not None:
        return pb.Value(timestamp=(value.astimezone(dt.UTC).replace(tzinfo=None) - _EPOCH) // _MICROSECOND)
    if column_type == TIMESTAMP_NTZ and isinstance(value, dt.datetime) and value.tzinfo is None:
        return pb.Value(timestamp_ntz=(value - _EPOCH) // _MICROSECOND)
    raise TypeError


def value_from_proto(message: pb.Value, column_type: Type) -> ColumnValue:
    """Raises InvalidArgument if the message's kind does not belong to the type, or the value is out of its range."""
    kind = message.WhichOneof("kind")
    if kind == "null":
        return None
    try:
        value = _present_from_proto(message, kind, column_type)
    except (ValueError, OverflowError, InvalidOperation) as error:
        raise InvalidArgument(f"{message} is out of range for type {format_type(column_type)}") from error
    if value is None:
        raise InvalidArgument(f"a value of kind {kind or 'none'} is given where the type is {format_type(column_type)}")
    return value


def _present_from_proto(message: pb.Value, kind: str | None, column_type: Type) -> ColumnValue:
    if kind == "boolean" and column_type == BOOLEAN:
        return message.boolean
    if kind == "integer" and is_integer(column_type):
        return message.integer
    if kind == "floating" and is_floating(column_type):
        return message.floating
    if kind == "text" and is_textual(column_type):
        return message.text
    if kind == "binary" and column_type == BINARY:
        return message.binary
    if kind == "decimal" and isinstance(column_type, Decimal):
        return PyDecimal(message.decimal)
    if kind == "date" and column_type == DATE:
        return _EPOCH_DATE + dt.timedelta(days=message.date)
    if kind == "timestamp" and column_type == TIMESTAMP:
        return (_EPOCH + dt.timedelta(microseconds=message.timestamp)).replace(tzinfo=dt.UTC)
    if kind == "timestamp_ntz" and column_type == TIMESTAMP_NTZ:
        return _EPOCH + dt.timedelta(microseconds=message.timestamp_ntz)
    return None


def partition_to_proto(values: Sequence[ColumnValue], schema: Schema) -> list[pb.Value]:
    """The values of one partition, in the order of the partition columns."""
    fields = schema.partition_fields
    if len(values) != len(fields):
        raise InvalidArgument(f"{len(values)} partition values for the {len(fields)} partition columns of the table")
    return [value_to_proto(value, field.type) for value, field in zip(values, fields, strict=True)]


def partition_from_proto(values: Sequence[pb.Value], schema: Schema) -> tuple[ColumnValue, ...]:
    fields = schema.partition_fields
    if len(values) != len(fields):
        names = ", ".join(field.name for field in fields) or "none"
        raise InvalidArgument(f"{len(values)} partition values are given; the partition columns are: {names}")
    return tuple(value_from_proto(value, field.type) for value, field in zip(values, fields, strict=True))
