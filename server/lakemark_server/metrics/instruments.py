"""Counters and histograms that many threads may use. They know nothing of how they are read over the network."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

LATENCY_BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
)  # fmt: skip


class Sample(NamedTuple):
    """A value with those of the labels."""

    labels: tuple[str, ...]
    value: float


class Counter:
    """Counts up. ``labels``: the names of what each call of ``add`` gives values for."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.name, self.help, self.labels = name, help_text, tuple(labels)
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], int] = {} if labels else {(): 0}

    def add(self, *values: str, by: int = 1) -> None:
        """Counts ``by`` more."""
        with self._lock:
            self._counts[values] = self._counts.get(values, 0) + by

    def samples(self) -> list[Sample]:
        with self._lock:
            return [Sample(values, count) for values, count in self._counts.items()]


class Gauge:
    """How many there are of something now."""

    def __init__(self, name: str, help_text: str) -> None:
        self.name, self.help = name, help_text
        self._lock = threading.Lock()
        self._value = 0

    def add(self, by: int) -> None:
        """More by so many, or fewer."""
        with self._lock:
            self._value += by

    @property
    def value(self) -> int:
        return self._value


class Buckets(NamedTuple):
    """``counts`` has one more than there are bounds: of what is above the last of them. ``sum_s``: of all seconds."""

    labels: tuple[str, ...]
    counts: tuple[int, ...]
    sum_s: float


class _Cell:
    __slots__ = ("counts", "sum_s")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.sum_s = 0.0


class Histogram:
    """Counts by how many seconds something took: at most each of ``bounds``."""

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str] = (), bounds: Sequence[float] = LATENCY_BOUNDS_S
    ) -> None:
        self.name, self.help, self.labels, self.bounds = name, help_text, tuple(labels), tuple(bounds)
        self._lock = threading.Lock()
        self._cells: dict[tuple[str, ...], _Cell] = {}

    def observe(self, seconds: float, *values: str) -> None:
        """Counts one that took so long."""
        place = bisect_left(self.bounds, seconds)
        with self._lock:
            cell = self._cells.get(values)
            if cell is None:
                cell = self._cells[values] = _Cell(len(self.bounds) + 1)
            cell.counts[place] += 1
            cell.sum_s += seconds

    def buckets(self) -> list[Buckets]:
        with self._lock:
            return [Buckets(values, tuple(cell.counts), cell.sum_s) for values, cell in self._cells.items()]
