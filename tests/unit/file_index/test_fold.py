"""Snapshots folded from versions, compared with a plain list of files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.parts import part as folding
from lakemark_server.file_index.parts.fold import Snapshot, empty
from tests.lakes import ID, SCHEMA, X, file, stat
from tests.snapshots import folded

INSTANT = 1_800_000_000_000


@dataclass
class Step:
    """One version: its operation, what it declares to replace, and the months of the files that it adds."""

    operation: t.Operation.ValueType
    declared: list[int] = field(default_factory=list)
    months: list[int] = field(default_factory=list)
    statistics: bool = False


Row = tuple[str, int, int | None]  # path, version, min of id
Version = tuple[VersionRecord, list[pa.RecordBatch]]

_months = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.builds(Step, st.just(t.APPEND), st.just([]), st.lists(_months, max_size=5), st.booleans()),
        st.builds(
            Step,
            st.just(t.OVERWRITE_PARTITIONS),
            st.lists(_months, max_size=2),
            st.lists(_months, max_size=3),
            st.booleans(),
        ),
        st.builds(Step, st.just(t.OVERWRITE_TABLE), st.just([]), st.lists(_months, max_size=3), st.booleans()),
    ),
    max_size=25,
)


def built(version: int, step: Step) -> tuple[Version, list[tuple[str, Row]]]:
    """The version for ``fold``, and its rows by partition for the model."""
    stats = [stat(ID, version, version)] if step.statistics else []
    given_files = [file(INSTANT, f"v{version}-{n}", month, stats=stats) for n, month in enumerate(step.months)]
    partitions = {f"m={month}" for month in step.months + step.declared}
    record = VersionRecord(version=version, operation=step.operation, partitions=sorted(partitions))
    rows = [
        (f"m={month}", (one.path, version, version if step.statistics else None))
        for one, month in zip(given_files, step.months, strict=True)
    ]
    return (record, [from_messages(given_files, SCHEMA)]), rows


def applied(model: list[tuple[str, Row]], record: VersionRecord, rows: list[tuple[str, Row]]) -> list[tuple[str, Row]]:
    if record.operation == t.OVERWRITE_TABLE:
        model = []
    if record.operation == t.OVERWRITE_PARTITIONS:
        model = [(partition, row) for partition, row in model if partition not in record.partitions]
    return model + rows


def rows_of(snapshot: Snapshot) -> list[Row]:
    entries = snapshot.entries()
    lows = entries.column("min.1").to_pylist() if "min.1" in entries.schema.names else [None] * entries.num_rows
    versions = entries.column("added_version").to_pylist()
    return list(zip(texts(entries.column("path")), cast("list[int]", versions), lows, strict=True))


@settings(max_examples=150)
@given(STEPS, st.lists(st.integers(1, 6), max_size=10), st.integers(1, 12))
def test_any_history_folded_in_any_pieces_equals_the_list(steps: list[Step], cuts: list[int], merged_max: int) -> None:
    """Old snapshots are kept and checked again at the end: later folds must not change them."""
    most, folding.PART_FILES_MAX = folding.PART_FILES_MAX, merged_max  # type: ignore[misc]
    try:
        versions, models, model = [], {0: []}, []  # type: ignore[var-annotated]
        for number, step in enumerate(steps, 1):
            version, rows = built(number, step)
            model = applied(model, version[0], rows)
            versions.append(version)
            models[number] = [row for _, row in model]
        snapshots = [empty(SCHEMA)]
        sizes = iter([*cuts, *[1] * len(versions)])
        while (at := snapshots[-1].version) < len(versions):
            snapshots.append(folded(snapshots[-1], versions[at : at + next(sizes)], SCHEMA))
        for snapshot in snapshots:
            assert rows_of(snapshot) == models[snapshot.version], f"version {snapshot.version}"
            assert snapshot.files == len(models[snapshot.version])
            assert snapshot.rows == 5 * snapshot.files
            assert snapshot.size_bytes == 10 * snapshot.files
            assert rows_of(folded(empty(SCHEMA), versions[: snapshot.version], SCHEMA)) == models[snapshot.version]
    finally:
        folding.PART_FILES_MAX = most  # type: ignore[misc]


def appends(count: int, files_each: int = 1) -> list[Version]:
    return [built(number, Step(t.APPEND, [], [0] * files_each))[0] for number in range(1, count + 1)]


def test_small_commits_do_not_become_as_many_parts() -> None:
    snapshot = empty(SCHEMA)
    for version in appends(200):
        snapshot = folded(snapshot, [version], SCHEMA)
        assert len(snapshot.parts) <= 9, "grows with the logarithm only"
    assert snapshot.files == 200


def test_a_part_is_shared_not_copied_and_its_mask_is_new() -> None:
    base = folded(empty(SCHEMA), [built(1, Step(t.APPEND, [], [0, 1, 2]))[0]], SCHEMA)
    replaced = folded(base, [built(2, Step(t.OVERWRITE_PARTITIONS, [1], []))[0]], SCHEMA)
    (old,), (new,) = base.parts, replaced.parts
    assert new.entries is old.entries
    assert old.live is None
    assert new.live is not None
    assert new.live.tolist() == [True, False, True]


def test_a_part_without_living_files_is_dropped() -> None:
    base = folded(empty(SCHEMA), [built(1, Step(t.APPEND, [], [1, 1]))[0]], SCHEMA)
    assert folded(base, [built(2, Step(t.OVERWRITE_PARTITIONS, [1], []))[0]], SCHEMA).parts == ()


def test_replacing_what_is_not_there_keeps_the_part_itself() -> None:
    part = folding.in_memory(from_messages([file(INSTANT, "a", 1)], SCHEMA), SCHEMA)
    assert part.without(frozenset({"m=9"})) is part
    assert part.without(frozenset({"m=1"})) is None


def test_an_overwrite_does_not_replace_its_own_files() -> None:
    snapshot = folded(empty(SCHEMA), [built(1, Step(t.OVERWRITE_PARTITIONS, [], [1, 2]))[0]], SCHEMA)
    assert snapshot.files == 2


def test_statistics_that_some_files_lack_are_unknown() -> None:
    one = from_messages([file(INSTANT, "a", 1, stats=[stat(ID, 1, 2)])], SCHEMA)
    two = from_messages([file(INSTANT, "b", 1, stats=[stat(X, nulls=3)])], SCHEMA)
    merged = folding.concat([one, two], SCHEMA)
    assert merged.column("min.1").to_pylist() == [1, None]
    assert merged.column("null_count.2").to_pylist() == [None, 3]
