"""One bound (lowest or highest value) of a column for many files, compared with a literal all at once.

``compare`` means "surely": it is false where the bound is not known. Values are converted once, to numpy arrays of
integers, float64 or 16-byte big-endian integers (long decimals). Strings and bytes stay in Arrow and compare by
unsigned bytes, which is the order of code points, as in Spark.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.expressions import LiteralValue
from lakemark_server.file_index.arrow import AnyArray, integer_form

Mask: TypeAlias = "npt.NDArray[np.bool_] | np.bool_"
"""One flag for each file, or one for all of them."""
Order: TypeAlias = Literal["<", "<=", ">", ">="]
_Numbers: TypeAlias = npt.NDArray[Any]

_ORDERS: dict[Order, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
RANGE_GROWTH_MAX: Final = 2.0**-10
"""How much wider the ranges of doubles may become to take less memory, as a share of the median range."""
_INT64 = 1 << 63
_INT128 = 1 << 127
_EPOCH = datetime.datetime(1970, 1, 1)
_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def squash(mask: npt.NDArray[np.bool_]) -> Mask:
    """The mask as a single flag if all files have the same one. Single flags cost nothing to combine."""
    if mask.all():
        return np.True_
    return mask if mask.any() else np.False_


def both(*masks: Mask) -> Mask:
    """AND of masks. A single flag is handled apart: numpy would broadcast it, which takes longer than the AND."""
    result: Mask = np.True_
    for mask in masks:
        if isinstance(mask, np.ndarray):
            result = mask & result if isinstance(result, np.ndarray) else mask
        elif not mask:
            return mask
    return result


def either(*masks: Mask) -> Mask:
    """OR of masks, like ``both``."""
    result: Mask = np.False_
    for mask in masks:
        if isinstance(mask, np.ndarray):
            result = mask | result if isinstance(result, np.ndarray) else mask
        elif mask:
            return mask
    return result


class Bound(ABC):
    """The lowest or the highest values of a column, one for each file."""

    known: Mask

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """How much memory the bound takes."""

    @abstractmethod
    def accepts(self, value: LiteralValue) -> bool:
        """Whether the value can be compared with this bound. If not, nothing is known of the column."""

    @abstractmethod
    def compare(self, order: Order, value: LiteralValue) -> Mask:
        """Where the bound is known and ``bound order value`` holds."""

    @abstractmethod
    def equals(self, other: Bound) -> Mask:
        """Where both bounds are known and equal."""

    @abstractmethod
    def reaches(self, values: Sequence[LiteralValue], high: Bound) -> Mask:
        """Where one of the values may lie between this (low) bound and the high one, both inclusive."""


class NumberBound(Bound):
    """Numbers, booleans, dates and timestamps, as integers of some unit or as doubles."""

    def __init__(
        self, values: _Numbers, known: Mask, encode: Callable[[LiteralValue], fractions.Fraction | int | float | None]
    ):
        self.values = values
        self.known = known
        self._encode = encode

    @property
    def memory_bytes(self) -> int:
        return int(self.values.nbytes + self.known.nbytes)

    def accepts(self, value: LiteralValue) -> bool:
        return self._encode(value) is not None

    def compare(self, order: Order, value: LiteralValue) -> Mask:
        encoded = self._encode(value)
        if encoded is None:
            return np.False_
        if isinstance(encoded, float):
            limit = _single(encoded, up=order in ("<", ">=")) if self.values.dtype == np.float32 else encoded
            return both(np.asarray(_ORDERS[order](self.values, limit)), self.known)
        floor = math.floor(encoded)
        if floor != encoded:  # the literal lies between two values of the unit: compare with the lower one
            order = "<=" if order in ("<", "<=") else ">"
        limit = self._limit
        if not -limit <= floor < limit:
            return self.known if (order in ("<", "<=")) == (floor > 0) else np.False_
        return both(np.asarray(_ORDERS[order](self.values, self._key(floor))), self.known)

    def equals(self, other: Bound) -> Mask:
        if not isinstance(other, NumberBound) or other.values.dtype != self.values.dtype:
            return np.False_
        return both(np.asarray(self.values == other.values), self.known, other.known)

    def reaches(self, values: Sequence[LiteralValue], high: Bound) -> Mask:
        if not isinstance(high, NumberBound):
            return np.True_
        kind = np.float64 if self.values.dtype == np.float32 else self.values.dtype
        keys = np.sort(np.array(self._keys(values), dtype=kind))
        if not len(keys):
            return np.False_
        first = np.searchsorted(keys, self.values)
        if isinstance(self.known, np.ndarray) or not self.known:
            first = np.where(self.known, first, 0)
        within = keys[np.minimum(first, len(keys) - 1)] <= high.values
        return both(first < len(keys), either(within, ~high.known))

    @property
    def _limit(self) -> int:
        return _INT128 if self.values.dtype.kind == "S" else 1 << (8 * self.values.dtype.itemsize - 1)

    def _key(self, floor: int) -> int | bytes:
        return _sortable(floor) if self.values.dtype.kind == "S" else floor

    def _keys(self, values: Sequence[LiteralValue]) -> list[float | int | bytes]:
        keys: list[float | int | bytes] = []
        for value in values:
            encoded = self._encode(value)
            if isinstance(encoded, float):
                keys.append(encoded)
            elif encoded is not None and encoded.denominator == 1 and -self._limit <= encoded < self._limit:
                keys.append(self._key(int(encoded)))
        return keys


def halved(low: Bound | None, high: Bound | None) -> tuple[Bound | None, Bound | None]:
    """Bounds of doubles as float32, in half the memory.

    The lower bound is rounded down and the upper one up, so that they remain bounds. Bounds stay doubles if a file's
    range would become wider on either side by more than RANGE_GROWTH_MAX of the median range, or if a file with a
    single value would get a range.
    """
    if not isinstance(low, NumberBound) or not isinstance(high, NumberBound):
        return low, high
    if low.values.dtype != np.float64 or high.values.dtype != np.float64:
        return low, high
    lowest, highest = np.where(low.known, low.values, 0.0), np.where(high.known, high.values, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        down, up = lowest.astype(np.float32), highest.astype(np.float32)
        down = np.where(down > lowest, np.nextafter(down, np.float32(-np.inf)), down)
        up = np.where(up < highest, np.nextafter(up, np.float32(np.inf)), up)
        ranges = np.where(low.known & high.known, highest - lowest, 0.0)
        several = ranges > 0
        allowed = np.where(several, np.median(ranges[several]) * RANGE_GROWTH_MAX, 0.0) if several.any() else 0.0
        # The difference of infinities is NaN, which must not pass.
        if not (np.all(lowest - down <= allowed) and np.all(up - highest <= allowed)):
            return low, high
    return NumberBound(down, low.known, _double), NumberBound(up, high.known, _double)


def _single(value: float, *, up: bool) -> np.float32:
    """The nearest float32 that is not smaller (``up``) or not greater. Floats compare with it as with the value."""
    with np.errstate(over="ignore"):
        nearest = np.float32(value)
    if up:
        return nearest if float(nearest) >= value else np.nextafter(nearest, np.float32(np.inf))
    return nearest if float(nearest) <= value else np.nextafter(nearest, np.float32(-np.inf))


class TextBound(Bound):
    """Strings and bytes. With ``codes``, the value of each file is ``values[code]``."""

    def __init__(self, values: AnyArray, known: Mask, codes: npt.NDArray[np.intp] | None = None):
        self.values = values
        self.known = known
        self._codes = codes

    @property
    def memory_bytes(self) -> int:
        return int(self.values.nbytes + self.known.nbytes + (0 if self._codes is None else self._codes.nbytes))

    def accepts(self, value: LiteralValue) -> bool:
        return isinstance(value, str | bytes)

    def compare(self, order: Order, value: LiteralValue) -> Mask:
        name = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}[order]
        result = pc.call_function(name, [self.values, pa.scalar(_bytes(value), self.values.type)])
        return self._spread(result)

    def equals(self, other: Bound) -> Mask:
        if not isinstance(other, TextBound):
            return np.False_
        if self is other:
            return self.known
        return flags(pc.call_function("equal", [self._plain(), other._plain()]))

    def reaches(self, values: Sequence[LiteralValue], high: Bound) -> Mask:
        if not isinstance(high, TextBound):
            return np.True_
        if high is self and self._codes is not None:
            distinct = TextBound(self.values, np.True_)
            return np.asarray(
                np.broadcast_to(distinct.reaches(values, distinct), len(self.values))[self._codes] | ~self.known
            )
        keys = pa.array(sorted({_bytes(value) for value in values}), self.values.type)
        if not len(keys):
            return np.False_
        low, top = self._plain(), high._plain()
        # Binary search for all files at once: the passes grow with the logarithm of the list's length.
        first = np.zeros(len(low), dtype=np.int64)
        last = np.full(len(low), len(keys))
        while (open_ := first < last).any():
            middle = (first + last) // 2
            below = flags(pc.call_function("less", [_take(keys, middle), low])) & open_
            first = np.where(below, middle + 1, first)
            last = np.where(open_ & ~below, middle, last)
        within = flags(pc.call_function("less_equal", [_take(keys, first), top]))
        return both(first < len(keys), either(within, ~high.known))

    def _plain(self) -> AnyArray:
        return self.values if self._codes is None else self.values.take(_positions(self._codes))

    def _spread(self, result: AnyArray) -> Mask:
        mask = flags(result)
        return mask if self._codes is None else both(mask[self._codes], self.known)


def bound_of(array: AnyArray | pa.ChunkedArray[Any], *, size: int) -> Bound | None:
    """The bound in an Arrow array of ``size`` files (null: not known); None for a type that has no order here."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if len(array) != size:
        raise ValueError(f"{len(array)} bounds for {size} files")
    kind = array.type
    known = np.True_ if array.null_count == 0 else squash(flags(array.is_valid()))
    if isinstance(array, pa.DictionaryArray):
        if (text := _as_binary(array.dictionary)) is None or len(text) == 0:
            return bound_of(array.dictionary_decode(), size=size)
        codes = np.asarray(filled(array.indices, 0).to_numpy(zero_copy_only=False), dtype=np.intp)
        return TextBound(text, known, codes)
    if (text := _as_binary(array)) is not None:
        return TextBound(text, known)
    if pa.types.is_floating(kind):
        numbers = _numbers(array, pa.float64())
        return NumberBound(numbers, both(known, squash(~np.isnan(numbers))), _double)
    if isinstance(kind, pa.Decimal128Type):
        return NumberBound(_decimals(array), known, _scaled(kind.scale))
    integers = integer_form(kind)
    return None if integers is None else NumberBound(_numbers(array, integers), known, _integer_encoder(kind))


