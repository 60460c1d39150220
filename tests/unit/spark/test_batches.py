"""Whether the files of a batch have the rows that were checked."""

from __future__ import annotations

from typing import cast

import pytest
from pyspark.sql import DataFrame

from lakemark import DataFile
from lakemark_core.errors import Unavailable
from lakemark_spark.batches import Batch, BucketGroup, check_rewritten, check_written

NO_ROWS = cast(DataFrame, None)
BATCH = Batch(NO_ROWS, {BucketGroup(("x",), "bucket-0"): 3, BucketGroup(("y",), "bucket-1"): 1})


def files(*told: tuple[str, str, int]) -> list[DataFile]:
    return [
        DataFile(f"1/{at}", 1, rows, (partition,), file_group=group) for at, (partition, group, rows) in enumerate(told)
    ]


def test_files_of_a_batch_have_its_rows() -> None:
    check_written(BATCH, files(("y", "bucket-1", 1), ("x", "bucket-0", 3)))
    check_written(BATCH, files(("x", "bucket-0", 1), ("y", "bucket-1", 1), ("x", "bucket-0", 2)))
    check_written(Batch(NO_ROWS, {}), [])


@pytest.mark.parametrize(
    "written",
    [
        files(("x", "bucket-0", 3)),
        files(("x", "bucket-0", 4), ("y", "bucket-1", 1)),
        files(("x", "bucket-0", 2), ("y", "bucket-1", 2)),
        files(("x", "bucket-1", 3), ("y", "bucket-1", 1)),
        files(("x", "bucket-0", 3), ("y", "bucket-1", 1), ("y", "bucket-2", 1)),
    ],
)
def test_files_with_other_rows_are_refused(written: list[DataFile]) -> None:
    with pytest.raises(Unavailable, match="nothing is changed: call again"):
        check_written(BATCH, written)


def test_files_that_replace_others_have_rows_of_their_groups_alone() -> None:
    old = files(("x", "bucket-0", 10))
    check_rewritten(BATCH, files(("x", "bucket-0", 12), ("y", "bucket-1", 1)), old)
    check_rewritten(BATCH, [], old)
    for other in (("y", "bucket-0", 1), ("x", "bucket-2", 1)):
        with pytest.raises(Unavailable, match="nothing is changed: call again"):
            check_rewritten(BATCH, files(("x", "bucket-0", 12), other), old)


def test_rows_of_an_older_bucket_may_come_into_all_that_it_was_split_into() -> None:
    batch = Batch(NO_ROWS, {BucketGroup(("x",), "bucket-0-of-4"): 1})
    old = files(("x", "bucket-0-of-2", 10))
    check_rewritten(batch, files(("x", "bucket-0-of-4", 5), ("x", "bucket-2-of-4", 6)), old)
    with pytest.raises(Unavailable):
        check_rewritten(batch, files(("x", "bucket-0-of-4", 5), ("x", "bucket-1-of-2", 1)), old)
    with pytest.raises(Unavailable):
        check_rewritten(batch, files(("x", "bucket-2-of-4", 1)), [])
