"""Exports all pairs of a range as of one moment, page by page, for as long as it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from .api import Export, KeyValue

PAGE_BYTES_AIM: Final = 1 << 20
_PAIRS_FIRST: Final = 64
_PAIRS_MAX: Final = 10_000


class Source(Protocol):
    """The part of a ``Snapshot`` that exports need."""

    def get_range(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]: ...

    def version(self) -> int: ...


def exported(snapshot: Source, begin: bytes, end: bytes) -> Export:
    """The export of a snapshot, which must live as long as its pages are read."""
    return Export(snapshot.version(), _pages(snapshot, begin, end))


def _pages(snapshot: Source, begin: bytes, end: bytes) -> Iterator[list[KeyValue]]:
    """Pages of about PAGE_BYTES_AIM. The size of each page decides how many pairs the next one has."""
    limit = _PAIRS_FIRST
    while begin < end:
        page = snapshot.get_range(begin, end, limit, False)
        if page:
            yield page
        if len(page) < limit:
            return
        begin = page[-1][0] + b"\0"
        size = sum(len(key) + len(value) for key, value in page)
        limit = max(1, min(limit * 4, limit * PAGE_BYTES_AIM // max(size, 1), _PAIRS_MAX))