def _integer_encoder(kind: pa.DataType) -> Callable[[LiteralValue], fractions.Fraction | int | None]:
    """The function that turns literals into the integers of a type's values; None for a literal of another type."""
    if pa.types.is_boolean(kind):
        return lambda value: _exact(value, bool)
    if pa.types.is_date32(kind):
        return _days
    if isinstance(kind, pa.TimestampType):
        return _ticks(_TICKS_PER_SECOND[str(kind.unit)])
    return _whole


def flags(array: AnyArray) -> npt.NDArray[np.bool_]:
    """A boolean Arrow array as a mask; null counts as false."""
    return np.asarray(filled(array, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def filled(array: AnyArray, value: bool | int | decimal.Decimal) -> AnyArray:
    """The array with a value in place of nulls."""
    if not array.null_count:
        return array
    result: AnyArray = pc.call_function("coalesce", [array, pa.scalar(value, array.type)])
    return result


def _positions(numbers: npt.NDArray[np.integer[Any]]) -> pa.Int64Array:
    return pa.array(numbers, pa.int64())


def _take(keys: AnyArray, positions: npt.NDArray[np.int64]) -> AnyArray:
    return keys.take(_positions(np.minimum(positions, len(keys) - 1)))


def _as_binary(array: AnyArray) -> AnyArray | None:
    kind = array.type
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return array.cast(pa.large_binary())
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.binary())
    return None


def _bytes(value: LiteralValue) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def _numbers(array: AnyArray, kind: pa.DataType) -> _Numbers:
    return np.asarray(filled(array.cast(kind), 0).to_numpy(zero_copy_only=False))


def _decimals(array: AnyArray) -> _Numbers:
    """Unscaled integers: int64 for up to 18 digits, else 16 bytes that sort like the numbers."""
    array = filled(array, decimal.Decimal(0))
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(0, dtype=np.int64)
    words = np.frombuffer(memoryview(data), dtype="<i8")[2 * array.offset : 2 * (array.offset + len(array))].reshape(
        -1, 2
    )
    if isinstance(array.type, pa.Decimal128Type) and array.type.precision <= 18:
        return np.ascontiguousarray(words[:, 0])
    sortable = np.empty(words.shape, dtype=">u8")
    sortable[:, 0] = words[:, 1].view("<u8") ^ np.uint64(_INT64)
    sortable[:, 1] = words[:, 0].view("<u8")
    return sortable.view("S16").reshape(-1)


def _sortable(number: int) -> bytes:
    return (number + _INT128).to_bytes(16, "big")


def _double(value: LiteralValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isinstance(value, float) or number == value else None


def _exact(value: LiteralValue, kind: type) -> fractions.Fraction | None:
    return fractions.Fraction(int(value)) if isinstance(value, kind) and isinstance(value, bool | int) else None


def _whole(value: LiteralValue) -> fractions.Fraction | int | None:
    return value if type(value) is int else _scaled(0)(value)


def _scaled(scale: int) -> Callable[[LiteralValue], fractions.Fraction | None]:
    def encode(value: LiteralValue) -> fractions.Fraction | None:
        if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal) or not math.isfinite(value):
            return None
        return fractions.Fraction(value) * int(10**scale)

    return encode


def _days(value: LiteralValue) -> fractions.Fraction | None:
    if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
        return None
    return fractions.Fraction(value.toordinal() - _EPOCH.toordinal())


def _ticks(per_second: int) -> Callable[[LiteralValue], fractions.Fraction | None]:
    def encode(value: LiteralValue) -> fractions.Fraction | None:
        if not isinstance(value, datetime.datetime):
            return None
        # Literals are points in time in UTC or wall-clock times, like the column.
        microseconds = (value.replace(tzinfo=None) - _EPOCH) // datetime.timedelta(microseconds=1)
        return fractions.Fraction(microseconds * per_second, 1_000_000)

    return encode
