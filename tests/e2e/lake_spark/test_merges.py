"""The query that merges deltas, in each of its forms, against a dict."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from lakemark_core.merge_sql import DELETE, UPSERT, LogSize, columns_text, merged_sql
from lakemark_core.table_kind import TableKind, kind_of
from lakemark_core.types import BIGINT, STRING, Field, Schema
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess

pytestmark = pytest.mark.spark

V, W = Field(2, "v", BIGINT), Field(3, "w", BIGINT)
SCHEMA = Schema((Field(1, "id", BIGINT), V, W, Field(4, "at", BIGINT), Field(5, "p", STRING)), ("p",), 1)
KEYED = {
    "lakemark.primary-key": "id,p",
    "lakemark.bucket.count": "2",
    "lakemark.write.mode": "merge-on-read",
}
KINDS = {
    "plain": {},
    "ordered": {"lakemark.merge.ordering-column": "at"},
    "by column": {"lakemark.merge.by": "column"},
    "extendible": {"lakemark.bucket.index": "extendible"},
}
NEVER_SENT = 1 << 40  # rows


class Row(NamedTuple):
    id: int
    v: int | None
    w: int | None
    at: int | None
    p: str


class Change(NamedTuple):
    row: Row
    operation: str
    instant: int
    columns: frozenset[Field] | None  # None: all

    def sql(self) -> str:
        columns = "NULL" if self.columns is None else f"'{columns_text(sorted(self.columns, key=lambda one: one.id))}'"
        return f"({_values(self.row)}, '{self.operation}', {self.instant}L, {columns})"


@pytest.mark.parametrize("name", KINDS)
def test_every_form_of_the_query_gives_the_newest_rows(spark: SparkProcess, name: str) -> None:
    kind, numbers = kind_of(KEYED | KINDS[name]), random.Random(name)
    for partitions, layers in (("x", 1), ("xy", 1), ("xy", 2), ("xy", 3)):
        base, log = _random(numbers, kind, partitions, layers)
        kinds = [kind]
        if len(partitions) == 1 and kind.merge_by == "row":
            kinds.append(kind.in_one_partition(SCHEMA))
        # The size decides how rows are merged: more layers than there are may be told, and not fewer.
        sizes = {LogSize(len(log), layers), LogSize(NEVER_SENT, layers), LogSize(len(log), 2), LogSize(len(log), 9)}
        texts = [
            merged_sql("base_rows", "log_rows", SCHEMA, one, size)
            for one in kinds
            for size in sizes
            if size.layers >= layers
        ]

        given = run(
            spark,
            """
            spark.sql(base).createOrReplaceTempView("base_rows")
            spark.sql(log).createOrReplaceTempView("log_rows")
            result = [[tuple(row) for row in spark.sql(text).collect()] for text in texts]
            """,
            base=f"SELECT * FROM VALUES {', '.join(f'({_values(row)})' for row in base)} AS t(id, v, w, at, p)",
            log=f"SELECT * FROM VALUES {', '.join(change.sql() for change in log)} "
            "AS t(id, v, w, at, p, lakemark_operation, lakemark_instant, lakemark_columns)",
            texts=texts,
        )

        expected = sorted(_merged(base, log, kind), key=str)
        for text, rows in zip(texts, given, strict=True):
            assert sorted(map(Row._make, rows), key=str) == expected, text


def _random(numbers: random.Random, kind: TableKind, partitions: str, layers: int) -> tuple[list[Row], list[Change]]:
    """Base rows of some keys, and for each bucket of each partition so many deltas with some of its keys."""

    def row(key: int, partition: str) -> Row:
        values = (numbers.choice((None, numbers.randrange(9))) for _ in range(2))
        return Row(key, *values, numbers.randrange(4), partition)

    base = [row(key, partition) for partition in partitions for key in range(10) if numbers.random() < 0.6]
    log = []
    for partition in partitions:
        for bucket in range(2):
            for instant in numbers.sample(range(1, 100), layers):
                for key in range(bucket, 10, 2):
                    if numbers.random() < 0.6:
                        log.append(_changed(numbers, kind, row(key, partition), instant))
    # Of an extendible index a bucket and the one that it was split from may both have a delta.
    if kind.directory is not None:
        log += [Change(row(key, partitions[0]), UPSERT, 200, None) for key in range(10) if numbers.random() < 0.5]
    return base, log


def _changed(numbers: random.Random, kind: TableKind, row: Row, instant: int) -> Change:
    if numbers.random() < 0.3:
        return Change(row._replace(v=None, w=None, at=row.at if kind.ordering_column else None), DELETE, instant, None)
    some = numbers.choice((None, frozenset({V}), frozenset({W}))) if kind.merge_by == "column" else None
    return Change(row, UPSERT, instant, some)


def _merged(base: list[Row], log: list[Change], kind: TableKind) -> list[Row]:
    every = [Change(row, UPSERT, -1, None) for row in base] + log
    every.sort(key=lambda change: ((change.row.at or 0) if kind.ordering_column else 0, change.instant))
    rows: dict[tuple[int, str], Row] = {}
    for change in every:
        key = change.row.id, change.row.p
        old = rows.pop(key, None)
        if change.operation == DELETE:
            continue
        if change.columns is None:
            rows[key] = change.row
        else:
            old = old or Row(change.row.id, None, None, None, change.row.p)
            rows[key] = old._replace(**{field.name: getattr(change.row, field.name) for field in change.columns})
    return list(rows.values())


def _values(row: Row) -> str:
    return ", ".join("NULL" if value is None else repr(value) for value in row)
