"""Options that several commands have: the snapshot of a table, and lists of names."""

from __future__ import annotations

from typing import Annotated

import typer

Version = Annotated[int | None, typer.Option(help="read this version instead of the latest")]
Timestamp = Annotated[str | None, typer.Option(help="read the last version committed at or before this time (UTC)")]
Branch = Annotated[str, typer.Option(help="the branch; default: main")]
Tag = Annotated[str, typer.Option(help="read the version that this tag keeps")]


def listed(text: str) -> list[str]:
    """The names in a text like ``id,fare``."""
    return [name.strip() for name in text.split(",") if name.strip()]
