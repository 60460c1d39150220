"""All partitions of a table in memory, kept up to date by reading what changed."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
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
_LOADS_MAX: Final = 5


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

    def holds(self, table_id: int) -> bool:
        """Whether the table is in the cache, so that ``get`` reads only what changed."""
        with self._lock:
            slot = self._slots.get(table_id)
            return slot is not None and slot.loaded is not None

    def get(self, table_id: int) -> PartitionSet:
        with self._lock:
            slot = self._slots.setdefault(table_id, _Slot())
            self._slots.move_to_end(table_id)
            before = slot.loaded
        if before is not None:
            known, rows = before
            if self._store.read(lambda tx: partition_changes.count(tx, table_id)) == known.changes:
                return rows
        with slot.lock:
            loaded = self._up_to_date(table_id, slot.loaded)
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

    def _up_to_date(self, table_id: int, loaded: tuple[Position, PartitionSet] | None) -> tuple[Position, PartitionSet]:
        for _ in range(_LOADS_MAX):
            start = loaded or self._load(table_id)
            loaded = self._store.read(partial(self._catch_up, table_id, start))
            if loaded is not None:
                return loaded
        raise StoreConflict(f"the partitions of table id {table_id} change faster than they can be read; try again")

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

    def _load(self, table_id: int) -> tuple[Position, PartitionSet]:
        """Reads the partitions page by page, each in its own transaction; later changes are caught up afterwards."""
        position = self._store.read(lambda tx: partition_changes.position(tx, table_id, self._clock()))
        rows: list[Partition] = []
        begin: bytes | None
        begin, end = warehouse_records.partition_range(table_id, ())
        while begin is not None:
            page, begin = self._store.read(partial(warehouse_records.partitions_page, table_id, begin, end, _PAGE))
            rows.extend(page)
        return position, PartitionSet(rows)
