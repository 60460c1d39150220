"""The values that a call on a column (``month(day)``, ``x + 1``) may have in each file, from the column's bounds.

Results are bounds: every value lies between them, but they need not occur. Where a value may leave its type's range
nothing is known: Spark 4 fails the query then, Spark 3.5 wraps around. Points in time may lie up to 18 hours from UTC,
because the session's zone is not known.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.expressions import Call, Literal, Step, as_decimal_type, step_type
from lakemark_core.types import (
    DATE,
    DOUBLE,
    INTEGER_BITS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Decimal,
    Type,
    is_floating,
    to_arrow,
)
from lakemark_server.file_index.arrow import AnyArray
from lakemark_server.file_index.entries.bounds import filled, flags

_Numbers = npt.NDArray[Any]

_SECOND: Final = 1_000_000
_HOUR: Final = 3_600 * _SECOND
_DAY: Final = 24 * _HOUR
_ZONE: Final = 18 * _HOUR
_DATE_BITS: Final = 32
_DAYS_MAX: Final = 100_000_000  # beyond that, microseconds do not fit into int64
_WHOLE: Final = {"month": (1, 12), "quarter": (1, 4), "day": (1, 31), "dayofyear": (1, 366)}
_CLOCK: Final = {"hour": (_DAY, _HOUR), "minute": (_HOUR, 60 * _SECOND), "second": (60 * _SECOND, _SECOND)}


@dataclass(frozen=True, slots=True)
class _Range:
    """Bounds by file, and where they are known. Dates are days, times microseconds, decimals Arrow arrays."""

    kind: Type
    low: Any
    high: Any
    low_known: _Numbers
    high_known: _Numbers


def call_bounds(call: Call, kind: Type, low: AnyArray, high: AnyArray) -> tuple[AnyArray, AnyArray] | None:
    """Bounds of the call's value from those of a column of this type.

    A null bound is unknown; None means that all are unknown.
    """
    try:
        bounds = _from_arrow(kind, low, high)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # the bounds are of a type that does not convert to this one
        return None
    for step in call:
        result = None if bounds is None else step_type(step, bounds.kind)
        if bounds is None or result is None:
            return None
        bounds = _after(step, bounds, result)
    if bounds is None:
        return None
    return _to_arrow(bounds.kind, bounds.low, bounds.low_known), _to_arrow(bounds.kind, bounds.high, bounds.high_known)


def _from_arrow(kind: Type, low: AnyArray, high: AnyArray) -> _Range | None:
    known = flags(low.is_valid()), flags(high.is_valid())
    if isinstance(kind, Decimal):
        exact = to_arrow(kind)
        return _Range(kind, low.cast(exact), high.cast(exact), *known)
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return _Range(kind, _micros(low, up=False), _micros(high, up=True), *known)
    numbers = np.int64 if kind == DATE or kind in INTEGER_BITS else np.float64 if is_floating(kind) else None
    if numbers is None:
        return None
    plain = to_arrow(kind) if kind != DATE else pa.date32()
    steps: list[_Numbers] = []
    for bounds in (low, high):
        exact_bounds: Any = bounds.cast(plain)
        exact_bounds = exact_bounds.cast(pa.int32()) if kind == DATE else exact_bounds
        steps.append(filled(exact_bounds, 0).to_numpy(zero_copy_only=False).astype(numbers))
    return _Range(kind, steps[0], steps[1], *known)


def _micros(bounds: AnyArray, *, up: bool) -> _Numbers:
    kind = cast("pa.TimestampType[Any, Any]", bounds.type)
    if kind.unit in ("s", "ms"):
        bounds = bounds.cast(pa.timestamp("us", kind.tz))
    ticks: Any = filled(cast(Any, bounds).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    if kind.unit == "ns":
        return cast(_Numbers, -(-ticks // 1_000) if up else ticks // 1_000)
    return cast(_Numbers, ticks)


def _to_arrow(kind: Type, values: Any, known: _Numbers) -> AnyArray:
    arrow_type: Any = to_arrow(kind)
    if isinstance(kind, Decimal):
        return cast(AnyArray, cast(Any, pc).if_else(pa.array(known), values, pa.scalar(None, values.type)))
    if kind == DATE:
        known = known & (values >= -(1 << (_DATE_BITS - 1))) & (values < 1 << (_DATE_BITS - 1))
        days: Any = pa.array(np.where(known, values, 0).astype(np.int32), mask=~known)
        return cast(AnyArray, days.cast(arrow_type))
    array: Any = pa.array(values, mask=~known)
    return cast(AnyArray, array.cast(arrow_type))


def _after(step: Step, bounds: _Range, result: Type) -> _Range | None:
    """Bounds of the step's value, which has the type ``result``."""
    if step.constant is not None:
        return _arithmetic(step, step.constant, bounds, result)
    if step.name in _CLOCK:
        around, unit = _CLOCK[step.name]
        low, high = bounds.low // unit, bounds.high // unit
        units = around // unit
        same = bounds.low // around == bounds.high // around
        return _cyclic(bounds, result, low % units, high % units, same, (0, units - 1))
    if step.name == "date_trunc":
        return _truncated_time(step.unit, bounds, result)
    days = _days(bounds)
    if step.name == "date":
        return days
    if step.name == "trunc":
        return replace(days, low=_truncated(step.unit, days.low), high=_truncated(step.unit, days.high))
    if step.name == "year":
        return replace(days, kind=result, low=_years(days.low) + 1970, high=_years(days.high) + 1970)
    around_of = _months if step.name == "day" else _years
    same = around_of(days.low) == around_of(days.high)
    return _cyclic(days, result, _part(step.name, days.low), _part(step.name, days.high), same, _WHOLE[step.name])


