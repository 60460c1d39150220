"""Paths of columns: names with dots between them, as in SQL.

The element of a list is ``element``, key and value of a map are ``key`` and ``value``: ``points.element.x``. A name
that has a dot itself stands in backquotes, which no name can contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from lakemark_core.errors import InvalidSchema

_PART: Final = re.compile(r"`([^`]+)`|([^`.]+)")


def parse_path(text: str) -> tuple[str, ...]:
    """The names in order. Raises InvalidSchema."""
    names: list[str] = []
    at = 0
    while True:
        match = _PART.match(text, at)
        if match is None:
            break
        names.append(match.group(1) or match.group(2))
        at = match.end()
        if at == len(text):
            return tuple(names)
        if text[at] != ".":
            break
        at += 1
    raise InvalidSchema(f"{text!r} is not the path of a column; write name, struct.field or `name.with.dots`")


def format_path(names: Iterable[str]) -> str:
    """What ``parse_path`` reads."""
    return ".".join(f"`{name}`" if "." in name else name for name in names)
