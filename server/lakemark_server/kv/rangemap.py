"""A step function over keys, as FoundationDB's resolver keeps it: each stretch of the key space has one number."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class RangeMap:
    """Numbers by key, at first 0 everywhere. Assigning costs O(log n) plus the stretches that it replaces."""

    __slots__ = ("_bounds", "_numbers")

    def __init__(self) -> None:
        # _numbers[i] holds from _bounds[i] up to _bounds[i + 1], the last one for ever.
        self._bounds = [b""]
        self._numbers = [0]

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def assign(self, begin: bytes, end: bytes, number: int) -> None:
        """Every key in ``[begin, end)`` now has ``number``."""
        if begin >= end:
            return
        first = bisect_left(self._bounds, begin)
        last = bisect_left(self._bounds, end)
        bounds, numbers = [begin], [number]
        if last == len(self._bounds) or self._bounds[last] != end:
            bounds.append(end)
            numbers.append(self._numbers[last - 1])
        self._bounds[first:last] = bounds
        self._numbers[first:last] = numbers

    def at(self, key: bytes) -> int:
        return self._numbers[bisect_right(self._bounds, key) - 1]

    def max_in(self, begin: bytes, end: bytes) -> int:
        """The largest number of any key in ``[begin, end)``, which must not be empty."""
        return max(self._numbers[bisect_right(self._bounds, begin) - 1 : bisect_left(self._bounds, end)])

    def stretches(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes, int]]:
        """``(begin, end, number)`` of each stretch of ``[begin, end)``, in order."""
        index = bisect_right(self._bounds, begin) - 1
        while begin < end:
            following = self._bounds[index + 1] if index + 1 < len(self._bounds) else end
            stop = min(following, end)
            yield begin, stop, self._numbers[index]
            begin = stop
            index += 1

    def items(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Every stretch whose number is not 0; such a stretch always has an end."""
        for index in range(len(self._bounds) - 1):
            if self._numbers[index]:
                yield self._bounds[index], self._bounds[index + 1], self._numbers[index]
