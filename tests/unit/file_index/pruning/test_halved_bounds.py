"""Bounds of doubles as float32: still bounds, hardly wider, and compared correctly with literals."""

from __future__ import annotations

import math
import operator
import statistics
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_server.file_index.entries.bounds import RANGE_GROWTH_MAX, NumberBound, Order, bound_of, halved

ORDERS: dict[Order, Any] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
NUMBERS = st.one_of(
    st.floats(allow_nan=False),
    st.integers(-4, 4).map(float),
    st.floats(width=32, allow_nan=False),
    st.sampled_from([1.1, 1 / 3, 1e300, -1e300, 3.5e38, 1e-50, 16_777_217.0, 900.05]),
)
RANGES = st.lists(
    st.one_of(
        st.tuples(NUMBERS, NUMBERS).map(sorted).map(tuple),
        NUMBERS.map(lambda one: (one, one)),
        st.tuples(NUMBERS, st.none()),
        st.tuples(st.none(), NUMBERS),
        st.just((None, None)),
        st.floats(-1e6, 1e6).map(lambda one: (one, one + 100.0)),
    ),
    min_size=1,
    max_size=6,
)


def bounds(ranges: list[tuple[float | None, float | None]]) -> list[NumberBound]:
    found = [bound_of(pa.array(side, pa.float64()), size=len(ranges)) for side in zip(*ranges, strict=True)]
    assert all(isinstance(one, NumberBound) for one in found)
    return found  # type: ignore[return-value]


@given(RANGES, st.lists(NUMBERS, min_size=1, max_size=4))
def test_what_they_say_surely_is_so(ranges: list[tuple[float | None, float | None]], literals: list[float]) -> None:
    whole = bounds(ranges)
    low, high = halved(*whole)
    assert low is not None
    assert high is not None
    size = len(ranges)
    for order, holds in ORDERS.items():
        for literal in literals:
            for at, bound in ((0, low), (1, high)):
                sure = np.broadcast_to(bound.compare(order, literal), size)
                for one, says in zip(ranges, sure, strict=True):
                    limit = one[at]
                    upwards = order in (">", ">=")
                    if limit is None:
                        assert not says
                    elif upwards == (at == 0):  # a lower bound above it, an upper one below it
                        assert not says or holds(limit, literal)
    reached = np.broadcast_to(low.reaches(literals, high), size)
    for (lowest, highest), says in zip(ranges, reached, strict=True):
        within = any((lowest is None or lowest <= one) and (highest is None or one <= highest) for one in literals)
        assert says or not within
    single = np.broadcast_to(low.equals(high), size)
    assert all(one[0] == one[1] and one[0] is not None for one, says in zip(ranges, single, strict=True) if says)


@given(RANGES, st.floats(allow_nan=False))
def test_ranges_become_wider_by_little(ranges: list[tuple[float | None, float | None]], literal: float) -> None:
    whole = bounds(ranges)
    low, high = halved(*whole)
    assert isinstance(low, NumberBound)
    assert isinstance(high, NumberBound)
    if low is whole[0]:
        return
    assert (low.values.dtype, high.values.dtype) == (np.float32, np.float32)
    widths = [one[1] - one[0] if None not in one else 0.0 for one in ranges]  # type: ignore[operator]
    usual = statistics.median([width for width in widths if width] or [0.0]) * RANGE_GROWTH_MAX
    for (lowest, highest), down, up in zip(ranges, low.values.tolist(), high.values.tolist(), strict=True):
        allowed = usual if lowest != highest and None not in (lowest, highest) else 0.0
        assert lowest is None or 0 <= lowest - down <= allowed
        assert highest is None or 0 <= up - highest <= allowed
    # A float of 32 bits is compared with the literal itself, not with one that was rounded.
    for order, holds in ORDERS.items():
        found = np.broadcast_to(low.compare(order, literal), len(ranges))
        assert [
            bool(says) == holds(value, literal)
            for (lowest, _), value, says in zip(ranges, low.values.tolist(), found, strict=True)
            if lowest is not None
        ].count(False) == 0


@pytest.mark.parametrize(
    ("ranges", "kept"),
    [
        ([(0.1, 99.9), (3.3, 50.7), (900.1, 900.1001)], True),
        ([(0.1, 99.9), (3.3, 50.7), (900.1, 900.1)], False),
        ([(0.1, 1e30), (1.7e9, 1.7e9 + 60), (1.8e9, 1.8e9 + 60)], False),
        ([(0.5, 0.5), (2.0, 2.25)], True),  # such are floats of 32 bits
        ([(0.1, 0.1)], False),  # a single value stays one
        ([(1.7e9, 1.7e9 + 60)], False),  # seconds since 1970, in which 32 bits count two minutes
        ([(1.7e9, 1.7e9 + 1e6)], True),
        ([(-1e300, 1e300)], False),
        ([(-math.inf, math.inf)], False),
        ([(None, 0.1)], False),
        ([(None, None)], True),
    ],
)
def test_which_are_halved(ranges: list[tuple[float | None, float | None]], kept: bool) -> None:
    low, _ = halved(*bounds(ranges))
    assert isinstance(low, NumberBound)
    assert (low.values.dtype == np.float32) is kept
    assert low.memory_bytes == (4 if kept else 8) * len(ranges) + np.asarray(low.known).nbytes
