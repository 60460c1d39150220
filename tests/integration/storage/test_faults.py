"""An S3 server that throttles, fails, delays and cuts: what was acknowledged is there, retries end, nothing is torn."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lakemark.errors import FilesLeft, LakemarkError, StorageUnavailable
from lakemark_core import storage
from lakemark_server.verify import check_files, verify
from tests.integration.storage.conftest import S3World, rows
from tests.s3_proxy import Fault, S3Request

REASONS: dict[Fault, str] = {
    "slow down": "throttled",
    "internal error": "server_error",
    "cut before": "connection",
    "cut after": "connection",
}


def parquet_files(world: S3World) -> set[str]:
    keys = world.bucket.keys()
    return {key for key in keys if key.endswith(".parquet")}


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_acknowledged_is_there_whatever_the_store_does(start: Callable[..., S3World], seed: int) -> None:
    world = start(s3_max_attempts=6)
    name = world.table()
    acknowledged: list[int] = []
    lost = 0
    with world.proxy.failing_at_random(seed, 0.2):
        for month in range(12):
            try:
                world.append(name, month)
                acknowledged.append(month)
            except LakemarkError:
                lost += 1
        seen = world.months(name)
    assert seen == acknowledged
    assert world.proxy.faults.total() >= 3
    assert lost <= 2, "retries carry a writer over a fifth of failing requests"
    assert (verify(world.service.store), check_files(world.service.store).problems) == ([], [])
    with world.proxy.failing_at_random(seed + 100, 0.2):
        world.append(name, 100, operation="overwrite_table")
        for _ in range(5):
            world.client.timeline.clean(name, retain_versions=1)
            if len(parquet_files(world)) == 1:
                break
    assert (world.months(name), len(parquet_files(world))) == ([100], 1)


@pytest.mark.parametrize("fault", REASONS)
def test_retries_end_after_the_attempts_that_are_set(start: Callable[..., S3World], fault: Fault) -> None:
    world = start(s3_max_attempts=2)
    name = world.table()
    world.append(name, 1)
    with world.client.begin(name, "append") as writer, world.proxy.disturbing(lambda _: fault):
        world.proxy.clear()
        with pytest.raises(StorageUnavailable) as caught:
            writer.write(rows(2))
        # The library of pyarrow asks once more, at once, on a connection of its pool that the server has closed.
        assert world.proxy.counts["PutObject"] in ((2,) if fault not in ("cut before", "cut after") else (2, 3, 4))
        assert caught.value.details["reason"] == REASONS[fault]
        assert f"bucket '{world.bucket.name}'" in caught.value.message
        world.proxy.clear()
        with pytest.raises(StorageUnavailable) as caught:
            storage.is_empty(f"{world.bucket.uri}/wh")
        assert world.proxy.counts == {"ListObjects": 2}
        assert caught.value.details["reason"] == REASONS[fault]
        writer.rollback()
    assert world.months(name) == [1]


def test_a_read_survives_complaints_that_are_longer_than_what_was_asked_for(start: Callable[..., S3World]) -> None:
    """pyarrow's library fails on such an answer, which its buffer cannot hold, and does not ask again."""
    world = start(s3_max_attempts=4)
    name = world.table()
    world.append(name, 1)
    answers = iter(["slow down", None, "internal error", None, "slow down"])

    def some(request: S3Request) -> Fault | None:
        return next(answers, None) if request.operation == "GetObject" else None  # type: ignore[return-value]

    with world.proxy.disturbing(some):
        assert world.months(name) == [1]
    assert world.proxy.faults.total() == 3


def test_a_server_that_says_nothing_is_not_waited_for(start: Callable[..., S3World]) -> None:
    world = start(s3_max_attempts=1, s3_request_timeout=0.5)
    world.proxy.delay_s = 30.0
    name = world.table()
    world.append(name, 1)
    with world.proxy.disturbing(lambda _: "delay"):
        begun = time.monotonic()
        with pytest.raises(StorageUnavailable, match="did not answer in time"):
            world.months(name)
        with pytest.raises(StorageUnavailable, match="did not answer in time"):
            storage.delete_directory(f"{world.bucket.uri}/wh/db.db")
        assert time.monotonic() - begun < 15


