"""Numbers and switches as values of table properties, which are texts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakemark_core.errors import InvalidArgument

_INT64_MAX: Final = 2**63 - 1
_SWITCHES: Final = {"true": True, "false": False}


def whole_number(properties: Mapping[str, str], name: str, least: int) -> int:
    """The value of a property that is set. Raises InvalidArgument unless it is a whole number, at least ``least``."""
    text = properties[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= _INT64_MAX):
        raise InvalidArgument(f"{name} = {properties[name]!r} is not a number from {least} on")
    return int(text)


def switch(properties: Mapping[str, str], name: str) -> bool:
    """False if the property is not set. Raises InvalidArgument."""
    text = properties.get(name, "false")
    value = _SWITCHES.get(text.strip().lower())
    if value is None:
        raise InvalidArgument(f"{name} = {text!r} is neither 'true' nor 'false'")
    return value
