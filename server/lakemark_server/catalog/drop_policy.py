"""Table properties that decide what happens when the table is dropped. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakemark_core.property_values import switch, whole_number

RETAIN_PROPERTY: Final = "lakemark.drop.retain-ms"
"""For how many milliseconds the table can be brought back after it was dropped; 0: not at all."""

PROTECTED_PROPERTY: Final = "lakemark.drop.protected"
"""``true``: the table cannot be dropped. Some statements of Spark drop a table that they are going to replace, and the
service cannot tell them from those that only drop it."""


def retain_ms(properties: Mapping[str, str], default_ms: int) -> int:
    """Raises InvalidArgument."""
    return whole_number(properties, RETAIN_PROPERTY, 0) if RETAIN_PROPERTY in properties else default_ms


def is_protected(properties: Mapping[str, str]) -> bool:
    """Raises InvalidArgument."""
    return switch(properties, PROTECTED_PROPERTY)


def check(properties: Mapping[str, str]) -> None:
    """Raises InvalidArgument for an illegal value."""
    retain_ms(properties, 0)
    is_protected(properties)
