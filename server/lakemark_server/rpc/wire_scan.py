"""Finds texts in serialized protobuf messages without decoding the rest.

It follows the rules of the encoding: fields come in any order, and the last occurrence of a field counts.
"""

from __future__ import annotations

from typing import TypeAlias

Step: TypeAlias = tuple[int, bool]
"""The number of a field that holds a message or a text, and whether it is repeated; if so, its first element counts."""

_FIXED_BYTES = {1: 8, 5: 4}  # by wire type
_VARINT, _LENGTH = 0, 2


def find_text(data: bytes, path: tuple[Step, ...]) -> bytes:
    """The text at the path; empty if there is none, or if the bytes are not a message."""
    try:
        return _find(data, 0, len(data), path) or b""
    except (IndexError, KeyError):
        return b""


def _find(data: bytes, at: int, end: int, path: tuple[Step, ...]) -> bytes | None:
    (wanted, repeated), below = path[0], path[1:]
    text = None
    while at < end:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = _varint(data, at - 1)
        kind = tag & 7
        if kind == _LENGTH:
            size = data[at]
            at += 1
            if size >= 0x80:
                size, at = _varint(data, at - 1)
            if tag >> 3 == wanted:
                if at + size > end:
                    return None
                inner = _find(data, at, at + size, below) if below else data[at : at + size]
                text = text if inner is None else inner
                if repeated:
                    return text
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at)
        else:
            at += _FIXED_BYTES[kind]
    return text


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The value and its end. Raises IndexError. Callers read values of a single byte themselves, which is faster."""
    byte = data[at]
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, at + 1
