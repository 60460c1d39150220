"""Serialized Thrift structs as text of Thrift's JSON protocol, which Hive's notifications hold.

Fields have their ids and types, so a struct is translated as it lies there, without being decoded. A specification is
needed only to tell bytes from text, which look alike on the wire. Texts of later releases' fields survive.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from json.encoder import encode_basestring as quoted
from struct import Struct as Layout
from typing import Any, Final

from lakemark_hms.wire.codec import WireError
from lakemark_hms.wire.cut import BOOL, BYTE, DOUBLE, I16, I32, I64, LIST, MAP, SET, STRING, STRUCT

_NAMES: Final = {
    BOOL: "tf",
    BYTE: "i8",
    DOUBLE: "dbl",
    I16: "i16",
    I32: "i32",
    I64: "i64",
    STRING: "str",
    STRUCT: "rec",
    MAP: "map",
    SET: "set",
    LIST: "lst",
}
_LAYOUTS: Final = {
    BOOL: Layout("!b"),
    BYTE: Layout("!b"),
    I16: Layout("!h"),
    I32: Layout("!i"),
    I64: Layout("!q"),
}
_DOUBLE: Final = Layout("!d")
_LENGTH: Final = Layout("!i")
_NUMBER: Final = Layout("!h")
_BINARY: Final = "BINARY"


def struct_json(data: bytes, spec: tuple[Any, ...] = ()) -> str:
    """The struct at the beginning of ``data``. ``spec``: its ``thrift_spec``. Raises WireError."""
    try:
        return _struct(data, 0, spec)[0]
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise WireError(f"malformed Thrift struct: {error!r}") from None


def _struct(data: bytes, at: int, spec: tuple[Any, ...]) -> tuple[str, int]:
    pieces: list[str] = []
    known = len(spec)
    while ttype := data[at]:
        number = _NUMBER.unpack_from(data, at + 1)[0]
        entry = spec[number] if 0 < number < known else None
        inner = entry[3] if entry is not None and entry[1] == ttype else None
        text, at = _text(data, at + 3, inner) if ttype == STRING else _value(data, at + 3, ttype, inner)
        pieces.append(f'"{number}":{{"{_NAMES[ttype]}":{text}}}')
    return "{" + ",".join(pieces) + "}", at + 1


def _value(data: bytes, at: int, ttype: int, inner: Any) -> tuple[str, int]:
    """``inner``: what a specification says of the elements or fields, or of text."""
    if ttype == STRING:
        return _text(data, at, inner)
    layout = _LAYOUTS.get(ttype)
    if layout is not None:
        return str(layout.unpack_from(data, at)[0]), at + layout.size
    if ttype == STRUCT:
        return _struct(data, at, inner[1] if inner is not None else ())
    if ttype == DOUBLE:
        return _double(_DOUBLE.unpack_from(data, at)[0]), at + 8
    if ttype == MAP:
        return _map(data, at, inner)
    return _list(data, at, inner)


def _text(data: bytes, at: int, inner: Any) -> tuple[str, int]:
    begin = at + 4
    end = begin + _LENGTH.unpack_from(data, at)[0]
    raw = data[begin:end]
    if end < begin or len(raw) != end - begin:
        raise ValueError("a text ends too early")
    if inner != _BINARY:
        try:
            return quoted(raw.decode()), end
        except UnicodeDecodeError:  # a field that the specification does not know
            pass
    return f'"{b64encode(raw).rstrip(b"=").decode()}"', end


def _double(number: float) -> str:
    if math.isnan(number):
        return '"NaN"'
    if math.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    return repr(number)


def _list(data: bytes, at: int, inner: Any) -> tuple[str, int]:
    element = data[at]
    count = _LENGTH.unpack_from(data, at + 1)[0]
    pieces = [f'"{_NAMES[element]}"', str(count)]
    at += 5
    of_element = inner[1] if inner is not None and inner[0] == element else None
    for _ in range(count):
        text, at = _value(data, at, element, of_element)
        pieces.append(text)
    return "[" + ",".join(pieces) + "]", at


def _map(data: bytes, at: int, inner: Any) -> tuple[str, int]:
    key, value = data[at], data[at + 1]
    count = _LENGTH.unpack_from(data, at + 2)[0]
    at += 6
    known = inner is not None and inner[0] == key and inner[2] == value
    pieces: list[str] = []
    for _ in range(count):
        key_text, at = _value(data, at, key, inner[1] if known else None)
        value_text, at = _value(data, at, value, inner[3] if known else None)
        # Keys are texts in JSON; those of other types are quoted, as Thrift does.
        pieces.append((key_text if key == STRING else quoted(key_text)) + ":" + value_text)
    # An empty map may come without types.
    names = f'"{_NAMES.get(key, "str")}","{_NAMES.get(value, "str")}"'
    return f"[{names},{count},{{{','.join(pieces)}}}]", at
