"""Column values and partitions as the protobuf messages of ``lakemark.v1``, and back."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import InvalidOperation

from lakemark_core.errors import InvalidArgument
from lakemark_core.types import CODECS, ColumnValue, Schema, Type, format_type
from lakemark_proto.v1 import types_pb2 as pb


def value_to_proto(value: ColumnValue, column_type: Type) -> pb.Value:
    """Raises InvalidArgument if the value is not one of the type."""
    if value is None:
        return pb.Value(null=True)
    if column_type.kind is None:
        raise _not_of_type(value, column_type)
    message = pb.Value()
    try:
        setattr(message, column_type.kind, CODECS[column_type.kind].to_plain(value))
    except (TypeError, ValueError, AttributeError) as error:
        raise _not_of_type(value, column_type) from error
    return message


def value_from_proto(message: pb.Value, column_type: Type) -> ColumnValue:
    """Raises InvalidArgument if the message's kind does not belong to the type, or the value is out of its range."""
    kind = message.WhichOneof("kind")
    if kind == "null":
        return None
    if kind is None or column_type.kind != kind:
        raise InvalidArgument(f"a value of kind {kind or 'none'} is given where the type is {format_type(column_type)}")
    try:
        return CODECS[column_type.kind].from_plain(getattr(message, kind))
    except (ValueError, OverflowError, InvalidOperation) as error:
        raise InvalidArgument(f"{message} is out of range for type {format_type(column_type)}") from error


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


def _not_of_type(value: ColumnValue, column_type: Type) -> InvalidArgument:
    return InvalidArgument(f"{value!r} is not a value of type {format_type(column_type)}")
