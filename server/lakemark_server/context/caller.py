"""Who has sent the request that runs here, for the log and for what is kept of a change.

It is ambient, as a request's deadline is: the protocol that received the request knows it, and what tells of it lies
below many callers that have nothing to say about it. Nobody has proved who they are: the name helps to find out what
happened, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeAlias

NAME_CHARS_MAX: Final = 200

Name: TypeAlias = Callable[[], str]
"""Gives the name when it is asked for: few requests need it."""


def _nobody() -> str:
    return ""


_current: ContextVar[Name] = ContextVar("caller", default=_nobody)


def current() -> str:
    """``user@host``, or the address of the connection; "" for what the service does by itself."""
    return _current.get()()[:NAME_CHARS_MAX]


class named:  # noqa: N801 - reads as what it does
    """What runs inside the block was asked for by this caller."""

    __slots__ = ("_name", "_token")

    def __init__(self, name: Name) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._token = _current.set(self._name)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
