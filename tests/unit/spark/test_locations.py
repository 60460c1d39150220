"""Names of places and files between the service and Spark."""

from __future__ import annotations

import pytest

from lakemark_spark.locations import for_spark, same_as_listed, same_for_all, spellings


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://lake/a b%20", "s3a://lake/a b%20"),
        ("s3n://lake/a", "s3a://lake/a"),
        ("s3a://lake/a", "s3a://lake/a"),
        ("file:/a/b", "file:/a/b"),
        ("hdfs://h:8020/a", "hdfs://h:8020/a"),
    ],
)
def test_locations_are_in_the_scheme_that_spark_reads(location: str, expected: str) -> None:
    assert for_spark(location) == expected


def test_the_schemes_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMARK_ENGINE_SCHEMES", "{}")
    assert for_spark("s3a://lake/a") == "s3://lake/a"


@pytest.mark.parametrize(
    ("ours", "listed"),
    [
        ("s3://lake/a b/c%20", "s3a://lake/a%20b/c%2520"),
        ("file:/a b/c%20", "file:///a%20b/c%2520"),
        ("file:/a", "file:/a"),
        ("hdfs://h:8020/\u00fc", "hdfs://h:8020/%C3%BC"),
    ],
)
def test_a_file_is_found_by_the_name_that_spark_lists(ours: str, listed: str) -> None:
    assert same_for_all(ours) == same_as_listed(listed)


def test_spark_spells_local_files_in_two_ways() -> None:
    assert spellings("file:///a") == ["file:/a", "file:///a"]
    assert spellings("s3a://lake/a") == ["s3a://lake/a"]
