"""Plans and slices of tables with deltas, against rows merged by key as an engine would merge them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark_server.file_index.parts.part as parts_module
from lakemark_core.bucket_tree import above, group_name
from lakemark_core.expressions import bind, normalize, parse_predicate
from lakemark_core.types import INT, Field, Schema
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.parts.fold import Snapshot, empty
from lakemark_server.file_index.planning.merge_on_read import base_files, merged_on_read, split
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.snapshots.slices import latest_slices
from tests.snapshots import folded

SCHEMA = Schema.build([Field(1, "k", INT), Field(2, "a", INT), Field(3, "b", INT), Field(4, "m", INT)], ["m"], 1)
COLUMNS = {"k": 1, "a": 2, "b": 3}
PREDICATES = ["a = 1", "a = 1 AND b = 1", "b > 0", "a IS NULL", "m = 0", "m = 1 AND a = 0", "a = 0 OR b = 1", "k = 1"]
SMALL = st.integers(0, 2)


@dataclass
class Group:
    """A file group: rows of its base by key, then updates of one or both columns by key; None deletes the row."""

    month: int
    base: dict[int, tuple[int | None, int | None]]
    updates: list[dict[int, dict[str, int] | None]]


GROUPS = st.lists(
    st.builds(
        Group,
        st.integers(0, 1),
        st.dictionaries(SMALL, st.tuples(st.none() | SMALL, st.none() | SMALL), max_size=3),
        st.lists(
            st.dictionaries(
                SMALL,
                st.none() | st.dictionaries(st.sampled_from(["a", "b"]), SMALL, min_size=1),
                min_size=1,
                max_size=2,
            ),
            max_size=2,
        ),
    ),
    max_size=5,
)


def _statistics(rows: list[dict[str, int | None]]) -> list[p.ColumnStatistics]:
    """Exact statistics of the columns that a file has."""
    found = []
    for name, column_id in COLUMNS.items():
        values = [row[name] for row in rows if name in row]
        if not values:
            continue
        known = [value for value in values if value is not None]
        statistic = p.ColumnStatistics(column_id=column_id, null_count=len(values) - len(known))
        if known:
            statistic.min.integer, statistic.max.integer = min(known), max(known)
        found.append(statistic)
    return found


def _files(number: int, group: Group) -> list[p.DataFile]:
    base = [{"k": key, "a": a, "b": b} for key, (a, b) in group.base.items()]
    contents = [base, *([{"k": key, **(to or {})} for key, to in update.items()] for update in group.updates)]
    return [
        p.DataFile(
            path=f"{1_000 + at}/m={group.month}/g{number}-{at}/f",
            file_group=f"g{number}",
            kind=p.DELTA if at else p.BASE,
            row_count=len(rows),
            partition=[p.Value(integer=group.month)],
            statistics=_statistics(rows),  # type: ignore[arg-type]
        )
        for at, rows in enumerate(contents)
    ]


def _snapshot(groups: list[Group]) -> Snapshot:
    """All bases first, then the first delta of each group, then the second."""
    by_version: dict[int, list[p.DataFile]] = defaultdict(list)
    for number, group in enumerate(groups):
        for at, one in enumerate(_files(number, group)):
            by_version[at + 1].append(one)
    snapshot = empty(SCHEMA)
    for version, files in sorted(by_version.items()):
        snapshot = folded(snapshot, [(VersionRecord(version=version), [from_messages(files, SCHEMA)])], SCHEMA)
    return snapshot


def _merged_rows(group: Group) -> list[dict[str, int | None]]:
    rows = {key: {"k": key, "a": a, "b": b, "m": group.month} for key, (a, b) in group.base.items()}
    for update in group.updates:
        for key, to in update.items():
            if to is None:
                rows.pop(key, None)
            else:
                rows[key] = {**rows.get(key, {"k": key, "a": None, "b": None, "m": group.month}), **to}
    return list(rows.values())  # type: ignore[arg-type]


def _holds(sql: str, row: dict[str, int | None]) -> bool:
    """The predicates above in SQL's logic: a comparison with null is never true."""
    text = sql.replace("a IS NULL", "(a is None)").replace(" = ", " == ").replace("AND", "and").replace("OR", "or")
    names = {name: value if value is not None or "None" in text else float("nan") for name, value in row.items()}
    return bool(eval(text, {}, names))  # noqa: S307


