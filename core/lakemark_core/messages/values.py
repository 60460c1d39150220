"""Column values and partitions as the protobuf messages of ``lakemark.v1``, and back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal as PyDecimal
from decimal import InvalidOperation

from lakemark_core.errors import InvalidArgument
from lakemark_core.types import (
    BINARY,
    BOOLEAN,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ColumnValue,
    Decimal,
    Schema,
    Type,
    format_type,
    is_floating,
    is_integer,
    is_textual,
)
from lakemark_proto.v1 import types_pb2 as pb

_EPOCH_DATE = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


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
