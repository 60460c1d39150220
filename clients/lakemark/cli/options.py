"""Options that several commands have: which snapshot of a table they are about, and lists of names."""

from __future__ import annotations

from typing import Annotated

import typer

Version = Annotated[int | None, typer.Option(help="read this version instead of the latest")]
Timestamp = Annotated[str | None, typer.Option(help="read the last version committed at or before this time (UTC)")]
Branch = Annotated[str, typer.Option(help="the branch; default: main")]
Tag = Annotated[str, typer.Option(help="read the version that this tag keeps")]


def listed(text: str) -> list[str]:
    """The names in ``id,fare``."""
    return [one.strip() for one in text.split(",") if one.strip()]
