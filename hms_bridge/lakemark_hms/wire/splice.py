"""Replies joined from structs that are already serialized, without decoding or encoding them again.

A *piece* is the bytes of one value or of one field. Functions ending in ``_field`` make a field of a struct, ``struct``
puts fields together, and the ``reply`` functions put a whole message around a value. All pieces are joined once, at the
end.

    reply_struct_list("get_partitions", seqid, stored)
    reply_struct("get_table_req", seqid, struct(struct_field(1, stored)))
    reply_struct("get_partitions_by_expr", seqid, struct(struct_list_field(1, stored), bool_field(2, False)))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct as Layout
from typing import NamedTuple

from lakemark_hms.wire.codec import REPLY, encode_struct, message_head
from lakemark_hms.wire.cut import BOOL, LIST, MAP, STRING, STRUCT, field_head

__all__ = [
    "Pieces",
    "Strings",
    "bool_field",
    "encode_struct",
    "i32_value",
    "i64_value",
    "reply_struct",
    "reply_struct_list",
    "reply_value",
    "string_list_of_pages",
    "string_list_value",
    "string_map_value",
    "string_value",
    "struct",
    "struct_field",
    "struct_list_field",
    "struct_list_map_field",
    "struct_list_value",
    "value_field",
]

# Bytes that follow each other on the wire.
Pieces = Sequence[bytes]

_COUNT = Layout("!i")
_LONG = Layout("!q")


def reply_value(name: str, seqid: int, ttype: int, value: Iterable[bytes], field_id: int = 0) -> bytes:
    """A whole reply whose result has one field, by default the success."""
    return b"".join([message_head(name, REPLY, seqid), field_head(ttype, field_id), *value, b"\0"])


def reply_struct(name: str, seqid: int, value: bytes | Pieces, field_id: int = 0) -> bytes:
    """A whole reply of a method that returns a struct."""
    return reply_value(name, seqid, STRUCT, (value,) if isinstance(value, bytes) else value, field_id)


def reply_struct_list(name: str, seqid: int, values: Sequence[bytes], field_id: int = 0) -> bytes:
    """A whole reply of a method that returns a list of structs."""
    return reply_value(name, seqid, LIST, _struct_list(values), field_id)


def struct(*parts: Pieces) -> Pieces:
    """A struct of these fields."""
    return [piece for part in parts for piece in part] + [b"\0"]


def struct_field(field_id: int, value: bytes | Pieces) -> Pieces:
    return [field_head(STRUCT, field_id), *((value,) if isinstance(value, bytes) else value)]


def struct_list_field(field_id: int, values: Sequence[bytes]) -> Pieces:
    return [field_head(LIST, field_id), *_struct_list(values)]


def struct_list_map_field(field_id: int, values: Mapping[str, Sequence[bytes]]) -> Pieces:
    """A map from text to lists of structs, as ``PartitionsStatsResult`` has it."""
    head = field_head(MAP, field_id) + bytes((STRING, LIST)) + _COUNT.pack(len(values))
    return [head, *(piece for key, structs in values.items() for piece in (string_value(key), *_struct_list(structs)))]


def bool_field(field_id: int, value: bool) -> Pieces:
    return [field_head(BOOL, field_id), b"\x01" if value else b"\x00"]


def value_field(ttype: int, field_id: int, value: bytes) -> Pieces:
    """A field of any type from its encoded value."""
    return [field_head(ttype, field_id), value]


def string_value(text: str) -> bytes:
    data = text.encode()
    return _COUNT.pack(len(data)) + data


def i32_value(number: int) -> bytes:
    return _COUNT.pack(number)


def i64_value(number: int) -> bytes:
    return _LONG.pack(number)


def string_list_value(texts: Sequence[str]) -> bytes:
    return b"".join([bytes((STRING,)), _COUNT.pack(len(texts)), *map(string_value, texts)])


class Strings(NamedTuple):
    """Encoded strings that follow each other, and how many there are."""

    number: int
    data: bytes

    @classmethod
    def of(cls, texts: Sequence[str]) -> Strings:
        return cls(len(texts), b"".join(map(string_value, texts)))


def string_list_of_pages(pages: Sequence[Strings]) -> Pieces:
    """The list of all these strings."""
    return [bytes((STRING,)), _COUNT.pack(sum(page.number for page in pages)), *(page.data for page in pages)]


def string_map_value(texts: Mapping[str, str]) -> bytes:
    head = bytes((STRING, STRING)) + _COUNT.pack(len(texts))
    return head + b"".join(string_value(text) for item in texts.items() for text in item)


def struct_list_value(values: Sequence[bytes]) -> bytes:
    return b"".join(_struct_list(values))


def _struct_list(values: Sequence[bytes]) -> Pieces:
    return [bytes((STRUCT,)) + _COUNT.pack(len(values)), *values]
