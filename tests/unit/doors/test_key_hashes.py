"""Hashes of many keys at once are those of each key alone."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakemark_core.bucket_directory import Directory
from lakemark_core.buckets import hash_of_key
from lakemark_core.table_kind import TableKind
from lakemark_core.types import Field, parse_type, to_arrow
from lakemark_server.doors.key_hashes import LONG_BYTES, buckets_of, hashes_of

CHANCE = random.Random(17)
TEXTS = ["", "a", "ab", "abc", "abcd", "Straße 12", "\x00", "日本語のテキスト", "x" * LONG_BYTES, "é" * LONG_BYTES]
WHEN = dt.datetime(1960, 1, 1, 3, 4, 5, 678_901)
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 0, 127],
    "smallint": [-(1 << 15), 5],
    "int": [0, 1, -1, (1 << 31) - 1, -(1 << 31)],
    "bigint": [0, 1, -1, (1 << 63) - 1, -(1 << 63), 1 << 32],
    "string": TEXTS,
    "varchar(300)": TEXTS,
    "binary": [text.encode() for text in TEXTS] + [b"\xff\x80\x00", bytes(range(256)) * 5],
    "decimal(4,2)": [Decimal("1.50"), Decimal("-99.99"), Decimal("0.00")],
    "decimal(18,3)": [Decimal("999999999999999.999"), Decimal("-1.000")],
    "decimal(38,3)": [Decimal("-1.500"), Decimal(10**34), Decimal(0), Decimal("0.128")],
    "date": [dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "timestamp": [WHEN.replace(tzinfo=dt.UTC), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)],
    "timestamp_ntz": [WHEN, dt.datetime(1, 1, 1)],
}


def signed(hashes: Any) -> list[int]:
    return [int(one) for one in np.asarray(hashes).astype(np.int32)]


@pytest.mark.parametrize("column_type", VALUES)
def test_of_every_type(column_type: str) -> None:
    field = Field(1, "k", parse_type(column_type))
    values = [CHANCE.choice(VALUES[column_type]) for _ in range(200)]
    array: Any = pa.array(values, to_arrow(field.type))
    assert signed(hashes_of([array], [field])) == [hash_of_key([value], [field]) for value in values]
    sliced = array.slice(7, 100)
    assert signed(hashes_of([sliced], [field])) == [hash_of_key([value], [field]) for value in values[7:107]]
    assert len(hashes_of([array.slice(0, 0)], [field])) == 0


def test_columns_are_hashed_one_after_the_other() -> None:
    types = ["string", "bigint", "decimal(30,1)", "binary"]
    fields = [Field(at, f"k{at}", parse_type(name)) for at, name in enumerate(types)]
    rows = [
        (
            "".join(CHANCE.choices("aé日", k=CHANCE.randrange(9))),
            CHANCE.getrandbits(63),
            Decimal(7),
            CHANCE.randbytes(5),
        )
        for _ in range(500)
    ]
    columns: list[Any] = [pa.array([row[at] for row in rows], to_arrow(field.type)) for at, field in enumerate(fields)]
    assert signed(hashes_of(columns, fields)) == [hash_of_key(row, fields) for row in rows]


def test_buckets_are_those_into_which_rows_are_written() -> None:
    field = Field(1, "k", parse_type("bigint"))
    keys = list(range(-500, 500))
    numbers = [hash_of_key([key], [field]) for key in keys]
    hashes = hashes_of([pa.array(keys, pa.int64())], [field])
    assert buckets_of(hashes, TableKind(("k",), buckets=7)).tolist() == [number % 7 for number in numbers]
    directory = Directory.uniform(1).altered([2], []).altered([6], [])
    kind = TableKind(("k",), buckets=2, directory=directory)
    assert buckets_of(hashes, kind).tolist() == [directory.bucket_of(number) for number in numbers]
    assert len(set(buckets_of(hashes, kind).tolist())) == 4


def test_a_null_has_no_hash() -> None:
    with pytest.raises(ValueError, match="nulls"):
        hashes_of([pa.array([1, None], pa.int32())], [Field(1, "k", parse_type("int"))])
