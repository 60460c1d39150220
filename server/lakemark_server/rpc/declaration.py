"""How a gRPC method comes to be served: its servicer has a method of that name, whose decorator declares the rank.

    @method(Rank.READ)
    def GetTable(self, request: pb.GetTableRequest, context: Context) -> pb.Table: ...

A method of a service without this declaration keeps the server from being made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from lakemark_server.admission.ranks import Rank

M = TypeVar("M", bound=Callable[..., Any])

_RANK: Final = "_grpc_rank"


def method(rank: Rank) -> Callable[[M], M]:
    """Declares the rank for admission of a servicer's method."""

    def declare(behaviour: M) -> M:
        setattr(behaviour, _RANK, rank)
        return behaviour

    return declare


def rank_of(servicer: object, name: str) -> Rank:
    """The declared rank of the servicer's method. Raises TypeError if there is none."""
    rank = getattr(getattr(servicer, name, None), _RANK, None)
    if not isinstance(rank, Rank):
        raise TypeError(f"{type(servicer).__name__}.{name} declares no rank: decorate it with @method(Rank...)")
    return rank
