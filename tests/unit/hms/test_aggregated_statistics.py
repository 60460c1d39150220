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
    joined = aggregate.result()
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


# -- partitions without statistics


def extended(asked: int, known: dict[int, ColumnStatisticsData]) -> Any:
    """Of ``asked`` partitions, those at these positions have statistics."""
    aggregate = Aggregate()
    for position, one in known.items():
        aggregate.add(ColumnStatisticsObj("a", "x", one), position)
    joined = aggregate.result(asked)
    assert joined is not None
    return joined.statsData


def longs(low: int | None, high: int | None, nulls: int = 0, distinct: int = 1) -> ColumnStatisticsData:
    return ColumnStatisticsData(longStats=LongColumnStatsData(low, high, nulls, distinct))


def test_sums_grow_with_the_number_of_partitions() -> None:
    found = extended(5, {0: longs(1, 9, 4), 2: longs(1, 9, 3), 3: longs(1, 9, 3)})
    assert found.longStats.numNulls == 15  # three a partition, as whole numbers


def test_bounds_go_on_as_they_go_between_the_partitions_that_have_them() -> None:
    found = extended(5, {1: longs(10, 100, distinct=3), 3: longs(20, 200, distinct=5)})
    assert found.longStats == LongColumnStatsData(5, 250, 0, 6)
    found = extended(5, {1: longs(20, 200), 2: longs(10, 100)})
    assert (found.longStats.lowValue, found.longStats.highValue) == (-10, 300)


def test_one_partition_tells_nothing_of_others() -> None:
    assert extended(5, {2: longs(10, 100, 7, 3)}).longStats == LongColumnStatsData(10, 100, 7, 3)


def test_a_bound_that_some_partition_lacks_is_not_made_up() -> None:
    found = extended(4, {0: longs(1, None), 1: longs(2, 9)})
    assert (found.longStats.lowValue, found.longStats.highValue) == (1, None)
    assert together(longs(1, None), longs(2, 9)).longStats.highValue == 9


def test_there_are_no_more_distinct_whole_numbers_than_between_the_bounds() -> None:
    assert together(longs(1, 3, distinct=9), longs(2, 4, distinct=7)).longStats.numDVs == 4


def test_decimals_go_on_exactly() -> None:
    first, second = Decimal(unscaled=b"\x0a", scale=1), Decimal(unscaled=b"\x00\x96", scale=2)  # 1.0 and 1.50
    found = extended(4, {0: decimals(first, first), 1: decimals(second, second)}).decimalStats
    assert found.lowValue == Decimal(unscaled=b"d", scale=2)
    assert found.highValue == Decimal(unscaled=b"\x00\xfa", scale=2)
