"""Zones: skipping whole parts never loses a file that a plan without zones would have."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark_server.file_index.parts.part as folding
from lakemark_core.expressions import parse_predicate
from lakemark_core.types import DOUBLE, INT, STRING, Field, Schema
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.parts.fold import Snapshot, empty
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.file_index.pruning.zones import zones
from tests.snapshots import folded

SCHEMA = Schema.build([Field(1, "id", INT), Field(2, "x", DOUBLE), Field(3, "m", STRING)], ["m"], 1)
SOME = st.one_of(st.none(), st.integers(-5, 5))
FILES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", ""]),  # "": the null partition
        st.integers(0, 3),  # rows
        SOME,
        st.integers(0, 4),
        st.one_of(st.none(), st.integers(0, 3)),
        st.one_of(st.none(), st.integers(0, 3)),
    ),
    max_size=24,
)
PREDICATES = [
    "id = 2", "id > 3", "id IS NULL", "id IS NOT NULL", "NOT (id < 0)", "x >= 2", "x < -1", "x = 1 OR m = 'a'",
    "m = 'b'", "m IS NULL", "m != 'a' AND id <= 1", "m IN ('a', 'c')", "m <=> NULL",
    "id IN (1, 4) AND x IS NOT NULL", "x != 0",
]  # fmt: skip


def _file(number: int, spec: tuple[str, int, int | None, int, int | None, int | None]) -> p.DataFile:
    partition, rows, low, width, nulls, nans = spec
    value = p.Value(text=partition) if partition else p.Value(null=True)
    statistics = [p.ColumnStatistics(column_id=1), p.ColumnStatistics(column_id=2)]
    if low is not None:
        statistics[0].min.integer, statistics[0].max.integer = low, low + width
        statistics[1].min.floating, statistics[1].max.floating = low / 2, low / 2 + width
    if nulls is not None:
        statistics[0].null_count = statistics[1].null_count = min(nulls, rows)
    if nans is not None:
        statistics[1].nan_count = min(nans, rows)
    return p.DataFile(path=f"1/{number}/f", row_count=rows, partition=[value], statistics=statistics)


def _snapshot(files: list[p.DataFile], part_files_max: int) -> Snapshot:
    most, folding.PART_FILES_MAX = folding.PART_FILES_MAX, part_files_max  # type: ignore[misc]
    try:
        snapshot = empty(SCHEMA)
        for version, at in enumerate(range(0, len(files), 3), 1):
            record = VersionRecord(version=version, operation=t.APPEND)
            snapshot = folded(snapshot, [(record, [from_messages(files[at : at + 3], SCHEMA)])], SCHEMA)
        return snapshot
    finally:
        folding.PART_FILES_MAX = most  # type: ignore[misc]


def _planned(snapshot: Snapshot, sql: str) -> list[tuple[str, bool]]:
    plan = Planner().plan(snapshot, parse_predicate(sql))
    page = plan.page(0, 1_000, ())
    return [(row["path"], row["matches_entirely"]) for row in page.to_pylist()]


@settings(max_examples=150)
@given(FILES, st.sampled_from(PREDICATES))
def test_many_parts_plan_the_same_files_as_one(
    specs: list[tuple[str, int, int | None, int, int | None, int | None]], sql: str
) -> None:
    files = [_file(number, spec) for number, spec in enumerate(specs)]
    assert _planned(_snapshot(files, 2), sql) == _planned(_snapshot(files, 1_000), sql)


def test_parts_that_cannot_match_are_skipped() -> None:
    files = [_file(number, ("a" if number < 6 else "b", 1, number, 0, 0, 0)) for number in range(12)]
    snapshot = _snapshot(files, 3)
    assert len(snapshot.parts) == 4
    planner = Planner()
    for sql, parts in (("id = 4", 1), ("m = 'b'", 2), ("id > 100", 0), ("id IS NULL", 0), ("x >= 0", 4)):
        plan = planner.plan(snapshot, parse_predicate(sql))
        assert len(plan.selections) == parts, sql
    assert zones(snapshot) is zones(snapshot), "they are made once for a snapshot"
