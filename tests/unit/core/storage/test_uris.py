"""Locations: one form for each, and what lies where."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark_core import storage
from lakemark_core.errors import InvalidArgument, Unavailable
from lakemark_core.storage import (
    StorageSettings,
    canonical_uri,
    check_location,
    engine_schemes,
    in_scheme,
    is_same_place,
    join,
    keeps_directories,
    lies_in,
    list_files,
    local_path,
    normal_uri,
    open_location,
    spellings,
    stored_uri,
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


def test_a_place_has_a_spelling_for_each_alias() -> None:
    assert spellings("s3a://b/a") == ("s3://b/a", "s3a://b/a", "s3n://b/a")
    assert spellings("file:/a") == ("file:/a",)


def test_schemes_of_engines_come_from_the_environment() -> None:
    assert engine_schemes({}) == {"s3": "s3a"}
    assert engine_schemes({"LAKEMARK_ENGINE_SCHEMES": "{}"}) == {}
    for wrong in ("s3a", "[]", '{"s3": 1}'):
        with pytest.raises(InvalidArgument, match=r"LAKEMARK_ENGINE_SCHEMES is .* a JSON object"):
            engine_schemes({"LAKEMARK_ENGINE_SCHEMES": wrong})


@pytest.mark.parametrize(
    ("uri", "kind", "path"),
    [
        ("gs://lake/a b/c%20d", "gcs", "lake/a b/c%20d"),
        ("abfss://lake@account.dfs.core.windows.net/a b/c%20", "abfs", "lake/a b/c%20"),
    ],
)
def test_paths_of_other_stores_are_taken_as_they_are(uri: str, kind: str, path: str) -> None:
    system, of_system = open_location(uri)
    assert (system.type_name, of_system) == (kind, path)


def test_hdfs_without_a_hadoop_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.delenv("LAKEMARK_WEBHDFS", raising=False)
    with pytest.raises(Unavailable, match=r"set LAKEMARK_WEBHDFS=http://<name node>:9870 and pip install") as told:
        open_location("hdfs://nowhere:8020/a")
    assert "\n" not in told.value.message


def test_hdfs_by_webhdfs_where_it_is_set() -> None:
    storage.configure(StorageSettings(webhdfs="http://127.0.0.1:9870"))
    try:
        system, path = open_location("hdfs://names:8020/a b/c%20d")
        assert path == "/a b/c%20d"
        assert storage.has_directories(system)
    finally:
        storage.configure(None)
    assert StorageSettings.from_environment({"LAKEMARK_WEBHDFS": "https://names:9871"}).webhdfs == "https://names:9871"
    with pytest.raises(InvalidArgument, match="webhdfs 'names:9870' is no URL"):
        StorageSettings(webhdfs="names:9870")


def test_files_below_a_directory_are_listed_with_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "a" / "b c%20").mkdir(parents=True)
    (tmp_path / "a" / "empty").mkdir()
    (tmp_path / "a" / "b c%20" / "x").write_bytes(b"123")
    (tmp_path / "a" / "y").write_bytes(b"")
    assert sorted(list_files(f"file:{tmp_path}/a/")) == [("b c%20/x", 3), ("y", 0)]
    assert list(list_files(f"file:{tmp_path}/nothing")) == []


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("s3://KEY:SECRET@b/x?endpoint_override=h:1&scheme=http", "before the @"),
        ("s3://b/x?endpoint_override=h:1&scheme=http", "query"),
        ("gs://b?endpoint_override=127.0.0.1:1", "query"),
        ("file:/a?b", "query"),
        ("/a#b", "fragment"),
        ("s3://KEY:SECRET@b/x", "before the @"),
        ("s3a://KEY:SEC/RET@b/x", "before the @"),
        ("s3a://KEY:12/RET@b/x", "before the @"),
        ("s3:KEY:SECRET@b/x", "before the @"),
        ("hdfs://user@names:8020/x", "before the @"),
        ("abfss://c:SECRET@account.dfs.core.windows.net/x", "before the @"),
        ("s3://b/a\nb", "control character"),
        ("/a\0b", "control character"),
        ("/" + "a" * 4_000, "4001 characters; at most 4000"),
        ("  ", "empty"),
    ],
)
def test_what_no_location_may_have(location: str, words: str) -> None:
    for function in (normal_uri, canonical_uri):
        with pytest.raises(InvalidArgument, match=words) as raised:
            function(location)
        assert "SECRET" not in str(raised.value)
        assert "RET@" not in str(raised.value)


@pytest.mark.parametrize(
    "location",
    [
        "s3://b/a@b",
        "s3://b/x=1:2/a@b",
        "hdfs://names:8020/user/a@b",
        "abfss://container@account.dfs.core.windows.net/x",
        "file:/a@b/c:d@e",
        "/a%3Fb",
        "/Straße/日本",
    ],
)
def test_what_a_location_may_have(location: str) -> None:
    check_location(location)


def test_locations_of_older_stores_are_read_as_they_are() -> None:
    assert stored_uri("s3a://KEY@b/x?y/") == "s3://KEY@b/x?y"
