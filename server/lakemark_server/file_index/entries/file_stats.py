"""Statistics of many files, column by column: the input of pruning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_server.file_index.arrow import AnyArray
from lakemark_server.file_index.at_hand import may_make
from lakemark_server.file_index.entries.bounds import (
    Bound,
    Mask,
    both,
    bound_of,
    either,
    filled,
    flags,
    halved,
    squash,
)


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of one column, one entry for each file. A null entry, or no array at all, means not known.

    ``min`` and ``max`` bound the values that are neither null nor NaN; they need not occur (truncated strings).
    ``absent`` marks files that were written before the column was added, so that it is null in every row.
    """

    min: AnyArray | None = None
    max: AnyArray | None = None
    null_count: AnyArray | None = None
    nan_count: AnyArray | None = None
    absent: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class FileStats:
    """The rows of each file, and by column id the statistics and the exact partition values (null is null)."""

    rows: npt.NDArray[np.integer[Any]]
    columns: Mapping[int, ColumnStats] = field(default_factory=dict)
    partition: Mapping[int, AnyArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreparedColumn:
    """A column's statistics as bounds and masks. ``exact`` has the value of each file if all its rows have the same
    one."""

    low: Bound | None
    high: Bound | None
    no_nulls: Mask
    all_null: Mask
    may_nan: Mask
    all_nan: Mask
    exact: AnyArray | None = None

    @property
    def memory_bytes(self) -> int:
        """How much memory the bounds and masks take."""
        bounds = {id(bound): bound.memory_bytes for bound in (self.low, self.high) if bound is not None}
        masks = (self.no_nulls, self.all_null, self.may_nan, self.all_nan)
        exact = 0 if self.exact is None else self.exact.nbytes
        return 500 + sum(bounds.values()) + sum(mask.nbytes for mask in masks) + exact


BoundsOf = Callable[[AnyArray, AnyArray], tuple[AnyArray, AnyArray] | None]
"""Bounds of a function's value from those of its argument. Null means unknown; None means that all are unknown."""
Keep = Callable[[int, Callable[[], PreparedColumn]], PreparedColumn]


class PreparedStats:
    """Statistics that convert each column when it is first asked for. Thread-safe.

    ``keep(column_id, make)`` returns the column that it keeps, or calls ``make``. Without ``keep`` all columns are kept
    here.
    """

    def __init__(self, stats: FileStats, keep: Keep | None = None):
        self._stats = stats
        self._columns: dict[int, PreparedColumn] = {}
        self._keep = keep or self._keep_all
        self.size = len(stats.rows)
        self.not_empty: Mask = squash(np.asarray(stats.rows) > 0) if self.size else np.False_

    @property
    def memory_bytes(self) -> int:
        """How much memory the statistics take without the columns."""
        rows = np.asarray(self._stats.rows)
        return 1_000 + self.not_empty.nbytes + (rows.nbytes if rows.strides != (0,) else 0)

    def column(self, column_id: int) -> PreparedColumn | None:
        """The column with this id; None if nothing is known of it."""
        if column_id in self._stats.partition:
            return self._keep(column_id, lambda: _from_values(self._stats.partition[column_id], self.size))
        if column_id in self._stats.columns:
            return self._keep(
                column_id, lambda: _from_stats(self._stats.columns[column_id], np.asarray(self._stats.rows))
            )
        return None

    def applied(self, column_id: int, bounds: BoundsOf) -> PreparedColumn | None:
        """The result of a function of the column: null for null, else within ``bounds``."""
        plain = self.column(column_id)
        if plain is None:
            return None
        low = high = self._stats.partition.get(column_id)
        if low is None:
            stats = self._stats.columns[column_id]
            low, high = stats.min, stats.max
        known = [array for array in (low, high) if array is not None]
        result = None
        if known:
            nothing = pa.nulls(self.size, known[0].type)
            result = bounds(*(_plain(nothing if array is None else array) for array in (low, high)))
        low_bound, high_bound = (
            (None, None) if result is None else (bound_of(bound, size=self.size) for bound in result)
        )
        return replace(plain, low=low_bound, high=high_bound, exact=None)

    def _keep_all(self, column_id: int, make: Callable[[], PreparedColumn]) -> PreparedColumn:
        column = self._columns.get(column_id)
        if column is None:
            may_make()
            column = self._columns[column_id] = make()
        return column


class PartitionsOnly(PreparedStats):
    """The same files, with statistics on these columns only: the partition columns."""

    def __init__(self, whole: PreparedStats, column_ids: Collection[int]):
        self._whole = whole
        self._ids = column_ids
        self.size = whole.size
        self.not_empty = whole.not_empty

    def column(self, column_id: int) -> PreparedColumn | None:
        return self._whole.column(column_id) if column_id in self._ids else None

    def applied(self, column_id: int, bounds: BoundsOf) -> PreparedColumn | None:
        return self._whole.applied(column_id, bounds) if column_id in self._ids else None


def prepare(stats: FileStats) -> PreparedStats:
    """Statistics for many calls of ``prune``. Cheap itself: columns are converted on demand."""
    return PreparedStats(stats)


def _from_stats(stats: ColumnStats, rows: npt.NDArray[np.integer[Any]]) -> PreparedColumn:
    size = len(rows)
    absent: Mask = np.False_ if stats.absent is None else squash(stats.absent)
    no_nulls = both(_where(stats.null_count, lambda count: count == 0, size), ~absent)
    all_null = either(_where(stats.null_count, lambda count: count >= rows, size), absent)
    may_nan = both(~_where(stats.nan_count, lambda count: count == 0, size), ~absent)
    all_nan = _where(stats.nan_count, lambda count: count >= rows, size)
    kinds = [array.type for array in (stats.min, stats.max) if array is not None]
    if len(set(kinds)) > 1:
        raise ValueError(f"min and max are of different types: {kinds}")
    if kinds and not any(map(pa.types.is_floating, kinds)):
        may_nan = all_nan = np.False_
    low = None if stats.min is None else bound_of(stats.min, size=size)
    high = None if stats.max is None else bound_of(stats.max, size=size)
    low, high = halved(low, high)
    return PreparedColumn(low, high, no_nulls, all_null, may_nan, all_nan)


def _plain(array: AnyArray | pa.ChunkedArray[Any]) -> AnyArray:
    whole: Any = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    decoded: AnyArray = whole.dictionary_decode() if isinstance(whole, pa.DictionaryArray) else whole
    return decoded


def _from_values(values: AnyArray | pa.ChunkedArray[Any], size: int) -> PreparedColumn:
    array: AnyArray = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    valid: Mask = squash(flags(array.is_valid()))
    is_nan: Mask = np.False_
    if pa.types.is_floating(array.type):
        is_nan = squash(flags(pc.call_function("is_nan", [array])))
    bound = bound_of(array, size=size)
    return PreparedColumn(bound, bound, valid, ~valid, is_nan, is_nan, exact=array)


def _where(counts: AnyArray | None, test: Any, size: int) -> Mask:
    """Where a count is known and passes the test."""
    if counts is None:
        return np.False_
    if len(counts) != size:
        raise ValueError(f"{len(counts)} counts for {size} files")
    known: Mask = np.True_
    if counts.null_count:
        known = flags(counts.is_valid())
        counts = filled(counts, 0)
    return squash(np.broadcast_to(np.asarray(test(counts.to_numpy(zero_copy_only=False))) & known, size))
