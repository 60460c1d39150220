"""Buckets of keys: Spark's own hashes, and which buckets a predicate leaves."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import product

import pytest

from lakemark_core.buckets import KEYS_MAX, buckets_of, hash_of_key
from lakemark_core.expressions import bind, normalize, parse_predicate
from lakemark_core.table_kind import TableKind
from lakemark_core.types import ColumnValue, Field, Schema, parse_type

# From Spark 4.3: SELECT hash(…). tests/e2e/lake_spark/test_keyed.py compares values of every type with Spark.
HASHES: list[tuple[str, ColumnValue, int]] = [
    ("int", 1, -559580957),
    ("bigint", 1, -1712319331),
    ("boolean", True, -559580957),
    ("string", "a", 1485273170),
    ("string", "", 142593372),
    ("string", "Straße 12", 260591750),
    ("binary", b"\x00\xff\x80", -2052482636),
    ("decimal(2,1)", Decimal("1.5"), -18083236),
    ("decimal(38,3)", Decimal("-1.5"), 764468312),
    ("date", dt.date(1969, 12, 31), -1604776387),
    ("timestamp", dt.datetime(1960, 1, 1, tzinfo=dt.UTC), -1530488822),
]
SCHEMA = Schema.build(
    [Field(1, "k", parse_type("int")), Field(2, "s", parse_type("string")), Field(3, "x", parse_type("int"))]
)
KIND = TableKind(("k", "s"), buckets=16)


@pytest.mark.parametrize(("column_type", "value", "hashed"), HASHES)
def test_hashes_are_those_of_spark(column_type: str, value: ColumnValue, hashed: int) -> None:
    field = Field(1, "k", parse_type(column_type))
    for buckets in (1, 7, 1 << 16):
        assert hash_of_key([value], [field]) % buckets == hashed % buckets, "pmod, which is never negative"


def test_columns_are_hashed_one_after_the_other_and_a_null_changes_nothing() -> None:
    assert hash_of_key([1, "a"], SCHEMA.columns[:2]) == -936062819
    assert hash_of_key([None, None], SCHEMA.columns[:2]) == 42
    assert hash_of_key([1, None], SCHEMA.columns[:2]) == hash_of_key([1], SCHEMA.columns[:1])


@pytest.mark.parametrize(
    "predicate",
    [
        "k = 1 AND s = 'a'",
        "k IN (1, 2) AND s IN ('a', 'b') AND x > 0",
        "(k = 1 AND s = 'a') OR (k = 2 AND s = 'b')",
        "k = 1 AND (s = 'a' OR s = 'b')",
        "(k = 1 AND s = 'a') AND (x = 3 OR k = 2)",
        "k <=> 1 AND s <=> 'a'",
        "k IN (1, 2, 3) AND k = 2 AND s = 'c'",
        "NOT (k != 1 OR s != 'a')",
    ],
)
def test_no_row_that_matches_lies_in_another_bucket(predicate: str) -> None:
    bound = normalize(bind(parse_predicate(predicate), SCHEMA))
    buckets = buckets_of(bound, KIND, SCHEMA)

    python = predicate.replace("<=>", "==").replace(" = ", " == ").replace("!=", "<>").replace("<>", "!=")
    python = python.replace("AND", "and").replace("OR", "or").replace("NOT", "not").replace("IN", "in")
    matching = {
        hash_of_key([k, s], SCHEMA.columns[:2]) % 16
        for k, s, x in product(range(5), "abc", range(5))
        if eval(python, {}, {"k": k, "s": s, "x": x})  # noqa: S307
    }
    assert matching
    if "(s = 'a' OR" in predicate:
        assert buckets is None, "alternatives of one column beside the others are not taken apart"
    else:
        assert buckets is not None
        assert matching <= buckets
        assert len(buckets) <= 4


@pytest.mark.parametrize(
    "predicate",
    [
        "k = 1",
        "s = 'a' AND x = 1",
        "k > 1 AND s = 'a'",
        "k = 1 AND s = 'a' OR x = 1",
        "k NOT IN (1, 2) AND s = 'a'",
        "NOT (k = 1 AND s = 'a')",
        f"k IN ({', '.join(map(str, range(KEYS_MAX + 1)))}) AND s = 'a'",
    ],
)
def test_what_does_not_name_whole_keys_says_nothing(predicate: str) -> None:
    bound = normalize(bind(parse_predicate(predicate), SCHEMA))
    assert buckets_of(bound, KIND, SCHEMA) is None
    assert buckets_of(bound, TableKind(("k", "s")), SCHEMA) is None


def test_a_literal_of_another_type_is_hashed_as_the_column_is() -> None:
    for text in ("k = 1L AND s = 'a'", "k = 1.0 AND s = 'a'", "k = '1' AND s = 'a'"):
        buckets = buckets_of(normalize(bind(parse_predicate(text), SCHEMA)), KIND, SCHEMA)
        assert buckets in ({hash_of_key([1, "a"], SCHEMA.columns[:2]) % 16}, None)