def test_a_drop_whose_files_cannot_be_deleted_now_is_finished_when_it_is_asked_for_again(
    start: Callable[..., S3World],
) -> None:
    world = start(s3_max_attempts=1)
    name = world.table()
    world.append(name, 1)
    dropped = world.service.catalog.dropped
    with world.proxy.disturbing(lambda request: "slow down" if request.operation == "DeleteObjects" else None):
        with pytest.raises(FilesLeft, match="still being deleted"):
            dropped.drop("", "db", "t", now=True, request_id="drop")
        assert len(world.bucket.keys()) == 1
    dropped.drop("", "db", "t", now=True, request_id="drop")
    assert world.bucket.keys() == []


def test_files_that_a_clean_cannot_delete_are_deleted_by_the_next_one(start: Callable[..., S3World]) -> None:
    world = start(s3_max_attempts=1)
    name = world.table()
    world.append(name, 1, 2)
    world.append(name, 9, operation="overwrite_table")
    with world.proxy.disturbing(lambda request: "slow down" if request.operation == "DeleteObjects" else None):
        assert world.client.timeline.clean(name, retain_versions=1).files == 0
    assert len(parquet_files(world)) == 3
    assert world.client.timeline.clean(name, retain_versions=1).files == 2
    assert (world.months(name), len(parquet_files(world))) == ([9], 1)


def test_a_directory_that_is_not_empty_keeps_its_marker_and_nothing_else(
    world: S3World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that keep keys as files refuse to delete a marker before what lies in its directory."""
    from lakemark_core.storage.s3 import S3Directory

    for name in ("many/", "many/a", "many/deep/b"):
        world.bucket.put(name, b"")
    directory = S3Directory(f"{world.bucket.uri}/many")
    delete, asked = directory._client.delete_objects, []

    def answer(**request: object) -> object:
        keys = [each["Key"] for each in request["Delete"]["Objects"]]  # type: ignore[index]
        asked.append(keys)
        if len(asked) > 1:
            return delete(**request)
        return {"Errors": [{"Key": "many/", "Code": "ErrDirectoryNotEmpty"}]}

    monkeypatch.setattr(directory._client, "delete_objects", answer)
    assert directory.delete_keys(["many/a", "many/"]) == {}
    assert asked == [["many/a", "many/"]]
    asked.clear()
    directory.delete(lambda: None)
    assert asked == [["many/deep/b", "many/a", "many/"], ["many/"]]


def test_keys_that_a_request_could_not_delete_are_tried_again(world: S3World, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeleteObjects is answered 200 and names the keys that are left."""
    from lakemark_core.storage.s3 import S3Directory

    for name in "abc":
        world.bucket.put(f"many/{name}", b"")
    directory = S3Directory(f"{world.bucket.uri}/many")
    delete, asked = directory._client.delete_objects, []

    def answer(**request: object) -> object:
        asked.append([each["Key"] for each in request["Delete"]["Objects"]])  # type: ignore[index]
        if len(asked) == 1:
            return {"Errors": [{"Key": "many/b", "Code": "InternalError"}]}
        return delete(**request)

    monkeypatch.setattr(directory._client, "delete_objects", answer)
    assert directory.delete_keys(["many/a", "many/b", "many/c"]) == {}
    assert asked == [["many/a", "many/b", "many/c"], ["many/b"]]
    monkeypatch.setattr(
        directory._client, "delete_objects", lambda **_: {"Errors": [{"Key": "many/b", "Code": "AccessDenied"}]}
    )
    left = directory.delete_keys(["many/a", "many/b"])
    assert {error.details["reason"] for error in left.values()} == {"access_denied"}
