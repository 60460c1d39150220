"""Pages from the store and what is decoded from them, in one cache that is bounded by bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from lakemark_core.errors import CorruptStore, Unavailable
from lakemark_server.file_index.at_hand import may_make
from lakemark_server.file_index.pages.blocks import page_of
from lakemark_server.file_index.pages.page import Page
from lakemark_server.file_index.pages.reuse import ReuseCache
from lakemark_server.kv import Store

_PAGES_A_READ: Final = 32
_ENTRY_BYTES: Final = 300  # overhead of the cache for each value

T = TypeVar("T")


class Cached(NamedTuple):
    """A value in the cache, with the bytes that it takes."""

    value: Any
    bytes: int


Cache = ReuseCache[Hashable, Cached]


def make_cache(bytes_max: int) -> Cache:
    """A cache for everything that snapshots keep in memory."""
    return ReuseCache(bytes_max, lambda kept: kept.bytes)


def kept(cache: Cache, name: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
    """The value from the cache; made and cached if it is not there. Raises NotAtHand (see ``at_hand``)."""
    cached = cache.get(name)
    if cached is None:
        may_make()
        value = make()
        cached = Cached(value, size(value) + _ENTRY_BYTES)
        cache.put(name, cached)
    return cast(T, cached.value)


class SnapshotGone(Unavailable):
    """A page of a base was swept meanwhile, or the table was dropped. Retry with a newer snapshot."""

    code = "snapshot_gone"


class PageSource:
    """Thread-safe. Two threads may decode the same page at the same time; both get it."""

    def __init__(self, store: Store, cache: Cache) -> None:
        self.store = store
        self._cache = cache

    def kept(self, name: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """The value from the cache; made and cached if it is not there. Raises NotAtHand."""
        return kept(self._cache, name, make, size)

    def at_hand(self, name: Hashable, make: Callable[[], T]) -> T:
        """Like ``kept``, but does not cache what it makes. For requests that read all of a table once."""
        cached = self._cache.get(name)
        if cached is None:
            may_make()
            return make()
        return cast(T, cached.value)

    def remember(self, key: bytes, page: Page) -> None:
        """Caches a page that was already read."""
        self._cache.put(key, Cached(page, page.memory_bytes), spare=True)

    def pages(self, keys: Sequence[bytes]) -> list[Page]:
        """The pages with these keys. Raises SnapshotGone, CorruptStore, NotAtHand."""
        cached = [self._cache.get(key) for key in keys]
        missing = [key for key, page in zip(keys, cached, strict=True) if page is None]
        if missing:
            may_make()
        read: dict[bytes, Page] = {}
        for first in range(0, len(missing), _PAGES_A_READ):
            some = missing[first : first + _PAGES_A_READ]
            for key, value in zip(some, self.store.read(lambda tx, some=some: tx.get_many(some)), strict=True):  # type: ignore[misc]
                if value is None:
                    raise SnapshotGone("a page of this snapshot was replaced by a newer one meanwhile; ask again")
                page = page_of(value)
                if page is None:
                    raise CorruptStore("a block of a list of files is used as a page")
                read[key] = page
                self.remember(key, page)
        return [read[key] if hit is None else cast(Page, hit.value) for key, hit in zip(keys, cached, strict=True)]
