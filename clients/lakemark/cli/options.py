"""Options that several commands have: which snapshot of a table they are about, and lists of names."""

from __future__ import annotations

from typing import Annotated

import typer

Version = Annotated[int | None, typer.Option(help="this version instead of the latest")]
Timestamp = Annotated[str | None, typer.Option(help="the last version at or before this time (UTC)")]
Branch = Annotated[str, typer.Option(help="of this branch; empty: main")]
Tag = Annotated[str, typer.Option(help="the version that this tag keeps")]


def listed(text: str) -> list[str]:
    """The names in ``id,fare``."""
    return [one.strip() for one in text.split(",") if one.strip()]
