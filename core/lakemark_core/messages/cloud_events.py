"""Events as CloudEvents 1.0 in structured mode: one JSON object for each (https://github.com/cloudevents/spec).

``data`` has the fields of ``lakemark.v1.Event``, under the names that they have there. Kinds and other enums are words
in lower case, bytes are base64, times are milliseconds since 1970, and schemas have their types as text. What an event
does not have (what was before a creation, the bytes of Hive where no Hive client sent any) is left out.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from lakemark_core.messages.types import schema_from_proto
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.types_pb2 import Schema

CONTENT_TYPE: Final = "application/cloudevents+json"
"""Of a request or a record whose body is one such object."""

BATCH_CONTENT_TYPE: Final = "application/cloudevents-batch+json"
"""Of a JSON array of them."""

_TYPE: Final = "io.lakemark."


def kind_word(kind: int) -> str:
    """``committed``, ``table_created`` …; ``kind_99`` for a kind that this release does not know."""
    value = pb.EventKind.DESCRIPTOR.values_by_number.get(kind)
    return f"kind_{kind}" if value is None else value.name.lower()


def event_id(event: pb.Event) -> str:
    """Epoch and offset, as ``0-42``: in the log of its catalog no other event has it."""
    return f"{event.epoch}-{event.offset}"


def subject(event: pb.Event) -> str:
    """``database.table``, ``database``, or "" for an event of the whole catalog."""
    return f"{event.database}.{event.table}" if event.table else event.database


def source_of(catalog: str) -> str:
    """The ``source`` of the events of a catalog, unless whoever sends them has a better one."""
    return f"/lakemark/{catalog}"


def cloud_event(event: pb.Event, source: str = "") -> dict[str, Any]:
    """The event as a JSON object. ``source`` "": ``source_of`` its catalog.

    ``source`` and ``id`` together name the event: where events of several stores meet, give each store a source.
    """
    attributes = {
        "specversion": "1.0",
        "id": event_id(event),
        "source": source or source_of(event.catalog),
        "type": _TYPE + kind_word(event.kind),
        "subject": subject(event),
        "time": _time(event.time_ms),
        "datacontenttype": "application/json",
        "data": event_data(event),
    }
    if not attributes["subject"]:  # the attribute must not be empty
        del attributes["subject"]
    return attributes


def cloud_event_json(event: pb.Event, source: str = "") -> str:
    """``cloud_event`` as JSON on one line."""
    return json.dumps(cloud_event(event, source), ensure_ascii=False, separators=(",", ":"))


def event_data(event: pb.Event) -> dict[str, Any]:
    """The fields of the event as a JSON object."""
    return _object(event)


def _time(milliseconds: int) -> str:
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03}Z"


def _object(message: Message) -> dict[str, Any]:
    if isinstance(message, Schema):
        return schema_from_proto(message).as_json()
    fields: Iterable[Any] = message.DESCRIPTOR.fields  # of one of two classes, as protobuf is built
    return {field.name: _value(field, getattr(message, field.name)) for field in fields if _is_told(message, field)}


def _is_told(message: Message, field: FieldDescriptor) -> bool:
    if field.has_presence:
        return message.HasField(field.name)
    return field.type != FieldDescriptor.TYPE_BYTES or bool(getattr(message, field.name))


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return dict(value)
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _object(value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(value).decode()
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return f"{field.name}_{value}" if known is None else known.name.lower()
    return value
