"""Filters over rows in memory."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from lakemark.client.names import parse_columns
from lakemark.errors import UnsupportedOperation
from lakemark.expressions import bind, normalize, parse_predicate
from lakemark.reading import to_arrow_filter
from lakemark.types import schema_to_arrow

SCHEMA = parse_columns("id bigint, x double, name string, fare decimal(8,2), s struct<a:int>")
ROWS = pa.Table.from_pylist(
    [
        {"id": 0, "x": -0.0, "name": "n0", "fare": Decimal("0.50"), "s": {"a": 0}},
        {"id": 1, "x": float("nan"), "name": "n1", "fare": Decimal("1.50"), "s": None},
        {"id": 2, "x": 2.0, "name": None, "fare": None, "s": {"a": None}},
        {"id": None, "x": None, "name": "n3", "fare": Decimal("3.50"), "s": {"a": 3}},
    ],
    schema=schema_to_arrow(SCHEMA),
)


def selected(predicate: str) -> list[int]:
    found = to_arrow_filter(normalize(bind(parse_predicate(predicate), SCHEMA)), SCHEMA)
    numbered = ROWS.append_column("row", pa.array(range(ROWS.num_rows)))
    return [int(row["row"]) for row in numbered.filter(found).to_pylist()]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("id IN (1, 2, 7)", [1, 2]),
        ("id NOT IN (1, 7)", [0, 2]),
        ("NOT (id IN (1, 7) OR name = 'n0')", []),
        ("x IN (0.0, double('NaN'))", [0, 1]),
        ("x NOT IN (0.0, double('NaN'))", [2]),
        ("name NOT IN ('n0', 'x')", [1, 3]),
        ("fare IN (0.5, 3.50, 9)", [0, 3]),
        ("s.a IN (0, 3)", [0, 3]),
        ("s.a NOT IN (3, 4)", [0]),
        ("isnan(x)", [1]),
        ("NOT isnan(x)", [0, 2, 3]),
        ("x != x", []),
        ("x = x", [0, 1, 2]),
        ("fare = '1.5'", [1]),
        ("fare > '1'", [1, 3]),
        ("fare IN ('0.50', '9.00')", [0]),
    ],
)
def test_sets_of_values_and_nulls(predicate: str, expected: list[int]) -> None:
    assert selected(predicate) == expected


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (f"id IN ({', '.join(map(str, range(1, 10_000)))})", [1, 2]),
        (f"id NOT IN ({', '.join(map(str, range(1, 10_000)))})", [0]),
        (f"x IN ({', '.join(f'{number}D' for number in range(10_000))})", [0, 2]),
    ],
    ids=["in", "not in", "of floating point"],
)
def test_many_values_do_not_end_the_process(predicate: str, expected: list[int]) -> None:
    assert selected(predicate) == expected


@pytest.mark.parametrize("word", ["OR", "AND"])
def test_chains_that_would_end_the_process_are_refused(word: str) -> None:
    assert selected(f" {word} ".join(f"id != {number}" for number in range(1, 1_001)))
    with pytest.raises(UnsupportedOperation, match="2000 conditions in one chain"):
        selected(f" {word} ".join(f"id != {number}" for number in range(2_000)))
