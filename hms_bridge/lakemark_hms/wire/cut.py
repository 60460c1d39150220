"""Takes serialized structs apart without losing a byte: spans, shallow indexes, patches.

Lakemark stores structs as clients sent them, so that fields survive which only other releases know. These functions
find the bytes of a struct in a request, and change single fields of a stored struct.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from lakemark_hms.wire.codec import WireError, decode_with_end, end_of_struct, read_i32
from lakemark_thrift.base import DeclaredError, Struct

BOOL, BYTE, DOUBLE, I16, I32, I64 = 2, 3, 4, 6, 8, 10
STRING, STRUCT, MAP, SET, LIST = 11, 12, 13, 14, 15

_FIXED = {BOOL: 1, BYTE: 1, DOUBLE: 8, I16: 2, I32: 4, I64: 8}
_NESTING_MAX = 64

T = TypeVar("T", bound="Struct | DeclaredError")


class Field(NamedTuple):
    """The wire type of a field, and where its value starts and ends. The three bytes before it are its header."""

    ttype: int
    start: int
    end: int


class Cut(NamedTuple, Generic[T]):
    """A struct as it was sent: decoded, and as bytes, which have also the fields that ``value`` does not know."""

    value: T
    raw: bytes


def fields(data: bytes, at: int = 0) -> dict[int, Field]:
    """The top-level fields of the struct at ``at``, by field id. Raises WireError."""
    return dict(_walk(data, at))


def find(data: bytes, at: int, path: tuple[int, ...]) -> tuple[int, int] | None:
    """The wire type and start of the value at ``path`` (field ids, outermost first); None if it was not sent."""
    value = None
    for wanted in path:
        if value is not None and value[0] != STRUCT:
            raise WireError(f"field {wanted} is asked of something that is no struct: its type is {value[0]}")
        value = _find(data, at if value is None else value[1], wanted)
        if value is None:
            return None
    return value


def cut(kind: type[T], data: bytes, at: int, path: tuple[int, ...]) -> list[Cut[T]]:
    """The structs at ``path`` in the struct at ``at``: that of a struct field, or all of a list field.

    Empty if the field was not sent. Raises WireError if it is of another type.
    """
    field = find(data, at, path)
    if field is None:
        return []
    ttype, start = field
    if ttype == STRUCT:
        value, end = decode_with_end(kind, data, start)
        return [Cut(value, data[start:end])]
    if ttype != LIST or _byte(data, start) != STRUCT:
        raise WireError(f"field {path[-1]} should hold structs, its type is {ttype}")
    structs: list[Cut[T]] = []
    at = start + 5
    for _ in range(read_i32(data, start + 1)):
        value, end = decode_with_end(kind, data, at)
        structs.append(Cut(value, data[at:end]))
        at = end
    return structs


def patch(data: bytes, changes: Mapping[int, tuple[int, bytes] | None]) -> bytes:
    """The struct with some fields replaced or added (wire type, encoded value) or dropped (None).

    All other bytes and their order stay. New fields are added at the end, in the order of their ids.
    """
    pieces: list[bytes] = []
    left = dict(changes)
    at = 0
    for field_id, field in _walk(data, 0):
        if field_id not in changes:
            continue
        pieces.append(data[at : field.start - 3])
        at = field.end
        new = left.pop(field_id, None)
        if new is not None:
            pieces += (field_head(new[0], field_id), new[1])
    pieces.append(data[at : end_of_struct(data, 0) - 1])
    for field_id in sorted(left):
        new = left[field_id]
        if new is not None:
            pieces += (field_head(new[0], field_id), new[1])
    pieces.append(b"\0")
    return b"".join(pieces)


def field_head(ttype: int, field_id: int) -> bytes:
    """The three bytes before a value inside a struct."""
    return ttype.to_bytes(1, "big") + field_id.to_bytes(2, "big", signed=True)


def _find(data: bytes, at: int, wanted: int) -> tuple[int, int] | None:
    """The wire type and start of one field. The fields behind it are not looked at."""
    while ttype := _byte(data, at):
        if int.from_bytes(data[at + 1 : at + 3], "big", signed=True) == wanted:
            return ttype, at + 3
        at = _end_of_value(data, at + 3, ttype, _NESTING_MAX)
    return None


def _walk(data: bytes, at: int) -> Iterator[tuple[int, Field]]:
    """The top-level fields of the struct at ``at``, in their order."""
    while ttype := _byte(data, at):
        field_id = int.from_bytes(data[at + 1 : at + 3], "big", signed=True)
        end = _end_of_value(data, at + 3, ttype, _NESTING_MAX)
        yield field_id, Field(ttype, at + 3, end)
        at = end


def _end_of_value(data: bytes, at: int, ttype: int, levels: int) -> int:
    """The offset behind a value. Structs are skipped in C, containers of elements of fixed width by arithmetic."""
    if levels == 0:
        raise WireError("nested too deeply")
    width = _FIXED.get(ttype)
    if width is not None:
        end = at + width
    elif ttype == STRING:
        length = read_i32(data, at)
        if length < 0:
            raise WireError(f"a string of {length} bytes")
        end = at + 4 + length
    elif ttype == STRUCT:
        end = end_of_struct(data, at)
    elif ttype in (LIST, SET):
        end = _end_of_elements(data, at + 5, (_byte(data, at),), read_i32(data, at + 1), levels)
    elif ttype == MAP:
        end = _end_of_elements(data, at + 6, (_byte(data, at), _byte(data, at + 1)), read_i32(data, at + 2), levels)
    else:
        raise WireError(f"{ttype} is no wire type")
    if end > len(data):
        raise WireError("the struct ends too early")
    return end


def _end_of_elements(data: bytes, at: int, types: tuple[int, ...], count: int, levels: int) -> int:
    if count < 0 or count > len(data):
        raise WireError(f"a container of {count} elements in {len(data)} bytes")
    widths = [_FIXED.get(ttype) for ttype in types]
    if None not in widths:
        return at + count * sum(width for width in widths if width is not None)
    if types == (STRUCT,):
        return end_of_struct(data, at, count=count)
    for _ in range(count):
        for ttype in types:
            at = _end_of_value(data, at, ttype, levels - 1)
    return at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise WireError("the struct ends too early")
    return data[at]
