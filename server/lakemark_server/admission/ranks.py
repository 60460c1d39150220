"""The rank of a request: which share of the service it may use. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

RESERVED_PARTS: Final = 8  # writes leave one of them to other requests


class Rank(Enum):
    """Every method of both protocols declares its rank."""

    READ = "read"
    WRITE = "write"
    VITAL = "vital"
    """A heartbeat, or an operator at work: a flood must not hold it back."""


def share_of(most: int, rank: Rank) -> int:
    """How much of ``most`` requests of this rank may use: writes leave the last eighth to the others."""
    return most - most // RESERVED_PARTS if rank is Rank.WRITE else most
