"""Which names are legal. Names are kept in lower case, as in Hive."""

from __future__ import annotations

import re
from typing import Final

from lakemark_core.errors import InvalidName

DEFAULT_CATALOG: Final = "hive"
NAME_CHARS_MAX: Final = 128
_LEGAL = re.compile(r"[a-z0-9_]+", re.ASCII)


def legal_name(kind: str, name: str) -> str:
    """``name`` in lower case; ``kind`` ("database", "table") is for the message of InvalidName."""
    lowered = name.strip().lower()
    if not lowered:
        raise InvalidName(f"the {kind} name is empty", name=name)
    if len(lowered) > NAME_CHARS_MAX:
        raise InvalidName(
            f"{kind} name {name[:40]!r}… has {len(lowered)} characters; at most {NAME_CHARS_MAX}", name=name
        )
    if not _LEGAL.fullmatch(lowered):
        raise InvalidName(f"{kind} name {name!r} is not legal: use letters, digits and underscores only", name=name)
    return lowered


def constraint_name(name: str) -> str:
    """``name`` in lower case, which may have any characters that can be seen, and spaces. Raises InvalidName."""
    lowered = name.strip().lower()
    if not lowered:
        raise InvalidName("the name of the constraint is empty", name=name)
    if len(lowered) > NAME_CHARS_MAX:
        raise InvalidName(
            f"constraint name {lowered[:40]!r}… has {len(lowered)} characters; at most {NAME_CHARS_MAX}",
            name=lowered[:NAME_CHARS_MAX],
        )
    if not lowered.isprintable():
        raise InvalidName(f"constraint name {lowered!r} is not legal: it has control characters", name=lowered)
    return lowered


def catalog_name(name: str) -> str:
    """The name in lower case; the default catalog if it is empty."""
    return name.strip().lower() or DEFAULT_CATALOG


def legal_catalog(name: str) -> str:
    """``catalog_name`` of one that may be made or configured. Raises InvalidName."""
    return legal_name("catalog", catalog_name(name))
