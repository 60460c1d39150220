"""Aggregates from metadata against sums over the files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark_core.expressions import parse_predicate
from lakemark_core.types import DOUBLE, INT, STRING, Field, Schema
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.entries.received import from_arrow
from lakemark_server.file_index.pages.blocks import to_plain_ipc
from lakemark_server.file_index.parts.fold import Snapshot, empty
from lakemark_server.file_index.planning.aggregates import aggregate
from lakemark_server.file_index.planning.planner import Planner
from tests.snapshots import folded

ID, X, NAME = Field(1, "id", INT), Field(2, "x", DOUBLE), Field(3, "name", STRING)
SCHEMA = Schema.build([ID, X, NAME, Field(4, "m", INT)], ["m"], 1)
# month, rows, lowest id (None: unknown), nulls (None: unknown)
FILES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 5), st.none() | st.integers(-9, 9), st.none() | st.integers(0, 5)),
    max_size=12,
)


def _snapshot(specs: list[tuple[int, int, int | None, int | None]]) -> Snapshot:
    files = []
    for number, (month, rows, low, nulls) in enumerate(specs):
        statistics = p.ColumnStatistics(column_id=1)
        if nulls is not None:
            statistics.null_count = min(nulls, rows)
        if low is not None and (nulls is None or nulls < rows):
            statistics.min.integer, statistics.max.integer = low, low + 3
        partition = [p.Value(integer=month)]
        files.append(
            p.DataFile(
                path=f"1/{number}/f", size_bytes=10, row_count=rows, partition=partition, statistics=[statistics]
            )
        )
    record = VersionRecord(version=1, operation=t.APPEND)
    return folded(empty(SCHEMA), [(record, [from_messages(files, SCHEMA)])], SCHEMA)


def _expected(specs: list[tuple[int, int, int | None, int | None]]) -> tuple[Any, ...]:
    """Files, rows, min, max and nulls of id."""
    all_null = [nulls is not None and nulls >= rows for _, rows, _, nulls in specs]
    lows = [low for (_, _, low, _), gone in zip(specs, all_null, strict=True) if not gone]
    known = None not in lows
    nulls = [min(nulls, rows) if nulls is not None else None for _, rows, _, nulls in specs]
    return (
        len(specs),
        sum(rows for _, rows, _, _ in specs),
        min(low for low in lows if low is not None) if lows and known else None,
        max(low for low in lows if low is not None) + 3 if lows and known else None,
        None if None in nulls else sum(one for one in nulls if one is not None),
    )


@settings(max_examples=150)
@given(FILES)
def test_groups_are_sums_over_their_files(specs: list[tuple[int, int, int | None, int | None]]) -> None:
    plan = Planner().plan(_snapshot(specs), None)
    (whole,), exact = aggregate(plan, [ID], by_partition=False)
    (bounds,) = whole.columns
    expected = _expected(specs) if specs else (0, 0, None, None, 0)
    assert (whole.files, whole.rows, bounds.min, bounds.max, bounds.null_count) == expected
    assert whole.bytes == 10 * len(specs)
    if exact:
        assert bounds.null_count is not None
        assert bounds.min is not None or bounds.null_count == whole.rows
    groups, _ = aggregate(plan, [ID], by_partition=True)
    assert [group.partition for group in groups] == sorted({f"m={spec[0]}" for spec in specs})
    for group in groups:
        (bounds,) = group.columns
        of_month = [spec for spec in specs if f"m={spec[0]}" == group.partition]
        assert (group.files, group.rows, bounds.min, bounds.max, bounds.null_count) == _expected(of_month)


def test_what_is_not_exact_says_so() -> None:
    snapshot = _snapshot([(0, 5, 1, 0), (1, 5, 10, 0)])
    planner = Planner()
    everything = planner.plan(snapshot, None)
    assert aggregate(everything, [ID], by_partition=False)[1]
    assert aggregate(planner.plan(snapshot, parse_predicate("m = 1")), [ID], by_partition=False)[1]
    assert not aggregate(planner.plan(snapshot, parse_predicate("id > 11")), [ID], by_partition=False)[1]
    assert not aggregate(everything, [X], by_partition=False)[1], "there are no statistics"
    assert not aggregate(everything, [NAME], by_partition=False)[1], "there are no statistics"


def test_partition_columns_are_exact() -> None:
    fields = [Field(4, "m", INT), Field(5, "s", STRING)]
    schema = Schema.build([ID, *fields], ["m", "s"], 1)
    batch = pa.table(
        {
            "path": [f"1/{number}/f" for number in range(3)],
            "size_bytes": [1] * 3,
            "row_count": [2, 3, 4],
            "file_group": ["g"] * 3,
            "partition": ["m=1/s=b", "m=3/s=a", "m=2/s=__HIVE_DEFAULT_PARTITION__"],
        }
    )
    entries = from_arrow(to_plain_ipc(batch.to_batches()), schema)
    plan = Planner().plan(folded(empty(schema), [(VersionRecord(version=1), [entries])], schema), None)
    (group,), exact = aggregate(plan, fields, by_partition=False)
    assert exact
    assert [(one.min, one.max, one.null_count) for one in group.columns] == [(1, 3, 0), ("a", "b", 4)]
    groups, exact = aggregate(plan, fields, by_partition=True)
    assert exact
    assert [(one.partition, one.columns[1].min, one.columns[1].null_count) for one in groups] == [
        ("m=1/s=b", "b", 0),
        ("m=2/s=__HIVE_DEFAULT_PARTITION__", None, 4),
        ("m=3/s=a", "a", 0),
    ]


@pytest.mark.parametrize(
    ("cut", "exact"), [([0, 0], True), ([0, 1], False), ([2, 0], False), ([3, 3], False), ([0, None], False)]
)
def test_texts_are_exact_if_no_bound_was_cut(cut: list[int | None], exact: bool) -> None:
    size = len(cut)
    batch = pa.table(
        {
            "path": [f"1/{number}/f" for number in range(size)],
            "size_bytes": [1] * size,
            "row_count": [2] * size,
            "file_group": ["g"] * size,
            "partition": ["m=1"] * size,
            "min.3": ["a"] * size,
            "max.3": ["b"] * size,
            "null_count.3": [0] * size,
            "truncated.3": pa.array(cut, pa.uint8()),
        }
    )
    entries = from_arrow(to_plain_ipc(batch.to_batches()), SCHEMA)
    snapshot = folded(empty(SCHEMA), [(VersionRecord(version=1), [entries])], SCHEMA)
    (group,), found = aggregate(Planner().plan(snapshot, None), [NAME], by_partition=False)
    assert found is exact
    assert (group.columns[0].min, group.columns[0].max, group.columns[0].cut) == ("a", "b", not exact)


def test_counts_are_not_exact_where_deltas_are_merged() -> None:
    def file(path: str, kind: p.SliceKind.ValueType) -> p.DataFile:
        return p.DataFile(path=path, kind=kind, file_group="g", row_count=2, partition=[p.Value(integer=0)])

    record = VersionRecord(version=1, operation=t.UPSERT)
    for kinds, wanted in (([p.BASE], True), ([p.BASE, p.DELTA], False)):
        files = [file(f"{at}/m=0/g/f", kind) for at, kind in enumerate(kinds)]
        snapshot = folded(empty(SCHEMA), [(record, [from_messages(files, SCHEMA)])], SCHEMA)
        (group,), exact = aggregate(Planner().plan(snapshot, None), [], by_partition=False)
        assert (group.rows, exact) == (2 * len(kinds), wanted)


@pytest.mark.parametrize("beside", [False, True])
def test_kept_deletes_count_only_where_they_are_merged(beside: bool) -> None:
    def file(path: str, rows: int, kind: p.SliceKind.ValueType, under: int = 0) -> p.DataFile:
        bounds = [p.ColumnStatistics(column_id=1, min=p.Value(integer=1), max=p.Value(integer=rows), null_count=0)]
        month = [p.Value(integer=0)]
        return p.DataFile(
            path=path, file_group="g", row_count=rows, kind=kind, base_instant=under, partition=month, statistics=bounds
        )

    files = [file("5/m=0/g/f", 3, p.BASE), file("5/m=0/d/f", 9, p.DELTA, 5)]
    files += [file("6/m=0/g/f", 1, p.DELTA, 5)] if beside else []
    snapshot = folded(empty(SCHEMA), [(VersionRecord(version=1), [from_messages(files, SCHEMA)])], SCHEMA)

    (group,), exact = aggregate(Planner().plan(snapshot, None), [ID], by_partition=False)

    assert exact is not beside
    assert (group.rows, group.columns[0].max) == ((13, 9) if beside else (3, 3))