@settings(max_examples=200)
@given(GROUPS, st.sampled_from(PREDICATES), st.sampled_from([1, 2, 8_192]))
def test_a_group_is_read_whole_if_a_merged_row_can_match(groups: list[Group], sql: str, part_files_max: int) -> None:
    most, parts_module.PART_FILES_MAX = parts_module.PART_FILES_MAX, part_files_max  # type: ignore[misc]
    try:
        snapshot = _snapshot(groups)
    finally:
        parts_module.PART_FILES_MAX = most  # type: ignore[misc]
    page = Planner().plan(snapshot, parse_predicate(sql)).page(0, 100, ())
    planned = {row["path"]: row["matches_entirely"] for row in page.to_pylist()}
    for number, group in enumerate(groups):
        paths = {one.path for one in _files(number, group)}
        truths = [_holds(sql, row) for row in _merged_rows(group)]
        if any(truths):
            wanted = {one.path for one in _files(number, group) if one.row_count}
            assert wanted <= planned.keys() & paths, "all of its files, or none"
        for one in _files(number, group):
            if planned.get(one.path):
                assert all(truths), f"{one.path} was said to match entirely"


@settings(max_examples=100)
@given(GROUPS, st.integers(0, 20), st.integers(1, 5))
def test_slices_come_whole_and_in_order(groups: list[Group], offset: int, limit: int) -> None:
    slices = latest_slices(Planner(), _snapshot(groups), None)
    expected = sorted(
        (f"m={group.month}", one.file_group, one.kind, one.path)
        for number, group in enumerate(groups)
        for one in _files(number, group)
    )
    page = slices.page(0, 1_000)
    assert [(row["partition"], row["file_group"], row["kind"], row["path"]) for row in page.to_pylist()] == expected
    assert slices.page(offset, limit).equals(page.slice(offset, limit))
    assert slices.files == len(expected)
    only = latest_slices(Planner(), _snapshot(groups), None, {"g0", "none"})
    assert only.page(0, 100).column("path").to_pylist() == [path for _, group, _, path in expected if group == "g0"]


def test_a_table_without_deltas_has_no_masks() -> None:
    assert merged_on_read(_snapshot([Group(0, {1: (1, 1)}, [])])) is None


def test_kept_deletes_are_merged_only_beside_other_deltas() -> None:
    def file(path: str, group: str, kind: p.SliceKind.ValueType = p.BASE, under: int = 0) -> p.DataFile:
        month, bounds = [p.Value(integer=0)], [p.ColumnStatistics(column_id=2, null_count=1)]
        if kind == p.BASE:
            bounds = [p.ColumnStatistics(column_id=2, min=p.Value(integer=1), max=p.Value(integer=1), null_count=0)]
        return p.DataFile(
            path=path, file_group=group, kind=kind, row_count=1, partition=month, statistics=bounds, base_instant=under
        )

    def paths(one: Snapshot, sql: str | None = None) -> list[str]:
        predicate = None if sql is None else parse_predicate(sql)
        return sorted(Planner().plan(one, predicate).columns(["path"]).column("path").to_pylist())

    bases = [file("5/m=0/g/f", "g"), file("5/m=0/h/f", "h")]
    kept = [file("5/m=0/gd/f", "g", p.DELTA, 5), file("5/m=0/hd/f", "h", p.DELTA, 5)]
    version = VersionRecord(version=1)
    settled = folded(empty(SCHEMA), [(version, [from_messages([*bases, *kept], SCHEMA)])], SCHEMA)
    assert merged_on_read(settled) is None
    assert paths(split(settled).settled) == paths(base_files(settled)) == ["5/m=0/g/f", "5/m=0/h/f"]
    assert paths(split(settled).deltas) == []
    assert paths(settled, "a = 0") == [], "they keep no base file in a plan"

    delta = file("6/m=0/g/f", "g", p.DELTA, 5)
    changed = folded(settled, [(VersionRecord(version=2), [from_messages([delta], SCHEMA)])], SCHEMA)
    assert paths(split(changed).deltas) == ["5/m=0/gd/f", "6/m=0/g/f"]
    assert paths(split(changed).settled) == ["5/m=0/h/f"]
    assert paths(changed, "a = 0") == ["5/m=0/g/f", "5/m=0/gd/f", "6/m=0/g/f"]


def test_a_group_of_another_bucket_is_left_out_with_its_deltas() -> None:
    snapshot = empty(SCHEMA)
    paths = {}
    for version, kind in enumerate((p.BASE, p.DELTA), 1):
        files = [
            p.DataFile(
                path=f"{version}/m={month}/g{bucket}/f",
                file_group=f"g{bucket}",
                bucket=bucket,
                kind=kind,
                row_count=1,
                partition=[p.Value(integer=month)],
            )
            for month in (0, 1)
            for bucket in range(3)
            if kind == p.BASE or bucket < 2
        ]
        files += [p.DataFile(path=f"{version}/m=0/none/f", kind=p.BASE, row_count=1, partition=[p.Value(integer=0)])]
        paths |= {one.path: one for one in files}
        snapshot = folded(snapshot, [(VersionRecord(version=version), [from_messages(files, SCHEMA)])], SCHEMA)
    bound = normalize(bind(parse_predicate("k = 1 AND m = 0"), SCHEMA))

    def planned(*buckets: int) -> set[str]:
        return set(Planner().plan_bound(snapshot, bound, buckets=buckets).columns(["path"]).column("path").to_pylist())

    assert planned(1) == {"1/m=0/g1/f", "2/m=0/g1/f", "1/m=0/none/f", "2/m=0/none/f"}, "what has no bucket stays"
    assert planned(2) == {"1/m=0/g2/f", "1/m=0/none/f", "2/m=0/none/f"}
    assert planned(0, 1, 2) == {one for one in paths if "/m=0/" in one}
    assert planned() == {"1/m=0/none/f", "2/m=0/none/f"}


