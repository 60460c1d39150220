"""What Spark says of the size of a plan."""

from __future__ import annotations

import pytest

from lakemark_spark.layout import size_told


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
