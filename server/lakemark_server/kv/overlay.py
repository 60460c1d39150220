"""The pending writes of a transaction, or of a whole batch, folded so that their order no longer matters.

Ranges are cleared first, then each key gets its pending write. A ``clear_range`` drops the earlier writes inside it;
later writes lie on top of it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

from .rangemap import RangeMap

_MASK: Final = (1 << 64) - 1
_INSERTED_ONE_BY_ONE: Final = 8

# bytes: the new value; None: cleared; int: added to the stored value.
Pending = bytes | int | None


def add_to_counter(value: bytes | None, delta: int) -> bytes:
    """FoundationDB's ADD of 8 bytes: little-endian, wrapping, the stored value cut or zero-extended to 8 bytes."""
    stored = int.from_bytes(value[:8], "little") if value else 0
    return ((stored + delta) & _MASK).to_bytes(8, "little")


class Overlay:
    """Pending writes by key, and cleared ranges below them."""

    __slots__ = ("_fresh", "_sorted", "cleared", "points")

    def __init__(self) -> None:
        self.points: dict[bytes, Pending] = {}
        self.cleared: RangeMap | None = None
        # Keys are sorted only when a range needs it, which few transactions do.
        self._sorted: list[bytes] = []
        self._fresh: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self.points) or self.cleared is not None

    def put(self, key: bytes, value: bytes | None) -> None:
        """Sets the key, or clears it (None)."""
        if key not in self.points:
            self._fresh.append(key)
        self.points[key] = value

    def add(self, key: bytes, delta: int) -> None:
        points = self.points
        if key in points:
            before = points[key]
            points[key] = before + delta if isinstance(before, int) else add_to_counter(before, delta)
            return
        self._fresh.append(key)
        points[key] = add_to_counter(None, delta) if self.is_cleared(key) else delta

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Clears ``[begin, end)``, which must not be empty."""
        keys = self._ordered()
        first, last = bisect_left(keys, begin), bisect_left(keys, end)
        for key in keys[first:last]:
            del self.points[key]
        del keys[first:last]
        if self.cleared is None:
            self.cleared = RangeMap()
        self.cleared.assign(begin, end, 1)

    def is_cleared(self, key: bytes) -> bool:
        """Whether a cleared range covers the key. A pending write of the key itself lies on top of that."""
        return self.cleared is not None and self.cleared.at(key) == 1

    def keys_in(self, begin: bytes, end: bytes) -> list[bytes]:
        """The keys in ``[begin, end)`` with pending writes of their own, in order."""
        if not self.points:
            return []
        keys = self._ordered()
        return keys[bisect_left(keys, begin) : bisect_left(keys, end)]

    def gaps(self, begin: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """The parts of ``[begin, end)`` that no cleared range covers, in order."""
        if self.cleared is None:
            return [(begin, end)]
        return [(first, last) for first, last, number in self.cleared.stretches(begin, end) if number == 0]

    def cleared_ranges(self) -> Iterator[tuple[bytes, bytes]]:
        if self.cleared is not None:
            for begin, end, _ in self.cleared.items():
                yield begin, end

    def merge(self, later: Overlay) -> None:
        """Lays the writes of a later transaction on top of these."""
        for begin, end in later.cleared_ranges():
            self.clear_range(begin, end)
        for key, pending in later.points.items():
            if isinstance(pending, int):
                self.add(key, pending)
            else:
                self.put(key, pending)

    def _ordered(self) -> list[bytes]:
        if self._fresh:
            if len(self._fresh) <= _INSERTED_ONE_BY_ONE:
                for key in self._fresh:
                    insort(self._sorted, key)
            else:
                self._sorted += self._fresh
                self._sorted.sort()
            self._fresh.clear()
        return self._sorted
