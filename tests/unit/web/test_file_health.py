"""Sizes, small files and the score, against what is counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_web.file_health import AVOIDABLE_MIN, CLASSES, NOTHING, FileTotals, summarize
from lakemark_web.file_lists import files_of
from tests.lakes import Lake, file, open_lake

TARGET = 1_000_000
BIG, SMALL = 900_000, 10_000


def loaded(lake: Lake) -> Snapshot:
    return lake.snapshots.snapshot("", "default", "t", SnapshotReference()).snapshot


def put(lake: Lake, month: int, sizes: list[int]) -> None:
    table = lake.catalog.get_lake_table("", "default", "t")
    instant = lake.open(table)
    lake.commit(table, instant, [file(instant, f"f{at}", month, size=size) for at, size in enumerate(sizes)])


def test_files_are_counted_by_partition(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        assert summarize(loaded(lake), TARGET).totals == NOTHING
        put(lake, 1, [BIG, SMALL, SMALL])
        put(lake, 2, [2_000_000, 70_000_000])
        put(lake, 1, [SMALL])
        instant = lake.open(table, t.OVERWRITE_PARTITIONS)
        lake.commit(table, instant, [file(instant, "new", 2, size=BIG)])
        summary = summarize(loaded(lake), TARGET)
        one, two = summary.partitions("name", 0, 10)
        assert (one.name, one.files, one.rows, one.size_bytes, one.small, one.avoidable) == (
            "m=1", 4, 20, BIG + 3 * SMALL, 3, 2,
        )  # fmt: skip
        assert (two.name, two.files, two.small, two.avoidable) == ("m=2", 1, 0, 0)
        assert one.histogram == (4, 0, 0, 0, 0, 0)
        assert summary.totals.files == 5
        assert summary.totals.histogram == (5, 0, 0, 0, 0, 0)
        assert [one.name for one in summary.partitions("avoidable", 0, 1)] == ["m=1"]
        assert [one.name for one in summary.partitions("name", 1, 5)] == ["m=2"]
        assert summary.find("m=2") == two
        assert summary.find("m=3") is None


def test_files_are_listed_a_page_at_a_time(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        lake.table()
        for _ in range(3):
            put(lake, 1, [1, 2, 3])
            put(lake, 2, [4])
        whole = files_of(loaded(lake), "m=1", 0, 100)
        assert [one.size_bytes for one in whole] == [1, 2, 3] * 3
        paged = [one for first in range(0, 12, 2) for one in files_of(loaded(lake), "m=1", first, 2)]
        assert paged == whole
        assert files_of(loaded(lake), "m=3", 0, 10) == []


@pytest.mark.parametrize(
    ("files", "avoidable", "deltas", "score"),
    [
        (0, 0, 0, 100),
        (100, AVOIDABLE_MIN - 1, 0, 100),
        (100, 90, 0, 10),
        (100, 0, 25, 75),
        (100, 80, 40, 0),
        (1_000_000, AVOIDABLE_MIN, 0, 100),
    ],
)
def test_the_score_is_the_share_of_files_that_would_be_left(
    files: int, avoidable: int, deltas: int, score: int
) -> None:
    totals = FileTotals(files, 0, 0, deltas, avoidable, avoidable, 1, (0,) * len(CLASSES))
    assert totals.score == score
    assert bool(totals.reasons) == (avoidable >= AVOIDABLE_MIN or deltas > 0)
