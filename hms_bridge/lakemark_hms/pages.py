"""Many things, some at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def in_pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of ``size``, the last of which may be shorter."""
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page
