"""The z-value of a row: one number in which several columns count alike. By Spark's own expressions.

The bits of the columns' ranks are interleaved, the highest bits first, so that rows with neighbouring numbers are close
in all columns (Morton 1966). A rank says in which of many equal shares of the rows a value lies. So it is the same for
every type that has an order, and a few extreme values do not take all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakemark_core.evolution.sql import quoted
from lakemark_core.types import Field

BITS_MAX: Final = 8
"""Of the rank of a column: 256 shares of the rows, so two columns have 65,536 cells."""

Z_VALUE: Final = " z"
"""The column with the z-value. No column of a table is named so: names do not begin with a space."""

SAMPLE_ROWS: Final = 20_000
_BITS_OF_LONG: Final = 63


def in_order(
    rows: DataFrame,
    fields: Sequence[Field],
    order: str,
    count: int,
    sampled: Callable[[], DataFrame] | None = None,
) -> tuple[DataFrame, list[str]]:
    """``rows`` and the columns by which they are sorted so that ``fields`` are in this order.

    For a z-order the rows have one more column. It takes a sample of ``sampled``, about ``count`` rows whose values are
    spread alike; None: of ``rows``, which are computed once more for it.
    """
    names = [field.name for field in fields]
    if order != "z-order" or len(fields) < 2:
        return rows, names
    return with_z_value(rows, fields, rows if sampled is None else sampled(), count, Z_VALUE), [Z_VALUE, *names]


def with_z_value(rows: DataFrame, fields: Sequence[Field], sampled: DataFrame, count: int, name: str) -> DataFrame:
    """``rows`` with the z-value of the columns ``fields`` in column ``name``, by about ``count`` rows ``sampled``."""
    bits = min(BITS_MAX, _BITS_OF_LONG // len(fields))
    names = [f" bounds {at}" for at in range(len(fields))]
    columns = [F.col(quoted(field.name)) for field in fields]
    # The same rows in every run: what is computed again after a failure has to be the same.
    sample = sampled.select(*columns).sample(False, min(1.0, SAMPLE_ROWS / max(count, 1)), 42)
    pairs = list(zip(columns, names, strict=True))
    values = sample.agg(*(F.sort_array(F.collect_list(column)).alias(one) for column, one in pairs))
    bounds = values.select(*(F.expr(_bounds(quoted(one), bits)).alias(one) for one in names))
    ranks = [
        F.expr(_rank(quoted(field.name), quoted(one), bits)).alias(f" rank {at}")
        for at, (field, one) in enumerate(zip(fields, names, strict=True))
    ]
    own = [F.col(quoted(one)) for one in rows.columns]
    ranked = rows.crossJoin(F.broadcast(bounds)).select(*own, *ranks)
    z = _interleaved([quoted(f" rank {at}") for at in range(len(fields))], bits)
    return ranked.select(*own, F.expr(z).alias(name))


def _bounds(values: str, bits: int) -> str:
    """2^bits - 1 values that cut the sorted ``values`` into equal shares; nulls if there are none."""
    shares = 1 << bits
    return f"transform(sequence(1, {shares - 1}), i -> get({values}, int(i * bigint(size({values})) div {shares})))"


def _rank(value: str, bounds: str, bits: int) -> str:
    """How many of the bounds are not greater, by a binary search; nulls come first."""
    steps = ", ".join(str(1 << bit) for bit in reversed(range(bits)))
    return f"aggregate(array({steps}), 0, (at, step) -> at + IF({value} >= get({bounds}, at + step - 1), step, 0))"


def _interleaved(ranks: Sequence[str], bits: int) -> str:
    terms = [
        f"shiftleft(bigint(shiftright({rank}, {bit}) & 1), {bit * len(ranks) + len(ranks) - 1 - at})"
        for at, rank in enumerate(ranks)
        for bit in range(bits)
    ]
    return " | ".join(terms)
