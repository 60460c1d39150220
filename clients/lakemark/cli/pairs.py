"""``key=value`` arguments."""

from __future__ import annotations

from collections.abc import Sequence

import typer


def parse_pairs(texts: Sequence[str] | None, what: str) -> dict[str, str]:
    """The pairs in ``key=value`` texts. Raises a usage error for a text without ``=``."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{what} {text!r} is not of the form key=value")
        pairs[key] = value
    return pairs
