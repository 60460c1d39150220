"""Statistics of a column over several partitions, made of those of each. Pure.

As Hive's metastore makes them without sketches of distinct values: the lowest and the highest bound, the greatest
length, the sum of nulls, and the greatest number of distinct values, below which the whole cannot be. What partitions
without statistics may hold is not guessed.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any, Final

from lakemark_thrift.ttypes import ColumnStatisticsData, ColumnStatisticsObj, Date, Decimal, Timestamp

Fold = Callable[[Sequence[Any]], Any]


def _number(bound: Decimal) -> decimal.Decimal:
    """Exact, however many digits it has."""
    unscaled = int.from_bytes(bound.unscaled or b"", "big", signed=True)
    return decimal.Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -(bound.scale or 0)))


def _order(bound: Any) -> Any:
    match bound:
        case Decimal():
            return _number(bound)
        case Date():
            return bound.daysSinceEpoch or 0
        case Timestamp():
            return bound.secondsSinceEpoch or 0
        case _:
            return bound


def _least(bounds: Sequence[Any]) -> Any:
    return min(bounds, key=_order)


def _greatest(bounds: Sequence[Any]) -> Any:
    return max(bounds, key=_order)


_FOLDS: Final[dict[str, Fold]] = {
    "lowValue": _least,
    "highValue": _greatest,
    "numNulls": sum,
    "numDVs": max,
    "maxColLen": max,
    "avgColLen": max,
    "numTrues": sum,
    "numFalses": sum,
}
"""By field of the structs for each kind of column. Sketches and histograms cannot be joined without reading them."""


def aggregated(known: Sequence[ColumnStatisticsObj]) -> ColumnStatisticsObj | None:
    """Of one column: ``known`` has its statistics in some partitions, one at least.

    None if they are of different kinds, as after a change of the column's type.
    """
    kinds = {_kind(one.statsData) for one in known}
    if len(kinds) > 1 or None in kinds:
        return None
    (kind,) = kinds
    parts = [getattr(one.statsData, str(kind)) for one in known]
    folded = type(parts[0])()
    for field in folded.__slots__:
        values = [value for part in parts if (value := getattr(part, field)) is not None]
        if field in _FOLDS and values:
            setattr(folded, field, _FOLDS[field](values))
    data = ColumnStatisticsData(**{str(kind): folded})
    return ColumnStatisticsObj(colName=known[0].colName, colType=known[0].colType, statsData=data)


def _kind(data: ColumnStatisticsData | None) -> str | None:
    """The field of the union that is set."""
    return next((kind for kind in ColumnStatisticsData.__slots__ if getattr(data, kind, None) is not None), None)