def test_deltas_of_one_partition_do_not_keep_groups_of_that_name_in_others() -> None:
    def file(path: str, month: int, least: int, kind: p.SliceKind.ValueType = p.BASE) -> p.DataFile:
        bounds = [p.ColumnStatistics(column_id=2, min=p.Value(integer=least), max=p.Value(integer=least), null_count=0)]
        return p.DataFile(
            path=path, file_group="g1", kind=kind, row_count=1, partition=[p.Value(integer=month)], statistics=bounds
        )

    files = [file("1/m=0/a/f", 0, 0), file("1/m=1/a/f", 1, 0), file("2/m=0/b/f", 0, 1, p.DELTA)]
    snapshot = folded(empty(SCHEMA), [(VersionRecord(version=1), [from_messages(files, SCHEMA)])], SCHEMA)

    page = Planner().plan(snapshot, parse_predicate("a = 1")).page(0, 10, ())
    assert page.column("path").to_pylist() == ["1/m=0/a/f", "2/m=0/b/f"]


@settings(max_examples=50)
@given(GROUPS, st.sampled_from([1, 2, 8_192]))
def test_a_snapshot_is_taken_apart_without_losing_a_file(groups: list[Group], part_files_max: int) -> None:
    most, parts_module.PART_FILES_MAX = parts_module.PART_FILES_MAX, part_files_max  # type: ignore[misc]
    try:
        snapshot = _snapshot(groups)
    finally:
        parts_module.PART_FILES_MAX = most  # type: ignore[misc]

    def paths(one: Snapshot) -> list[str]:
        return sorted(Planner().plan(one, None).columns(["path"]).column("path").to_pylist())

    apart = split(snapshot)
    assert sorted([*paths(apart.settled), *paths(apart.bases), *paths(apart.deltas)]) == paths(snapshot)
    for number, group in enumerate(groups):
        base, *deltas = (one.path for one in _files(number, group))
        assert set(deltas) <= set(paths(apart.deltas))
        assert base in paths(apart.bases if deltas else apart.settled)
    assert paths(base_files(snapshot)) == sorted([*paths(apart.settled), *paths(apart.bases)])


PLACED = st.tuples(st.integers(0, 1), st.none() | st.integers(1, 31), st.sampled_from(["base", "delta", "kept"]))


@settings(max_examples=100)
@given(st.lists(PLACED, max_size=8))
def test_of_an_extendible_index_files_that_share_keys_with_a_delta_are_merged(
    placed: list[tuple[int, int | None, str]],
) -> None:
    """The base file of a bucket that was split or merged since lies in another group than the deltas on top of it."""
    files = [
        p.DataFile(
            path=f"{7 + at}/m={month}/g{at}/f",
            file_group=f"g{at}" if bucket is None else group_name(bucket),
            bucket=bucket,
            kind=p.BASE if kind == "base" else p.DELTA,
            base_instant=7 + at if kind == "kept" else 0,
            partition=[p.Value(integer=month)],
        )
        for at, (month, bucket, kind) in enumerate(placed)
    ]
    apart = split(folded(empty(SCHEMA), [(VersionRecord(version=1), [from_messages(files, SCHEMA)])], SCHEMA))
    settled, bases, deltas = (
        {int(path.split("/")[0]) - 7 for part in side.parts for path in part.live_entries().column("path").to_pylist()}
        for side in (apart.settled, apart.bases, apart.deltas)
    )

    for at, (month, bucket, kind) in enumerate(placed):
        under = {
            other
            for other, (there, number, how) in enumerate(placed)
            if how == "delta" and bucket is not None and there == month
            if number is not None and (number in above(bucket) or bucket in above(number))
        }
        if kind == "base":
            assert at in settled | bases
            assert at in bases or not under, (placed, at)
        elif kind == "delta" or under:
            assert at in deltas
    assert not settled & bases
    deltas_of = {number for _, number, how in placed if how == "delta"}
    exact = {at for at, (_, bucket, kind) in enumerate(placed) if kind == "base" and bucket is not None}
    for at in exact & bases:  # in some partition, at least
        bucket = placed[at][1] or 0
        assert any(one and (one in above(bucket) or bucket in above(one)) for one in deltas_of), (placed, at)
