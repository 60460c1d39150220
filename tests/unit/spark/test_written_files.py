"""Which files below an instant are those of an attempt to write it."""

from __future__ import annotations

from pathlib import Path

from lakemark_spark.layout import Attempt, written_files


def test_what_committers_leave_is_not_among_them(tmp_path: Path) -> None:
    attempt = Attempt(str(tmp_path), "ab")
    directory = f"{attempt.column}=0"
    # Partition columns may have any name.
    written = sorted([f".p=x/{directory}/a.parquet", f"_p=x/{directory}/a.parquet", f"p=x/{directory}/a.parquet"])
    others = [
        f"_temporary/0/p=x/{directory}/a.parquet",
        f".spark-staging-1/p=x/{directory}/a.parquet",
        f"p=x/{directory}/.a.parquet.crc",
        f"p=x/{directory}/_SUCCESS",
        "p=x/lakemark_group_cd=0/a.parquet",
    ]
    for path in (*written, *others):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x")

    assert written_files(attempt) == written
