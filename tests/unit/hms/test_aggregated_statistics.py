"""Statistics of partitions together, of values that no engine writes but a client may."""

from __future__ import annotations

from typing import Any

import pytest

from lakemark_hms.aggregated_statistics import Aggregate
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_thrift.ttypes import (
    ColumnStatisticsData,
    ColumnStatisticsObj,
    Decimal,
    DecimalColumnStatsData,
    LongColumnStatsData,
    StringColumnStatsData,
)

I64_MAX = (1 << 63) - 1


def together(*data: ColumnStatisticsData) -> Any:
    """As a client reads it."""
    aggregate = Aggregate()
    for one in data:
        aggregate.add(ColumnStatisticsObj("a", "x", one))
    joined = aggregate.result
    return None if joined is None else decode_struct(ColumnStatisticsObj, encode_struct(joined)).statsData


def decimals(low: Decimal, high: Decimal) -> ColumnStatisticsData:
    return ColumnStatisticsData(decimalStats=DecimalColumnStatsData(lowValue=low, highValue=high, numNulls=0, numDVs=1))


def test_decimals_of_any_length_and_scale_are_compared_exactly() -> None:
    huge, tenth = Decimal(unscaled=b"\x7f" * 2_000, scale=0), Decimal(unscaled=b"\x01", scale=1)
    minus, nearly = Decimal(unscaled=b"\xff", scale=-3), Decimal(unscaled=b"\x63", scale=3)  # -1000 and 0.099
    found = together(decimals(tenth, tenth), decimals(nearly, huge), decimals(nearly, minus)).decimalStats
    assert (found.lowValue, found.highValue) == (nearly, huge)
    assert together(decimals(tenth, minus), decimals(minus, tenth)).decimalStats == DecimalColumnStatsData(
        minus, tenth, 0, 1
    )


def test_sums_end_at_what_the_field_can_hold() -> None:
    most = ColumnStatisticsData(longStats=LongColumnStatsData(numNulls=I64_MAX, numDVs=1))
    assert together(most, most, most).longStats.numNulls == I64_MAX


@pytest.mark.parametrize("count", [1, 3])
def test_sketches_are_not_kept(count: int) -> None:
    sketched = ColumnStatisticsData(longStats=LongColumnStatsData(1, 2, 0, 2, bitVectors=b"x" * 1_500))
    assert together(*[sketched] * count).longStats == LongColumnStatsData(1, 2, 0, 2)


def test_different_kinds_have_no_statistics_together_whatever_follows() -> None:
    longs = ColumnStatisticsData(longStats=LongColumnStatsData(1, 2, 0, 2))
    texts = ColumnStatisticsData(stringStats=StringColumnStatsData(3, 2.0, 1, 2))
    assert together(longs, texts, longs) is None
    assert together() is None