def _cyclic(
    bounds: _Range, kind: Type, low: _Numbers, high: _Numbers, same: _Numbers, whole: tuple[int, int]
) -> _Range:
    """Bounds of a cyclic part of a date or time, such as the month.

    ``same`` marks where both bounds lie in one cycle; elsewhere the value may be anything in ``whole``.
    """
    same = same & bounds.low_known & bounds.high_known
    always = np.ones(len(same), np.bool_)
    return _Range(kind, np.where(same, low, whole[0]), np.where(same, high, whole[1]), always, always)


def _years(days: _Numbers) -> _Numbers:
    """Years since 1970."""
    return days.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64)


def _months(days: _Numbers) -> _Numbers:
    """Months since January 1970."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_of(months: _Numbers) -> _Numbers:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _part(name: str, days: _Numbers) -> _Numbers:
    months = _months(days)
    match name:
        case "month":
            return months % 12 + 1
        case "quarter":
            return months % 12 // 3 + 1
        case "day":
            return days - _first_of(months) + 1
    return days - _first_of(_years(days) * 12) + 1


def _days(bounds: _Range) -> _Range:
    if bounds.kind == DATE:
        return bounds
    local = _local(bounds)
    return replace(local, kind=DATE, low=local.low // _DAY, high=local.high // _DAY)


def _local(bounds: _Range) -> _Range:
    """Wall-clock times in microseconds: of dates their midnight, of points in time those in any zone."""
    if bounds.kind == DATE:
        known = bounds.low_known & (abs(bounds.low) < _DAYS_MAX), bounds.high_known & (abs(bounds.high) < _DAYS_MAX)
        low, high = (
            np.where(is_known, days, 0) * _DAY for is_known, days in zip(known, (bounds.low, bounds.high), strict=True)
        )
        return _Range(TIMESTAMP_NTZ, low, high, *known)
    return bounds if bounds.kind == TIMESTAMP_NTZ else replace(_in_any_zone(bounds), kind=TIMESTAMP_NTZ)


def _in_any_zone(bounds: _Range) -> _Range:
    lowest, highest = np.iinfo(np.int64).min + _ZONE, np.iinfo(np.int64).max - _ZONE
    return replace(bounds, low=np.maximum(bounds.low, lowest) - _ZONE, high=np.minimum(bounds.high, highest) + _ZONE)


def _truncated(unit: str, days: _Numbers) -> _Numbers:
    match unit:
        case "year":
            return _first_of(_years(days) * 12)
        case "quarter":
            return _first_of(_months(days) // 3 * 3)
        case "month":
            return _first_of(_months(days))
        case "week":
            return (days + 3) // 7 * 7 - 3  # 1970 began on a Thursday; weeks begin on Mondays
    return days


def _truncated_time(unit: str, bounds: _Range, result: Type) -> _Range:
    """Bounds of a truncated time.

    The value is a point in time again, whichever zone it is truncated in, and so may be the constant that it is
    compared with.
    """
    local = _local(bounds)
    step = _CLOCK[unit][1] if unit in _CLOCK else None
    if step is not None:
        low, high = local.low // step * step, local.high // step * step
    else:
        low, high = (_truncated(unit, micros // _DAY) * _DAY for micros in (local.low, local.high))
    return _in_any_zone(replace(local, kind=result, low=low, high=high))


def _arithmetic(step: Step, constant: Literal, bounds: _Range, result: Type) -> _Range | None:
    value = constant.value
    if not isinstance(value, int | float | decimal.Decimal):
        return None
    if result == DOUBLE:
        with np.errstate(all="ignore"):
            return _calculated(
                step,
                bounds,
                result,
                np.float64(value),
                np.asarray(bounds.low, np.float64),
                np.asarray(bounds.high, np.float64),
            )
    if isinstance(result, Decimal):
        return _decimals(step, constant, bounds, result)
    if not isinstance(value, int):
        return None
    return _integers(step, value, bounds, result)


def _integers(step: Step, constant: int, bounds: _Range, result: Type) -> _Range:
    """Bounds of integer arithmetic, also on dates. Unknown where a value between the bounds may leave the type's
    range."""
    bits = _DATE_BITS if result == DATE else INTEGER_BITS[result]
    lowest, highest = _within(step, constant, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    type_lowest, type_highest = -(1 << 63), (1 << 63) - 1
    known = bounds.low_known & bounds.high_known
    if lowest > type_highest or highest < type_lowest:
        known = np.zeros(len(known), np.bool_)
    known = known & (bounds.low >= max(lowest, type_lowest)) & (bounds.high <= min(highest, type_highest))
    calculated = _calculated(
        step, bounds, result, np.int64(constant), np.where(known, bounds.low, 0), np.where(known, bounds.high, 0)
    )
    return replace(calculated, low_known=known, high_known=known)


def _within(step: Step, constant: int, lowest: int, highest: int) -> tuple[int, int]:
    """The least and the greatest value of the column for which the result is within its type."""
    match step.name:
        case "add":
            return lowest - constant, highest - constant
        case "subtract":
            return lowest + constant, highest + constant
        case "subtract_from":
            return constant - highest, constant - lowest
    if constant == 0:
        return lowest, highest
    ends = (lowest, highest) if constant > 0 else (highest, lowest)
    return -(-ends[0] // constant), ends[1] // constant


def _decimals(step: Step, constant: Literal, bounds: _Range, result: Decimal) -> _Range | None:
    """Bounds of decimal arithmetic, which is exact: ``result`` has all digits."""
    left, right = as_decimal_type(bounds.kind), None if constant.type is None else as_decimal_type(constant.type)
    if left is None or right is None or not isinstance(constant.value, int | decimal.Decimal):
        return None
    low, high = bounds.low, bounds.high
    if not isinstance(bounds.kind, Decimal):
        low, high = (pa.array(side).cast(cast(Any, to_arrow(bounds.kind))).cast(to_arrow(left)) for side in (low, high))
    other = pa.scalar(decimal.Decimal(constant.value), cast(Any, to_arrow(right)))
    return _calculated(step, bounds, result, other, low, high)


def _calculated(step: Step, bounds: _Range, kind: Type, constant: Any, low: Any, high: Any) -> _Range:
    """Applies the step to each bound, and puts the results in ascending order."""
    function = {"add": "add", "multiply": "multiply"}.get(step.name, "subtract")

    def apply(value: Any) -> Any:
        left, right = (constant, value) if step.name == "subtract_from" else (value, constant)
        if isinstance(kind, Decimal):
            return pc.call_function(function, [left, right])
        return getattr(np, function)(left, right)

    negative = constant.as_py() < 0 if isinstance(constant, pa.Scalar) else constant < 0
    turned = step.name == "subtract_from" or (step.name == "multiply" and negative)
    if turned:
        return _Range(kind, apply(high), apply(low), bounds.high_known, bounds.low_known)
    return _Range(kind, apply(low), apply(high), bounds.low_known, bounds.high_known)
