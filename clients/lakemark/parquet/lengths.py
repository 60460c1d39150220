"""Finds texts that are longer than ``varchar(n)`` or ``char(n)`` allows.

Lengths are counted in characters, as Spark counts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.types import Char, Field, ListOf, MapOf, Struct, Type, Varchar, format_type, is_nested

_Array: TypeAlias = "pa.Array[Any]"
_SHOWN_CHARS_MAX = 40


def too_long(column: pa.ChunkedArray[Any], field: Field) -> str | None:
    """What is wrong with the column, whose Arrow type is the field's; None: nothing. Fields of structs, elements of
    arrays, keys and values of maps are looked at, too."""
    if not _has_length(field.type):
        return None
    for chunk in column.chunks:
        for texts, limited in _limited(chunk, field.type):
            lengths: Any = pc.call_function("utf8_length", [texts])
            longer: Any = pc.call_function("greater", [lengths, pa.scalar(limited.length, lengths.type)])
            count = longer.true_count
            if count:
                first = str(texts.filter(longer)[0].as_py())
                shown = repr(first[:_SHOWN_CHARS_MAX]) + ("…" if len(first) > _SHOWN_CHARS_MAX else "")
                return (
                    f"{count} texts of column '{field.name}' are longer than {format_type(limited)}: the first is "
                    f"{shown} with {len(first)} characters; cut them, or widen the column"
                )
    return None


def _has_length(column_type: Type) -> bool:
    match column_type:
        case Varchar() | Char():
            return True
        case Struct(fields):
            return any(_has_length(field.type) for field in fields)
        case ListOf(element):
            return _has_length(element)
        case MapOf(key, value):
            return _has_length(key) or _has_length(value)
        case _:
            return False


def _limited(array: _Array, column_type: Type) -> Iterator[tuple[_Array, Varchar | Char]]:
    """The texts within that have a greatest length, with the types that say so."""
    if isinstance(column_type, Varchar | Char):
        yield array, column_type
    elif is_nested(column_type):
        for inner, inner_type in _within(array, column_type):
            yield from _limited(inner, inner_type)


def _within(array: Any, column_type: Type) -> list[tuple[_Array, Type]]:
    """The values one level deeper, without those of rows that are null."""
    match column_type:
        case Struct(fields):
            return list(zip(array.flatten(), (field.type for field in fields), strict=True))
        case ListOf(element):
            return [(array.flatten(), element)]
        case MapOf(key, value):
            first, last = (array.offsets[0].as_py(), array.offsets[len(array)].as_py()) if len(array) else (0, 0)
            return [(array.keys.slice(first, last - first), key), (array.items.slice(first, last - first), value)]
        case _:
            return []
