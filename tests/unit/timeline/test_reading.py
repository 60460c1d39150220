"""Commits that are read together get the same entries, or the same refusal, as each alone."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from lakemark_core.errors import InvalidFile, LakemarkError
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.timeline.instants.staging import Entries, read_entries
from lakemark_server.timeline.jobs import reading
from lakemark_server.timeline.jobs.commit import COMMIT_BYTES_MAX, SmallCommitJob
from lakemark_server.timeline.jobs.reading import read_commits, read_each
from lakemark_server.timeline.publication.commits import Commit, CommitDraft
from tests.lakes import Lake, file, files, stat


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.table()


def draft(instant: int, *given: p.DataFile) -> CommitDraft:
    return CommitDraft(instant, files(*given))


def comparable(entries: Entries | LakemarkError) -> Any:
    if isinstance(entries, LakemarkError):
        return type(entries), entries.message, dict(entries.details)
    added = None
    if entries.added is not None:
        added = entries.added.select(["path", "file_group", "kind", "partition"]).to_pylist()
    parts = {name: getattr(entries, name) for name in entries.__slots__}
    return parts | {"slices": entries.slices.tolist(), "touched": vars(entries.touched), "added": added}


def alone(one: CommitDraft, table: LakeTable) -> Entries | LakemarkError:
    try:
        assert one.added is not None
        return read_entries(one.added, table, one.instant)
    except LakemarkError as error:
        return error


def some(instant: int, chance: random.Random) -> CommitDraft:
    given = []
    for number in range(chance.randrange(4)):
        bounds = [stat(1, chance.randrange(5), chance.randrange(5, 9), 1)] if chance.random() < 0.7 else []
        one = file(instant, f"g{number}", chance.randrange(3), rows=chance.randrange(1, 9), stats=bounds)
        if chance.random() < 0.2:
            one.kind, one.file_group, one.base_instant = p.DELTA, f"f{number}", chance.randrange(2)
        if chance.random() < 0.05:
            one.row_count = -1
        if chance.random() < 0.05:
            one.path = one.path.replace("/a.parquet", "/_hidden")
        given.append(one)
    return draft(instant, *given)


@pytest.mark.parametrize("seed", range(40))
def test_together_as_alone(table: LakeTable, seed: int) -> None:
    chance = random.Random(seed)
    drafts = [some(1_000 + number, chance) for number in range(chance.randrange(2, 9))]
    found = read_each(drafts, table)
    assert [comparable(one) for one in found] == [comparable(alone(one, table)) for one in drafts]


def test_they_are_read_together(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "read_entries", None)  # is not needed
    found = read_each([draft(7, file(7, "a", 1)), draft(8, file(8, "a", 2))], table)
    assert [entries.partitions for entries in found if isinstance(entries, Entries)] == [{"m=1"}, {"m=2"}]


def test_who_is_wrong_harms_nobody_else(table: LakeTable) -> None:
    wrong = draft(8, file(9, "a", 1))  # another instant's place
    found = read_each([draft(7, file(7, "a", 1)), wrong, draft(9, file(9, "a", 1))], table)
    assert [isinstance(one, InvalidFile) for one in found] == [False, True, False]


def test_the_same_instant_twice(table: LakeTable) -> None:
    """A commit that is repeated while the first attempt still waits."""
    found = read_each([draft(7, file(7, "a", 1))] * 2, table)
    assert comparable(found[0]) == comparable(found[1])
    assert isinstance(found[0], Entries)


def by_column(instant: int, count: int) -> CommitDraft:
    """The files as columns that compress well, however many rows they have."""
    table = pa.table(
        {
            "path": [f"{instant}/m=1/{number}/a.parquet" for number in range(count)],
            "size_bytes": [1] * count,
            "row_count": [1] * count,
            "partition": ["m=1"] * count,
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return CommitDraft(instant, added=p.DataFiles(arrow=sink.getvalue().to_pybytes()))


def test_columns_among_messages(table: LakeTable) -> None:
    drafts = [draft(7, file(7, "a", 1)), by_column(8, 3), draft(9, file(9, "b", 2)), by_column(9, 1)]
    found = read_each(drafts, table)
    assert [comparable(one) for one in found] == [comparable(alone(one, table)) for one in drafts]


def test_columns_that_are_not_small_after_all(lake: Lake, table: LakeTable) -> None:
    drafts = [by_column(7, 64), by_column(8, 65), draft(9, file(9, "a", 1))]
    assert all(map(SmallCommitJob.of, drafts))
    found = lake.store.read(lambda tx: read_commits(tx, table, drafts))
    assert [isinstance(one, Commit) for one in found] == [True, False, True]
    assert found[1] is None


@pytest.mark.parametrize(
    ("one", "small"),
    [
        (CommitDraft(instant=1), True),
        (draft(1, file(1, "a")), True),
        (draft(1, *(file(1, f"g{number}") for number in range(65))), False),
        (draft(1, file(1, "g" * COMMIT_BYTES_MAX)), False),
        (CommitDraft(instant=1, added=p.DataFiles(arrow=b"x")), True),
        (CommitDraft(instant=1, added=p.DataFiles(arrow=b"x" * COMMIT_BYTES_MAX)), False),
        (CommitDraft(instant=1, file_schema=b"x"), False),
        (CommitDraft(instant=1, removed=["1/a/b.parquet"]), False),
    ],
)
def test_small(one: CommitDraft, small: bool) -> None:
    assert (SmallCommitJob.of(one) is not None) is small
