"""Names of directories that statements are given, and what the paths of files in them become."""

from __future__ import annotations

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_server.doors.directories import (
    GivenDirectory,
    data_paths,
    given_at,
    is_left_by_overwrite,
    new_session,
    slice_of,
)
from tests.lakes import FLAT, SCHEMA


def test_a_location_tells_its_directory_in_any_scheme() -> None:
    one = GivenDirectory.new(new_session(), 3, 12, 1_800_000_000_000)
    assert (one.schema_id, one.version, one.given_ms) == (3, 12, 1_800_000_000_000)
    for root in ("file:/wh/t-1", "s3a://lake/t-1", "/wh/t", "hdfs://names:8020/a b/t"):
        assert given_at(f"{root}/{one.path}") == one
        assert given_at(f"{root}/{one.path}/") == one
    for other in ("", "file:/wh/t-1", f"file:/wh/t-1/{one.path}/m=1", f"file:/wh/{one.session}/{one.name}"):
        assert given_at(other) is None


def test_hidden_files_are_no_data() -> None:
    paths = [
        "_SUCCESS",
        "_given",
        ".part.crc",
        "_temporary/0/x.parquet",
        "m=1/_x",
        "m=1/b.parquet",
        "a.parquet",
        "_m=1/c",
    ]
    assert data_paths([*paths, ".m=1/d"]) == [".m=1/d", "_m=1/c", "a.parquet", "m=1/b.parquet"]


def test_each_file_gets_a_directory_of_its_own_and_always_the_same() -> None:
    one, other = slice_of("m=1/a.parquet", 7, SCHEMA), slice_of("M=1/b.parquet", 7, SCHEMA)
    assert one.target.startswith("7/m=1/")
    assert one.target.rpartition("/")[0] != other.target.rpartition("/")[0]
    assert (one.partition, other.partition) == ((1,), (1,))
    assert slice_of("M=1/a.parquet", 7, SCHEMA).target == one.target
    assert slice_of("a.parquet", 7, FLAT).target.count("/") == 2
    with pytest.raises(InvalidArgument):
        slice_of("a.parquet", 7, SCHEMA)


def test_what_a_dynamic_overwrite_leaves() -> None:
    assert is_left_by_overwrite({"_given", "m=1"})
    for entries in ({"_given"}, {"m=1", "_SUCCESS"}, {"m=1", "_temporary"}, {"m=1", ".spark-staging-1"}, {"a.parquet"}):
        assert not is_left_by_overwrite(entries)
