"""A cache of immutable things that keeps what is used again soonest, bounded by the bytes that they take.

A plan that looks at more than the cache holds goes through the same things in the same order each time. Where what was
used longest ago leaves first, each is gone when its turn comes again, and nothing is ever found. Here an entry only
takes the place of others that were used longer ago than itself the last time, so such a plan finds as large a share of
what it needs as fits. That is the comparison of LIRS (Jiang and Zhang 2002): how long ago the one in place was used,
against how long it took until the new one was used again.
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
_WINDOW_BYTES_MIN: Final = 4 << 20  # pages of several parts, which a plan asks for once for each column
_GONE_SHARE: Final = 32
_GONE_BYTES: Final = 200  # about, of a name and when it was used
_STALE_USES: Final = 100_000  # of the cache, after which what nobody asked for goes before what is new


@dataclass(slots=True)
class _Entry(Generic[V]):
    """``used``: when it was last, in uses of the cache; ``before``: the last time before it came in (0: not known)."""

    value: V
    size: int
    spare: bool
    used: int
    before: int


class ReuseCache(Generic[K, V]):
    """Thread-safe. What is new comes into a window that what was used longest ago leaves first. From there it is kept
    where there is room, or where others were used longer ago than it was before it came in. ``spare`` entries make room
    for all others, and never take theirs."""

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
        self._gone: OrderedDict[K, int] = OrderedDict()  # what left, and when it was last used
        self._window_bytes = self._kept_bytes = 0  # kept: spare ones, too

    def get(self, key: K) -> V | None:
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
        with self._lock:
            for entries in (self._window, self._kept, self._spare, self._gone):
                entries.clear()
            self._window_bytes = self._kept_bytes = 0

    def keys(self) -> list[K]:
        with self._lock:
            return [*self._kept, *self._window, *self._spare]

    @property
    def bytes(self) -> int:
        """With what is remembered of those that left."""
        return self._window_bytes + self._kept_bytes + len(self._gone) * _GONE_BYTES

    def _removed(self, key: K) -> int:
        """Takes out what there is of it: when it was used before it came in."""
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
        """In the place of others, or not at all."""
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
