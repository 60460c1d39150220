"""Everything in a range of a store as it is at one moment, page by page, for as long as it takes."""

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
    """Of a snapshot that lives as long as the caller needs it."""
    return Export(snapshot.version(), _pages(snapshot, begin, end))


def _pages(snapshot: Source, begin: bytes, end: bytes) -> Iterator[list[KeyValue]]:
    """Of about PAGE_BYTES_AIM each: how many pairs that is the page before tells."""
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
