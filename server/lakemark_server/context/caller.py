"""Who sent the current request, for the log and for the record of a change.

The name is ambient, like a request's deadline: the protocol that received the request knows it, and the code that uses
it lies below many callers that have nothing to do with it. It is not authenticated. It helps to find out what happened,
and nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeAlias

NAME_CHARS_MAX: Final = 200

Name: TypeAlias = Callable[[], str]
"""Makes the name when it is needed, which few requests do."""


def nobody() -> str:
    """The name of the service itself."""
    return ""


_current: ContextVar[Name] = ContextVar("caller", default=nobody)


def current() -> str:
    """``user@host``, or the address of the connection; "" for what the service does on its own."""
    return text_of(_current.get())


def name() -> Name:
    """Makes ``current()`` later, for work that is handed to another thread."""
    return _current.get()


def text_of(name: Name) -> str:
    """As ``current`` gives it."""
    return name()[:NAME_CHARS_MAX]


class named:  # noqa: N801 - reads as what it does
    """A block whose code runs on behalf of this caller."""

    __slots__ = ("_name", "_token")

    def __init__(self, name: Name) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._token = _current.set(self._name)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
