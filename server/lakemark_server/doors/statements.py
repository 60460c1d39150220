"""What a statement does with its rows, by the door through which they come. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from lakemark_server.doors.directories import GivenDirectory

DoorKind: TypeAlias = Literal["append", "overwrite", "upsert", "delete"]
CHANGES: Final = ("upsert", "delete")
"""Doors that change rows by their keys."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The rows of one statement, and where they go."""

    kind: DoorKind
    branch: str
    directory: GivenDirectory
