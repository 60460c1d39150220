"""Optimistic conflict resolution, after FoundationDB's resolver: which keys were written since which version?

Writes are kept in blocks of consecutive versions, oldest first. A young transaction, the usual kind, looks at the
newest block only. Forgetting drops whole blocks. Within a block, single keys are in a dict (and sorted, once a range is
checked), ranges in a step function.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final

from .rangemap import RangeMap

BLOCK_ENTRIES: Final = 2_048
BLOCKS_MAX: Final = 128
# Later than every version: no transaction of a batch has seen what the batch writes.
_UNSEALED: Final = 1 << 63

KeyRange = tuple[bytes, bytes]


class Resolution(Enum):
    """Whether a transaction may commit."""

    ADMITTED = "admitted"
    CONFLICT = "conflict"
    TOO_OLD = "too_old"


class _Block:
    """The last version that wrote each key, for a stretch of versions."""

    __slots__ = ("_fresh", "_sorted", "first", "last", "points", "ranges")

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first
        self.points: dict[bytes, int] = {}
        self.ranges = RangeMap()
        self._sorted: list[bytes] = []
        self._fresh: list[bytes] = []

    def __len__(self) -> int:
        return len(self.points) + len(self.ranges)

    def record(self, version: int, keys: Iterable[bytes], ranges: Iterable[KeyRange]) -> None:
        points, fresh = self.points, self._fresh
        for key in keys:
            if key not in points:
                fresh.append(key)
            points[key] = version
        for begin, end in ranges:
            self.ranges.assign(begin, end, version)
        self.last = version

    def key_written_after(self, version: int, key: bytes) -> bool:
        if self.points.get(key, 0) > version:
            return True
        return bool(self.ranges) and self.ranges.at(key) > version

    def range_written_after(self, version: int, begin: bytes, end: bytes) -> bool:
        if self._fresh:
            self._sorted += self._fresh
            self._sorted.sort()
            self._fresh.clear()
        keys = self._sorted
        first, last = bisect_left(keys, begin), bisect_left(keys, end)
        if first < last and self.first > version:
            return True
        points = self.points
        if any(points[keys[index]] > version for index in range(first, last)):
            return True
        return bool(self.ranges) and self.ranges.max_in(begin, end) > version


class Resolver:
    """The window of writes committed after ``horizon``. Not thread-safe: it belongs to the writer.

    A batch is a row of ``check`` and ``record`` calls in commit order, ended by ``seal`` when it is durable or by
    ``discard``. All of it commits at one version. A transaction of the batch conflicts with what earlier ones wrote.
    """

    def __init__(self, version: int, *, block_entries: int = BLOCK_ENTRIES, blocks_max: int = BLOCKS_MAX) -> None:
        self.horizon = version
        self.newest = version
        self._block_entries = block_entries
        self._blocks_max = blocks_max
        self._blocks: deque[_Block] = deque()
        self._batch = _Block(_UNSEALED)

    def __len__(self) -> int:
        """How many keys and range bounds are held."""
        return sum(map(len, self._blocks))

    def check(self, read_version: int, read_keys: Iterable[bytes], read_ranges: Iterable[KeyRange]) -> Resolution:
        """Whether what was read at ``read_version`` is unchanged since, by this batch and by those before it."""
        if read_version < self.horizon:
            return Resolution.TOO_OLD
        newer = [self._batch] if len(self._batch) else []
        for block in reversed(self._blocks):
            if block.last <= read_version:
                break
            newer.append(block)
        if newer:
            for key in read_keys:
                for block in newer:
                    if block.key_written_after(read_version, key):
                        return Resolution.CONFLICT
            for begin, end in read_ranges:
                for block in newer:
                    if block.range_written_after(read_version, begin, end):
                        return Resolution.CONFLICT
        return Resolution.ADMITTED

    def record(self, write_keys: Iterable[bytes], write_ranges: Iterable[KeyRange]) -> None:
        """Adds the writes of an admitted transaction to the batch."""
        self._batch.record(_UNSEALED, write_keys, write_ranges)

    def recorded(self) -> tuple[list[bytes], list[KeyRange]]:
        """The keys and ranges that the batch writes so far."""
        return list(self._batch.points), [(begin, end) for begin, end, _ in self._batch.ranges.items()]

    def seal(self, version: int) -> None:
        """The batch is durable at ``version``, which must be newer than any before."""
        if version <= self.newest:
            raise ValueError(f"version {version} is not newer than {self.newest}")
        if not self._blocks or len(self._blocks[-1]) >= self._block_entries:
            self._blocks.append(_Block(version))
        batch = self._batch
        self._blocks[-1].record(version, batch.points, ((begin, end) for begin, end, _ in batch.ranges.items()))
        self._batch = _Block(_UNSEALED)
        self.newest = version
        while len(self._blocks) > self._blocks_max:
            self.horizon = self._blocks.popleft().last

    def discard(self) -> None:
        """The batch was not applied."""
        self._batch = _Block(_UNSEALED)

    def forget(self, version: int) -> None:
        """Drops what only transactions that read before ``version`` would need; those are too old from now on."""
        while self._blocks and self._blocks[0].last <= version:
            self.horizon = self._blocks.popleft().last

    def restart(self, version: int) -> None:
        """The store is at ``version``, and what was written up to there is unknown: all earlier reads are too old."""
        self._blocks.clear()
        self.discard()
        self.horizon = self.newest = version
