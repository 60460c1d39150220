"""What Spark says of a plan: how many bytes it takes, and whether one task is enough for it."""

from __future__ import annotations

import pytest

from lakemark_spark.layout import is_simple, is_small, rows_told, size_told


@pytest.mark.parametrize(
    ("told", "size"),
    [
        ("sizeInBytes=8.0 B, rowCount=1", 8),
        ("sizeInBytes=1.0 B", 1),
        ("sizeInBytes=1536.0 KiB, hints=none", 1536 << 10),
        ("sizeInBytes=62.6 MiB", 62.6 * (1 << 20)),
        ("sizeInBytes=8.0 EiB", None),
        ("sizeInBytes=8.51E+37 B, rowCount=3", 8.51e37),
        ("unknown", None),
    ],
)
def test_a_size_is_read(told: str, size: float | None) -> None:
    assert size_told(told) == size


PROJECTED = "Project [id#0L, pmod(hash(id#0L, 42), 4) AS  bucket#7]"


@pytest.mark.parametrize(
    ("plan", "simple"),
    [
        (f"{PROJECTED}\n+- LogicalRDD [id#0L], false\n", True),
        (f"{PROJECTED}\n+- Filter (id#0L > 3)\n   +- Relation [id#0L] parquet\n", True),
        ("Range (0, 3, step=1, splits=Some(2))\n", True),
        (f"{PROJECTED}\n+- BatchEvalPython [model(id#0L)#3], [pythonUDF0#4]\n   +- LogicalRDD [id#0L], false\n", False),
        (f"{PROJECTED}\n+- Join Inner\n   :- LogicalRDD [id#0L], false\n   +- LogicalRDD [id#1L], false\n", False),
        ("Aggregate [count(1) AS n#3L]\n+- Relation [id#0L] parquet\n", False),
        ("Union false, false\n:- Range (0, 3)\n+- Range (0, 3)\n", False),
    ],
)
def test_a_plan_that_needs_more_than_one_task_is_not_simple(plan: str, simple: bool) -> None:
    assert is_simple(plan) is simple


@pytest.mark.parametrize(
    ("told", "rows"),
    [
        ("sizeInBytes=8.0 B, rowCount=1", 1),
        ("sizeInBytes=8.0 MiB, rowCount=1.00E+6", 1_000_000),
        ("sizeInBytes=8.0 B", None),
    ],
)
def test_a_number_of_rows_is_read(told: str, rows: float | None) -> None:
    assert rows_told(told) == rows


LOCAL = f"{PROJECTED}\n+- LocalRelation [id#0L]\n"
CHECKPOINT = f"{PROJECTED}\n+- LogicalRDD [id#0L], false\n"
FILES = f"{PROJECTED}\n+- Relation [id#0L] parquet\n"
RANGE = "Range (0, 3, step=1, splits=Some(2))\n"


@pytest.mark.parametrize(
    ("plan", "told", "leaf", "small"),
    [
        ("LocalRelation [id#0L]\n", "sizeInBytes=1024.0 KiB", "sizeInBytes=1024.0 KiB", True),
        (LOCAL, "sizeInBytes=64.0 B", "sizeInBytes=48.0 B", True),
        (LOCAL, "sizeInBytes=1.1 MiB", "sizeInBytes=900.0 KiB", False),
        (RANGE, "sizeInBytes=24.0 B, rowCount=3", "sizeInBytes=24.0 B, rowCount=3", True),
        (RANGE, "sizeInBytes=781.3 KiB, rowCount=1.00E+5", "sizeInBytes=781.3 KiB, rowCount=1.00E+5", False),
        (FILES, "sizeInBytes=80.0 KiB", "sizeInBytes=60.0 KiB", True),
        (FILES, "sizeInBytes=80.0 KiB", "sizeInBytes=70.0 KiB", False),
        (FILES, "sizeInBytes=20.0 KiB", "sizeInBytes=900.0 KiB", False),
        (FILES, "sizeInBytes=900.0 KiB", "sizeInBytes=900.0 KiB, rowCount=5.00E+4", True),
        (FILES, "sizeInBytes=10.0 KiB", "sizeInBytes=10.0 KiB, rowCount=1.00E+7", False),
        (CHECKPOINT, "sizeInBytes=1.0 KiB", "sizeInBytes=1.0 KiB", False),
        (CHECKPOINT, "sizeInBytes=1.0 KiB", "sizeInBytes=1.0 KiB, rowCount=100", True),
        (
            "Aggregate [count(1) AS n#3L]\n+- Relation [id#0L] parquet\n",
            "sizeInBytes=8.0 B",
            "sizeInBytes=8.0 B",
            False,
        ),
    ],
)
def test_one_task_gets_few_rows(plan: str, told: str, leaf: str, small: bool) -> None:
    assert is_small(plan, told, leaf) is small
