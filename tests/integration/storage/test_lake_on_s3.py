"""A lake table in a bucket: the Python client writes, plans, reads, drops and brings back; the service deletes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark.errors import FailedPrecondition, LocationTaken, StorageRefused, TableNotFound
from lakemark.parquet.adoption import adopt_files
from lakemark_core import storage
from lakemark_core.storage import s3
from lakemark_server.catalog import earlier_places, lake
from lakemark_server.kv import Transaction, keys_below
from lakemark_server.store.keyspace import EARLIER_LOCATIONS, HELD, LAKE_TABLES, PLACES, PLACES_KNOWN
from lakemark_server.verify import FilesFound, check_files, verify
from tests.integration.storage.conftest import S3World, rows


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def files(world: S3World) -> list[str]:
    return [key for key in world.bucket.keys("wh/") if key.endswith(".parquet")]


def test_what_is_written_is_planned_and_read_at_every_version(world: S3World) -> None:
    name = world.table()
    world.append(name, 1, 2)
    world.append(name, 3)
    world.append(name, 9, operation="overwrite_table")
    assert world.months(name) == [9]
    assert world.months(name, version=2) == [1, 2, 3]
    assert world.client.read(name, "month >= 2", version=2).num_rows == 2
    location = world.client.tables.get(name).location
    assert location.startswith(f"{world.bucket.uri}/wh/db.db/t-")
    paths = world.client.plan(name).paths
    assert [path.startswith(location + "/") for path in paths] == [True]
    assert set(files(world)) >= {path.removeprefix(f"{world.bucket.uri}/") for path in paths}


def test_nothing_but_data_files_is_in_the_bucket(world: S3World) -> None:
    name = world.table()
    world.append(name, 1, 2)
    assert world.bucket.keys() == files(world)
    assert len(files(world)) == 2


def test_partitions_with_signs_that_uris_escape(world: S3World) -> None:
    name = "db.t"
    world.client.tables.create(name, {"id": "bigint", "place": "string"}, partitioned_by=["place"])
    places = ["a b", "c/d", "e%20f", "ü=+", "g#h?i"]
    with world.client.begin(name, "append") as writer:
        writer.write(pa.table({"id": range(len(places)), "place": places}))
        writer.commit()
    assert sorted(world.client.read(name).column("place").to_pylist()) == sorted(places)
    world.client.read(name)
    with world.client.begin(name, "overwrite_table") as writer:
        writer.commit([])
    assert world.client.timeline.clean(name, retain_versions=1).files == len(places)
    assert files(world) == []


def test_a_clean_deletes_the_files_of_ended_versions_and_the_markers_of_their_directories(world: S3World) -> None:
    name = world.table()
    world.append(name, 1, 2)
    gone = files(world)
    for key in gone:
        world.bucket.put(key.rpartition("/")[0] + "/", b"")
        world.bucket.put("/".join(key.split("/")[:4]) + "/", b"")  # of the instant
    world.append(name, 3, operation="overwrite_table")
    cleaned = world.client.timeline.clean(name, retain_versions=1)
    assert (cleaned.files, len(world.bucket.keys()), world.months(name)) == (2, 1, [3])


def test_a_table_is_dropped_brought_back_and_purged(world: S3World) -> None:
    name = world.table()
    world.append(name, 1)
    world.client.tables.drop(name)
    assert len(files(world)) == 1
    world.client.tables.undrop(name)
    assert world.months(name) == [1]
    world.client.tables.drop(name)
    world.client.tables.purge(name)
    assert world.bucket.keys() == []
    with pytest.raises(TableNotFound):
        world.client.plan(name)


def test_the_files_of_a_dropped_table_whose_time_is_over_go(start: Callable[..., S3World]) -> None:
    world = start(sweep_interval_s=0.05, dropped_retain_s=0.2)
    name = world.table()
    world.append(name, 1)
    world.client.tables.drop(name)
    until(lambda: not world.bucket.keys())


def test_the_sweep_deletes_what_a_lost_writer_left_and_ends_its_uploads(start: Callable[..., S3World]) -> None:
    world = start(sweep_interval_s=0.05)
    name = world.table()
    world.append(name, 1)
    before = world.bucket.keys()
    writer = world.client.begin(name, "append")
    writer.write(rows(2))
    key = writer.location.removeprefix(f"{world.bucket.uri}/") + "/half.parquet"
    world.bucket.begin_upload(key)
    world.bucket.begin_upload("wh/others/half.parquet")
    assert len(world.bucket.keys()) == 2
    writer.rollback()
    until(lambda: world.bucket.keys() == before)
    until(lambda: world.bucket.uploads() == ["wh/others/half.parquet"])


def test_databases_come_and_go(world: S3World) -> None:
    made = world.client.databases.create("other")
    assert made.location == f"{world.bucket.uri}/wh/other.db"
    world.table("other.t")
    world.append("other.t", 1)
    world.client.tables.drop("other.t", now=True)
    world.bucket.put("wh/other.db/stray", b"x")
    world.bucket.put("wh/other.dbx/not-in-it", b"x")
    world.client.databases.drop("other")
    assert world.bucket.keys() == ["wh/other.dbx/not-in-it"]


def test_files_that_exist_are_brought_to_a_bucket(world: S3World, tmp_path: Path) -> None:
    name = world.table()
    pq.write_table(rows(1, 1).select(["id"]), tmp_path / "given.parquet")
    with world.client.begin(name, "append") as writer:
        written = adopt_files([tmp_path / "given.parquet"], writer, {"month": "1"})
        writer.commit(written.files)
    assert world.months(name) == [1, 1]


def test_verify_tells_files_that_are_missing_or_too_short(world: S3World) -> None:
    name = world.table()
    world.append(name, 1, 2, 3)
    assert (check_files(world.service.store).problems, verify(world.service.store)) == ([], [])
    first, second, _ = files(world)
    world.bucket.put(first, b"half")
    world.bucket.delete(second)
    problems = check_files(world.service.store).problems
    assert [each.rpartition(" ")[0].partition("parquet ")[2] for each in problems] == [
        "has 4 bytes, and should have", "is"
    ]  # fmt: skip


def test_verify_finds_files_that_nobody_has(world: S3World) -> None:
    name = world.table()
    world.append(name, 1, 2)
    world.append(name, 3, operation="overwrite_table")
    instant = "/".join(files(world)[0].split("/")[:4])
    world.bucket.put(f"{instant}/", b"")
    world.bucket.put(f"{instant}/lost/a.parquet", b"lost")
    found: list[FilesFound] = []
    counts = world.requests_of(lambda: found.append(check_files(world.service.store, orphans=True)))
    assert (found[0].orphans, found[0].orphan_bytes) == ([f"{world.bucket.uri}/{instant}/lost/a.parquet"], 4)
    assert counts == {"HeadObject": 1, "ListObjects": 2}, "the second time because there was one"


def test_a_database_in_a_bucket_that_is_not_there_is_refused(world: S3World) -> None:
    with pytest.raises(StorageRefused, match=r"bucket 'nowhere' at http.*: there is no such bucket") as caught:
        world.client.databases.create("lost", location="s3://nowhere/lost")
    assert caught.value.details["reason"] == "no_such_bucket"


def test_a_bucket_is_never_deleted_as_a_whole(world: S3World) -> None:
    world.bucket.put("precious", b"x")
    with pytest.raises(FailedPrecondition, match="whole bucket"):
        storage.delete_directory(f"{world.bucket.uri}/")
    assert world.bucket.keys() == ["precious"]


def test_a_table_that_an_earlier_build_placed_at_s3a_is_as_all_others(world: S3World) -> None:
    name = world.table()
    world.append(name, 1)
    location = world.client.tables.get(name).location
    earlier = location.replace("s3://", "s3a://")

    def as_then(tx: Transaction) -> None:
        record = lake.get_record(tx, table_id)
        record.location = earlier
        lake.put(tx, record)
        for known in (PLACES, HELD):
            tx.clear_range(*known.range())
        tx.clear(PLACES_KNOWN)
        tx.set(EARLIER_LOCATIONS.key(earlier), table_id.to_bytes(8, "big"))

    store = world.service.store
    (table_id,) = {items[0] for items, _ in keys_below(store, LAKE_TABLES)}
    assert isinstance(table_id, int)
    store.transact(as_then)
    earlier_places.fill(store, world.service.catalog.ownership.bounds.roots)
    world.append(name, 2)
    assert world.months(name) == [1, 2]
    assert world.client.tables.get(name).location == earlier
    for taken in (location, earlier, location.replace("s3://", "s3n://")):
        for place in (taken, f"{taken}/below", taken.rpartition("/")[0]):
            with pytest.raises(LocationTaken, match=r"has (its|the) directory"):
                world.client.tables.create("db.other", {"id": "bigint"}, location=place)
    assert verify(store) == []
    world.client.tables.drop(name)
    world.client.tables.undrop(name)
    world.client.tables.drop(name, now=True)
    assert (world.bucket.keys(), verify(store)) == ([], [])
    world.client.tables.create("db.other", {"id": "bigint"}, location=location)


def test_keys_are_deleted_in_batches(world: S3World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert s3.KEYS_A_REQUEST == 1_000
    monkeypatch.setattr(s3, "KEYS_A_REQUEST", 10)
    for number in range(21):
        world.bucket.put(f"many/{number}", b"")
    counts = world.requests_of(lambda: storage.delete_directory(f"{world.bucket.uri}/many"))
    assert counts == {"ListObjects": 3, "DeleteObjects": 3, "ListMultipartUploads": 1}
    assert world.bucket.keys() == []
