"""Statistics of a column over several partitions, made of those of each. Pure.

As Hive's metastore makes them by default, without sketches of distinct values: the lowest and the highest bound, the
greatest length, the sum of nulls, and the greatest number of distinct values, below which the whole cannot be. If some
of the partitions have no statistics of the column, and at least two have, it assumes that sums grow with the number of
partitions, and that bounds change evenly along the partitions in the order in which they were asked for.
"""

from __future__ import annotations

from typing import Any, Final

from lakemark_thrift.ttypes import ColumnStatisticsData, ColumnStatisticsObj, Date, Decimal, Timestamp

_I64_MAX: Final = (1 << 63) - 1

_LEAST: Final = frozenset({"lowValue"})
_GREATEST: Final = frozenset({"highValue", "numDVs", "maxColLen", "avgColLen"})
_SUMS: Final = frozenset({"numNulls", "numTrues", "numFalses"})
"""Fields of the structs for each kind of column. Sketches and histograms cannot be joined without reading them."""

_WHOLE: Final = frozenset({"longStats", "dateStats", "timestampStats"})
"""Kinds with whole numbers, of which there are no more distinct ones than between their bounds."""


class Aggregate:
    """The statistics of one column, to which those in one partition after another are added. It keeps none of them."""

    def __init__(self) -> None:
        self._first: ColumnStatisticsObj | None = None
        self._kind = ""
        self._differ = False
        self._count = 0
        self._fields: dict[str, _Values] = {}

    def add(self, known: ColumnStatisticsObj, position: int = 0) -> None:
        """Adds those in one more partition, which stands at this position among those that were asked for."""
        kind = _kind(known.statsData)
        if self._differ or kind is None or self._kind not in ("", kind):
            self._differ = True
            return
        part = getattr(known.statsData, kind)
        if self._first is None:
            self._first, self._kind = known, kind
            names = set(type(part).__slots__) & (_LEAST | _GREATEST | _SUMS)
            self._fields = {name: _Sum() if name in _SUMS else _Bounds() for name in sorted(names)}
        self._count += 1
        for name, values in self._fields.items():
            value = getattr(part, name)
            if value is not None:
                values.add(value, position)

    def result(self, asked: int | None = None) -> ColumnStatisticsObj | None:
        """Those of as many partitions as were asked for; None: of those that were added.

        There are none without any, and if they are of different kinds, as after a change of the column's type.
        """
        if self._differ or self._first is None:
            return None
        asked = max(self._count, asked or 0)
        told = {name: values.told(name, self._count, asked) for name, values in self._fields.items()}
        low, high = told.get("lowValue"), told.get("highValue")
        if self._kind in _WHOLE and low is not None and high is not None and told.get("numDVs") is not None:
            told["numDVs"] = min(told["numDVs"], _clamped(_number(high) - _number(low) + 1))
        joined = type(getattr(self._first.statsData, self._kind))(**told)
        data = ColumnStatisticsData(**{self._kind: joined})
        return ColumnStatisticsObj(colName=self._first.colName, colType=self._first.colType, statsData=data)


class _Values:
    """The values of a field in all partitions."""

    def add(self, value: Any, position: int) -> None:
        raise NotImplementedError

    def told(self, name: str, count: int, asked: int) -> Any:
        """The value for ``asked`` partitions, ``count`` of which have statistics. None: it is not known."""
        raise NotImplementedError


class _Sum(_Values):
    def __init__(self) -> None:
        self._sum: int | None = None

    def add(self, value: Any, position: int) -> None:
        self._sum = (self._sum or 0) + value

    def told(self, name: str, count: int, asked: int) -> int | None:
        if self._sum is None:
            return None
        return _clamped(self._sum if count == asked or count < 2 else self._sum // count * asked)


class _Bounds(_Values):
    def __init__(self) -> None:
        self._count = 0
        self._least: Any = None
        self._least_at = 0
        self._greatest: Any = None
        self._greatest_at = 0

    def add(self, value: Any, position: int) -> None:
        self._count += 1
        if self._count == 1 or _is_less(value, self._least):
            self._least, self._least_at = value, position
        if self._count == 1 or _is_less(self._greatest, value):
            self._greatest, self._greatest_at = value, position

    def told(self, name: str, count: int, asked: int) -> Any:
        least = name in _LEAST
        if self._count == 0 or count == asked or count < 2:
            return self._least if least else self._greatest
        if self._count < count:  # nobody knows how it goes on where it is missing
            return None
        return self._extended(asked - 1, least=least)

    def _extended(self, last: int, *, least: bool) -> Any:
        """The least or greatest value on the line through both, up to the first or the last partition."""
        away = abs(self._greatest_at - self._least_at)
        if not away:
            return self._least if least else self._greatest
        # From the other value to the end at which the wanted one lies.
        if least:
            far = self._greatest_at if self._least_at < self._greatest_at else last - self._greatest_at
        else:
            far = last - self._least_at if self._least_at < self._greatest_at else self._least_at
        scale = max(_scale(self._least), _scale(self._greatest))
        low, high = _number(self._least, scale), _number(self._greatest, scale)
        change = (high - low) * far / away if isinstance(low, float) else (high - low) * far // away
        return _as(self._least, high - change if least else low + change, scale)


def _is_less(one: Any, other: Any) -> bool:
    scale = max(_scale(one), _scale(other))
    return bool(_number(one, scale) < _number(other, scale))


def _scale(value: Any) -> int:
    return (value.scale or 0) if isinstance(value, Decimal) else 0


def _number(value: Any, scale: int = 0) -> Any:
    """The value as a number. ``scale``: of decimals, no less than theirs, so that they are whole numbers."""
    match value:
        case Decimal():
            unscaled = int.from_bytes(value.unscaled or b"", "big", signed=True)
            return unscaled * 10 ** (scale - (value.scale or 0))
        case Date():
            return value.daysSinceEpoch or 0
        case Timestamp():
            return value.secondsSinceEpoch or 0
        case _:
            return value


def _as(like: Any, number: Any, scale: int) -> Any:
    """The number as a value of the same type."""
    match like:
        case Decimal():
            size = number.bit_length() // 8 + 1
            return Decimal(scale=scale, unscaled=number.to_bytes(size, "big", signed=True))
        case Date():
            return Date(daysSinceEpoch=_clamped(number))
        case Timestamp():
            return Timestamp(secondsSinceEpoch=_clamped(number))
        case float():
            return number
        case _:
            return _clamped(number)


def _clamped(number: int) -> int:
    """No more than the field can hold."""
    return max(-_I64_MAX, min(number, _I64_MAX))


def _kind(data: ColumnStatisticsData | None) -> str | None:
    """The field of the union that is set."""
    return next((kind for kind in ColumnStatisticsData.__slots__ if getattr(data, kind, None) is not None), None)
