"""Figures of large tables, kept in memory from one look to the next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from lakemark_core.optimization import OptimizationPolicy
from lakemark_server.file_index.parts.part import Part
from lakemark_server.optimization.measures import Measured, PartitionMeasure

BYTES_MAX: Final = 64 << 20
FILES_MIN: Final = 4_096
"""Tables with fewer files are measured anew each time: a hundred thousand small ones must take no memory."""


_TURNS: Final = 64


class KeptMeasures:
    """Thread-safe: threads that measure a large table at the same time do so in turn, so that only the first one reads
    all of it."""

    def __init__(self, bytes_max: int = BYTES_MAX, files_min: int = FILES_MIN) -> None:
        self._bytes_max, self._files_min = bytes_max, files_min
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(_TURNS)]  # each for the tables of some numbers
        self._tables: OrderedDict[int, tuple[Measured, int]] = OrderedDict()
        self._bytes = 0

    def measure(
        self, table_id: int, parts: Sequence[Part], policy: OptimizationPolicy, *, keep: bool = True
    ) -> list[PartitionMeasure]:
        """One for each partition that has files, in no certain order. Raises what reading columns raises.

        ``keep`` False: the policy is not that of the table, and its figures do not replace those that are kept.
        """
        if sum(part.files for part in parts) < self._files_min:
            self._take(table_id)
            return list(Measured(policy).forward(parts))
        with self._turns[table_id % _TURNS]:
            measured = self._take(table_id)
            if measured is not None and measured.serves(policy):
                return self._measure_and_keep(table_id, measured, parts)
            if keep:
                return self._measure_and_keep(table_id, Measured(policy), parts)
            if measured is not None:
                self._keep(table_id, measured)
        return list(Measured(policy).forward(parts))

    def _measure_and_keep(self, table_id: int, measured: Measured, parts: Sequence[Part]) -> list[PartitionMeasure]:
        measures = list(measured.forward(parts))
        self._keep(table_id, measured)
        return measures

    def _take(self, table_id: int) -> Measured | None:
        """What is kept, for this thread alone."""
        with self._lock:
            measured, size = self._tables.pop(table_id, (None, 0))
            self._bytes -= size
        return measured

    def _keep(self, table_id: int, measured: Measured) -> None:
        size = measured.memory_bytes
        if size > self._bytes_max:
            return
        with self._lock:
            _, before = self._tables.pop(table_id, (None, 0))
            self._tables[table_id] = measured, size
            self._bytes += size - before
            while self._bytes > self._bytes_max:
                _, (_, evicted) = self._tables.popitem(last=False)
                self._bytes -= evicted
