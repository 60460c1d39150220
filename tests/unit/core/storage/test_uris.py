"""Locations: one form for each, and what lies where."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_core.storage import (
    canonical_uri,
    in_scheme,
    is_same_place,
    join,
    keeps_directories,
    lies_in,
    local_path,
    normal_uri,
    open_location,
)
from lakemark_core.storage.uris import S3Place, authority_and_path, is_s3


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("/a/b/", "file:/a/b"),
        ("file:///a//b", "file:/a/b"),
        (" file:/a/../b ", "file:/b"),
        ("s3://bucket/a/", "s3://bucket/a"),
        ("hdfs://host:8020/a", "hdfs://host:8020/a"),
    ],
)
def test_a_location_has_one_form(given: str, normal: str) -> None:
    assert normal_uri(given) == normal == normal_uri(normal)


@pytest.mark.parametrize("given", ["", "  ", "a/b", "./a"])
def test_a_location_is_absolute(given: str) -> None:
    with pytest.raises(InvalidArgument, match=r"empty|relative"):
        normal_uri(given)


def test_locations_below_others() -> None:
    assert join("s3://b/a/", "", "c", "d/e/") == "s3://b/a/c/d/e"
    assert join("s3://b") == "s3://b"


def test_which_stores_have_directories() -> None:
    with_them = ["file:/a", "/a", "hdfs://h/a", "viewfs://h/a"]
    without = ["s3://b/a", "S3A://b/a", "s3n://b/a", "gs://b/a", "abfss://c@account.dfs.core.windows.net/a"]
    assert [keeps_directories(uri) for uri in with_them + without] == [True] * 4 + [False] * 5
    assert [is_s3(uri) for uri in without] == [True, True, True, False, False]


def test_aliases_of_s3_are_one_place() -> None:
    assert {canonical_uri(f"{scheme}://b/a/") for scheme in ("s3", "s3a", "s3n", "S3A")} == {"s3://b/a"}
    assert canonical_uri("/a/") == "file:/a"
    assert is_same_place("s3a://b/a", "s3://b/a")
    assert not is_same_place("s3a://b/a", "gs://b/a")
    assert lies_in("s3a://b/a/c", "s3n://b/a")
    assert lies_in("s3a://b/a", "s3://b/a")
    assert not lies_in("s3://b/ab", "s3://b/a")
    assert not lies_in("s3://b/a", "")


def test_locations_in_the_scheme_of_an_engine() -> None:
    schemes = {"s3": "s3a"}
    given = ["s3://b/a", "s3a://b/a", "file:/a", "gs://b"]
    assert [in_scheme(uri, schemes) for uri in given] == ["s3a://b/a", "s3a://b/a", "file:/a", "gs://b"]


def test_buckets_and_keys() -> None:
    place = S3Place.of("s3a://bucket/a%20b/c d/")
    assert (place.bucket, place.key, place.prefix, place.path) == (
        "bucket", "a%20b/c d", "a%20b/c d/", "bucket/a%20b/c d"
    )  # fmt: skip
    whole = S3Place.of("s3://bucket")
    assert (whole.key, whole.prefix, whole.path) == ("", "", "bucket")
    with pytest.raises(InvalidArgument, match="names no bucket"):
        S3Place.of("s3:///a")


def test_authorities_of_other_stores() -> None:
    assert authority_and_path("hdfs://host:8020/a/b%20c/") == ("hdfs://host:8020/", "a/b%20c")
    assert authority_and_path("hdfs:/a") == ("hdfs:///", "a")
    assert authority_and_path("GS://bucket") == ("gs://bucket/", "")


def test_local_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    assert local_path("file:/a b%20") == Path("/a b%20")
    assert local_path("s3://b/a") is None
    assert [open_location(uri)[1] for uri in (f"file:{tmp_path}/a%20b", f"file://{tmp_path}/x", str(tmp_path))] == [
        f"{tmp_path}/a%20b", f"{tmp_path}/x", str(tmp_path)
    ]  # fmt: skip
