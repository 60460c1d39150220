"""Statistics of a column over several partitions, made of those of each. Pure.

As Hive's metastore makes them without sketches of distinct values: the lowest and the highest bound, the greatest
length, the sum of nulls, and the greatest number of distinct values, below which the whole cannot be. What partitions
without statistics may hold is not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from lakemark_thrift.ttypes import ColumnStatisticsData, ColumnStatisticsObj, Date, Decimal, Timestamp

Fold = Callable[[Sequence[Any]], Any]

_I64_MAX: Final = (1 << 63) - 1


def _order(bound: Any, scale: int) -> Any:
    """``scale``: of decimals, no smaller than theirs, so that they compare as whole numbers of any length."""
    match bound:
        case Decimal():
            unscaled = int.from_bytes(bound.unscaled or b"", "big", signed=True)
            return unscaled * 10 ** (scale - (bound.scale or 0))
        case Date():
            return bound.daysSinceEpoch or 0
        case Timestamp():
            return bound.secondsSinceEpoch or 0
        case _:
            return bound


def _scale(bounds: Sequence[Any]) -> int:
    return max((bound.scale or 0 for bound in bounds if isinstance(bound, Decimal)), default=0)


def _least(bounds: Sequence[Any]) -> Any:
    scale = _scale(bounds)
    return min(bounds, key=lambda bound: _order(bound, scale))


def _greatest(bounds: Sequence[Any]) -> Any:
    scale = _scale(bounds)
    return max(bounds, key=lambda bound: _order(bound, scale))


def _sum(counts: Sequence[int]) -> int:
    """No more than the field can hold."""
    return max(-_I64_MAX, min(sum(counts), _I64_MAX))


_FOLDS: Final[dict[str, Fold]] = {
    "lowValue": _least,
    "highValue": _greatest,
    "numNulls": _sum,
    "numDVs": max,
    "maxColLen": max,
    "avgColLen": max,
    "numTrues": _sum,
    "numFalses": _sum,
}
"""By field of the structs for each kind of column. Sketches and histograms cannot be joined without reading them."""


class Aggregate:
    """The statistics of one column, to which those in one partition after another are added. It keeps none of them."""

    def __init__(self) -> None:
        self._joined: ColumnStatisticsObj | None = None
        self._differ = False

    def add(self, known: ColumnStatisticsObj) -> None:
        """Adds those in one more partition."""
        kind = _kind(known.statsData)
        if self._differ or kind is None:
            self._differ = True
            return
        parts = [getattr(known.statsData, kind)]
        first = known
        if self._joined is not None:
            first = self._joined
            if _kind(first.statsData) != kind:
                self._differ = True
                return
            parts.insert(0, getattr(first.statsData, kind))
        data = ColumnStatisticsData(**{kind: _folded(parts)})
        self._joined = ColumnStatisticsObj(colName=first.colName, colType=first.colType, statsData=data)

    @property
    def result(self) -> ColumnStatisticsObj | None:
        """None without any, and if they are of different kinds, as after a change of the column's type."""
        return None if self._differ else self._joined


def _folded(parts: Sequence[Any]) -> Any:
    """Of structs of the same kind."""
    folded = type(parts[0])()
    for field in folded.__slots__:
        values = [value for part in parts if (value := getattr(part, field)) is not None]
        if field in _FOLDS and values:
            setattr(folded, field, _FOLDS[field](values))
    return folded


def _kind(data: ColumnStatisticsData | None) -> str | None:
    """The field of the union that is set."""
    return next((kind for kind in ColumnStatisticsData.__slots__ if getattr(data, kind, None) is not None), None)
