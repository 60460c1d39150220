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


class KeptMeasures:
    """Thread-safe: two threads that measure a table at the same time do it apart, and the figures of one are kept."""

    def __init__(self, bytes_max: int = BYTES_MAX, files_min: int = FILES_MIN) -> None:
        self._bytes_max, self._files_min = bytes_max, files_min
        self._lock = threading.Lock()
        self._tables: OrderedDict[int, tuple[Measured, int]] = OrderedDict()
        self._bytes = 0

    def measure(self, table_id: int, parts: Sequence[Part], policy: OptimizationPolicy) -> list[PartitionMeasure]:
        """One for each partition that has files, in no certain order. Raises what reading columns raises."""
        with self._lock:
            measured, size = self._tables.pop(table_id, (None, 0))
            self._bytes -= size
        if measured is None or not measured.serves(policy):
            measured = Measured(policy)
        measures = list(measured.forward(parts))
        if measured.files >= self._files_min:
            self._keep(table_id, measured)
        return measures

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
