"""Answers about optimization as plain values: for clients, for JSON and for the command line, in the same words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from lakemark_proto.v1.types_pb2 import TableName


def plain(message: Message) -> dict[str, Any]:
    """All fields of a message by their names, as JSON has them."""
    descriptors: Any = message.DESCRIPTOR.fields_by_name
    return {name: plain_value(field, getattr(message, name), plain) for name, field in descriptors.items()}


def plain_value(field: Any, value: Any, part: Callable[[Message], Any]) -> Any:
    """The value of a field: enums are words, tables are names, other messages what ``part`` makes of them."""
    if isinstance(value, TableName):
        return f"{value.database}.{value.table}"
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name.removeprefix("TASK_").lower().removesuffix("unspecified")
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            return dict(value)
        return tuple(part(one) for one in value) if field.is_repeated else part(value)
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
