"""A cache of immutable values that keeps what is reused soonest, bounded by the bytes that they take.

A plan that reads more than the cache holds goes through the same entries in the same order each time. An LRU cache
would evict each entry just before its next use, and would never hit. Here a new entry only replaces entries that were
last used longer ago than itself, so such a plan hits for as large a share as fits. This is the comparison of LIRS
(Jiang and Zhang 2002): the recency of the resident entry against the reuse distance of the new one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_WINDOW_SHARE: Final = 16
_WINDOW_BYTES_MIN: Final = 4 << 20  # several parts' pages: a plan asks for each page once for each column
_GONE_SHARE: Final = 32
_GONE_BYTES: Final = 200  # about, for a key and its last use
_STALE_USES: Final = 100_000  # after so many uses of the cache an entry that nobody asked for gives way to a new one


@dataclass(slots=True)
class _Entry(Generic[V]):
    """``used``: the time of the last use, counted in uses of the cache. ``before``: that of the last use before the
    entry came in; 0 if not known."""

    value: V
    size: int
    spare: bool
    used: int
    before: int


class ReuseCache(Generic[K, V]):
    """Thread-safe.

    New entries enter a window, which evicts by LRU. An entry that leaves the window is kept if there is room, or if
    others were last used longer ago than it was before it came in. ``spare`` entries give way to all others and never
    displace them.
    """

    def __init__(self, bytes_max: int, size: Callable[[V], int]) -> None:
        self.bytes_max = bytes_max
        self._size = size
        self._window_max = min(max(bytes_max // _WINDOW_SHARE, _WINDOW_BYTES_MIN), bytes_max // 2)
        self._gone_max = bytes_max // _GONE_SHARE // _GONE_BYTES
        self._kept_max = bytes_max - self._window_max - self._gone_max * _GONE_BYTES
        self._lock = threading.Lock()
        self._now = 0
        self._window: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._kept: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._spare: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._gone: OrderedDict[K, int] = OrderedDict()  # evicted keys, and when they were last used
        self._window_bytes = self._kept_bytes = 0  # the kept ones include spare ones

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        with self._lock:
            self._now += 1
            for place in (self._kept, self._window, self._spare):
                entry = place.get(key)
                if entry is not None:
                    entry.used = self._now
                    place.move_to_end(key)
                    return entry.value
            return None

    def put(self, key: K, value: V, *, spare: bool = False) -> None:
        """Keeps a value, if it displaces no value that is worth more."""
        size = self._size(value)
        with self._lock:
            self._now += 1
            entry = _Entry(value, size, spare, self._now, self._removed(key))
            if size > self._window_max:
                self._keep(key, entry)
                return
            self._window[key] = entry
            self._window_bytes += size
            while self._window_bytes > self._window_max:
                first, left = self._window.popitem(last=False)
                self._window_bytes -= left.size
                self._keep(first, left)

    def clear(self) -> None:
        """Removes all values and what is remembered of evicted ones."""
        with self._lock:
            for entries in (self._window, self._kept, self._spare, self._gone):
                entries.clear()
            self._window_bytes = self._kept_bytes = 0

    def keys(self) -> list[K]:
        """The keys of all values in the cache."""
        with self._lock:
            return [*self._kept, *self._window, *self._spare]

    @property
    def bytes(self) -> int:
        """The bytes of all values, and of what is remembered of evicted ones."""
        return self._window_bytes + self._kept_bytes + len(self._gone) * _GONE_BYTES

    def _removed(self, key: K) -> int:
        """Removes a key. Returns when it was last used before it came in."""
        entry = self._window.pop(key, None)
        if entry is not None:
            self._window_bytes -= entry.size
            return entry.before
        entry = self._kept.pop(key, None) or self._spare.pop(key, None)
        if entry is not None:
            self._kept_bytes -= entry.size
            return entry.before
        return self._gone.pop(key, 0)

    def _keep(self, key: K, entry: _Entry[V]) -> None:
        """Keeps an entry in the place of others, or drops it."""
        before = max(entry.before, self._now - _STALE_USES)
        while self._kept_bytes + entry.size > self._kept_max:
            others = self._spare if self._spare or entry.spare else self._kept
            first = next(iter(others), None)
            alike = first is not None and others[first].spare == entry.spare
            if first is None or entry.size > self._kept_max or (alike and others[first].used >= before):
                self._leave(key, entry)
                return
            evicted = others.pop(first)
            self._kept_bytes -= evicted.size
            self._leave(first, evicted)
        (self._spare if entry.spare else self._kept)[key] = entry
        self._kept_bytes += entry.size

    def _leave(self, key: K, entry: _Entry[V]) -> None:
        self._gone[key] = entry.used
        while len(self._gone) > self._gone_max:
            self._gone.popitem(last=False)
