"""All partitions of a table in memory, kept up to date by reading what changed."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

from lakemark_core.errors import StoreConflict
from lakemark_server.catalog import partition_changes, warehouse_records
from lakemark_server.catalog.partition_changes import Position
from lakemark_server.catalog.warehouse_records import Partition, Values
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import ReadTransaction, Store

T = TypeVar("T")

CACHE_BYTES_MAX: Final = 256 * 1024 * 1024
_PAGE: Final = 20_000
_PAGES_AGAIN_MAX: Final = 8  # read once more in one transaction
_LOADS_MAX: Final = 5
_LARGE_KNOWN_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class PartitionSet:
    """Partitions in the order of their values. It is immutable and keeps what was computed from it (``derived``)."""

    rows: Sequence[Partition]
    memo: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    def derived(self, key: object, make: Callable[[Sequence[Partition]], T]) -> T:
        """What ``make`` returns for these rows; it is called once for each ``key`` (by two threads at once, twice)."""
        kept = self.memo.get(key)
        if kept is None:
            kept = self.memo[key] = make(self.rows)
        result: T = kept
        return result

    def index(self) -> dict[Values, int]:
        """Where each partition stands in ``rows``."""
        return self.derived("index", lambda rows: {row.values: at for at, row in enumerate(rows)})

    def changed(self, updates: dict[Values, Partition | None]) -> PartitionSet:
        """A set with some partitions replaced, added or (None) removed. It costs a copy of a list of references."""
        rows = list(self.rows)
        for values, row in updates.items():
            at = bisect_left(rows, values, key=_values)
            present = at < len(rows) and rows[at].values == values
            if row is None:
                if present:
                    del rows[at]
            elif present:
                rows[at] = row
            else:
                rows.insert(at, row)
        return PartitionSet(rows)


def _values(row: Partition) -> Values:
    return row.values


@dataclass(slots=True)
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    loaded: tuple[Position, PartitionSet] | None = None
    size_bytes: int = 0


class _TooLargeError(Exception):
    """The partitions take more memory than they may."""


class PartitionSets:
    """A cache bounded in bytes, which gives up the least recently used tables first.

    Thread-safe; each table is loaded by one thread at a time. What ``get`` returns was true at a moment after the call.
    """

    def __init__(self, store: Store, clock: ClockMs, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._store = store
        self._clock = clock
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._slots: OrderedDict[int, _Slot] = OrderedDict()
        self._large: set[int] = set()  # tables that were too large to be kept when they were read last

    def holds(self, table_id: int) -> bool:
        """Whether the table is in the cache, so that ``get`` reads only what changed."""
        with self._lock:
            slot = self._slots.get(table_id)
            return slot is not None and slot.loaded is not None

    def get_if_kept(self, table_id: int) -> PartitionSet | None:
        """As ``get``; None if they take more memory than all that are kept may: then ``pages`` reads them."""
        if table_id in self._large:
            return None
        try:
            return self.get(table_id, self._bytes_max)
        except _TooLargeError:
            if len(self._large) >= _LARGE_KNOWN_MAX:
                self._large.clear()
            self._large.add(table_id)
            return None

    def get(self, table_id: int, bytes_max: float = inf) -> PartitionSet:
        """Raises _TooLargeError if they are read now and take more memory than ``bytes_max``."""
        with self._lock:
            slot = self._slots.setdefault(table_id, _Slot())
            self._slots.move_to_end(table_id)
            before = slot.loaded
        if before is not None:
            known, rows = before
            if self._store.read(lambda tx: partition_changes.count(tx, table_id)) == known.changes:
                return rows
        with slot.lock:
            loaded = self._up_to_date(table_id, slot.loaded, bytes_max)
            if loaded is not slot.loaded:
                slot.loaded = loaded
                slot.size_bytes = sum(row.size_bytes for row in loaded[1].rows)
                self._shrink()
        return loaded[1]

    def forget(self, table_id: int) -> None:
        with self._lock:
            self._slots.pop(table_id, None)

    def _shrink(self) -> None:
        with self._lock:
            total = sum(slot.size_bytes for slot in self._slots.values())
            while total > self._bytes_max and self._slots:
                total -= self._slots.popitem(last=False)[1].size_bytes

    def _up_to_date(
        self, table_id: int, loaded: tuple[Position, PartitionSet] | None, bytes_max: float
    ) -> tuple[Position, PartitionSet]:
        for _ in range(_LOADS_MAX):
            start = loaded or self._load(table_id, bytes_max)
            loaded = self._store.read(partial(self._catch_up, table_id, start))
            if loaded is not None:
                return loaded
        raise _changes_too_fast(table_id)

    def pages(self, table_id: int, make: Callable[[Sequence[Partition]], T]) -> list[T]:
        """What ``make`` gives of all partitions, in the order of their values and as of a moment after the call.

        It gets some thousands of them at a time, which are not kept.
        """
        for _ in range(_LOADS_MAX):
            position = self._position(table_id)
            begins: list[bytes] = []
            made: list[T] = []
            size_bytes = 0
            for begin, rows in self._read_pages(table_id):
                begins.append(begin)
                made.append(make(rows))
                size_bytes += sum(row.size_bytes for row in rows)
            if self._store.read(partial(self._mend, table_id, position, begins, made, make)):
                if size_bytes <= self._bytes_max // 2:  # it has shrunk
                    self._large.discard(table_id)
                return made
        raise _changes_too_fast(table_id)

    def _mend(
        self,
        table_id: int,
        position: Position,
        begins: Sequence[bytes],
        made: list[T],
        make: Callable[[Sequence[Partition]], T],
        tx: ReadTransaction,
    ) -> bool:
        """Makes those pages again in which something has changed since the position; False: too much has."""
        changed = partition_changes.since(tx, table_id, position, self._clock())[1]
        if changed is None:
            return False
        last = warehouse_records.partition_range(table_id, ())[1]
        keys = [warehouse_records.partition_range(table_id, values)[0] for values in changed]
        places = sorted({bisect_right(begins, key) - 1 for key in keys})
        if len(places) > _PAGES_AGAIN_MAX:
            return False
        for at in places:
            end = begins[at + 1] if at + 1 < len(begins) else last
            made[at] = make(warehouse_records.partitions_in(tx, table_id, begins[at], end))
        return True

    def _catch_up(
        self, table_id: int, start: tuple[Position, PartitionSet], tx: ReadTransaction
    ) -> tuple[Position, PartitionSet] | None:
        position, changed = partition_changes.since(tx, table_id, start[0], self._clock())
        if changed is None:
            return None
        if not changed:
            return start if position is start[0] else (position, start[1])
        rows = warehouse_records.find_partitions(tx, table_id, changed)
        return position, start[1].changed(dict(zip(changed, rows, strict=True)))

    def _load(self, table_id: int, bytes_max: float) -> tuple[Position, PartitionSet]:
        """Reads the partitions page by page, each in its own transaction; later changes are caught up afterwards."""
        position = self._position(table_id)
        rows: list[Partition] = []
        size_bytes = 0
        for _, page in self._read_pages(table_id):
            rows.extend(page)
            size_bytes += sum(row.size_bytes for row in page) if bytes_max != inf else 0
            if size_bytes > bytes_max:
                raise _TooLargeError
        return position, PartitionSet(rows)

    def _position(self, table_id: int) -> Position:
        return self._store.read(lambda tx: partition_changes.position(tx, table_id, self._clock()))

    def _read_pages(self, table_id: int) -> Iterator[tuple[bytes, list[Partition]]]:
        """Pages of partitions, each with the key at which it begins."""
        begin: bytes | None
        begin, end = warehouse_records.partition_range(table_id, ())
        while begin is not None:
            first = begin
            page, begin = self._store.read(partial(warehouse_records.partitions_page, table_id, begin, end, _PAGE))
            yield first, page


def _changes_too_fast(table_id: int) -> StoreConflict:
    return StoreConflict(f"the partitions of table id {table_id} change faster than they can be read; try again")
