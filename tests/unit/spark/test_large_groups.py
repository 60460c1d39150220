"""Which file groups a compaction writes by jobs of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakemark import DataFile
from lakemark_core.bucket_directory import Directory
from lakemark_core.bucket_tree import FileGroups
from lakemark_core.table_kind import TableKind
from lakemark_spark import compactions
from lakemark_spark.compactions import LARGE_ROWS

DIRECTORY = Directory.uniform(1).altered([2], [])
"""Its leaves are the buckets 3, 4 and 6."""
FIXED = TableKind(("id",), buckets=8)
GROWING = replace(FIXED, buckets=2, directory=DIRECTORY)


def _file(at: int, partition: str, bucket: int, rows: int, kind: TableKind, *, is_base: bool) -> DataFile:
    path = f"{at}/{partition}/{bucket}/{at}.parquet"
    name = kind.group_name(bucket)
    return DataFile(path, 1, rows, (partition,), file_group=name, bucket=bucket, kind="base" if is_base else "delta")


_given = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(2, 7), st.integers(1, 3), st.booleans()), min_size=1, max_size=12
)


@given(_given, st.sampled_from([FIXED, GROWING]))
def test_no_other_file_has_keys_of_a_large_group(known: list[tuple[str, int, int, bool]], kind: TableKind) -> None:
    files = [
        _file(at, partition, bucket, thirds * LARGE_ROWS // 3, kind, is_base=is_base)
        for at, (partition, bucket, thirds, is_base) in enumerate(known, start=1)
    ]
    large, others = compactions._large_groups(files, kind)
    told = [file for members in large.values() for file in members] + list(others)
    assert Counter(file.path for file in told) == Counter(file.path for file in files)
    for (partition, bucket), members in large.items():
        assert {(file.partition, file.bucket) for file in members} == {(partition, bucket)}
        assert sum(file.row_count for file in members) >= LARGE_ROWS
        assert kind.directory is None or bucket in kind.directory.leaves
        group = FileGroups([(partition, kind.group_name(bucket))])
        assert [file for file in files if group.touch(file.partition, file.file_group)] == members
    if kind is FIXED:
        rows: Counter[tuple[object, int | None]] = Counter()
        for file in others:
            rows[file.partition, file.bucket] += file.row_count
        assert all(count < LARGE_ROWS for count in rows.values())
