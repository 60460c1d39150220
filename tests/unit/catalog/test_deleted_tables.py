"""The files of a dropped table are deleted, but never those of a new table in the same place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark_core import storage
from lakemark_core.errors import DatabaseNotFound, FilesLeft, LocationTaken, TableNotFound, Unavailable
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_server.catalog import left_directories
from lakemark_server.ownership.tenures import LEFT_MS
from lakemark_server.verify import verify
from tests.lakes import SCHEMA, Lake


def test_nothing_is_made_where_files_are_being_deleted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table()
    delete, seen = storage.delete_directory, []

    def slow(uri: str, may_go_on: Callable[[], None]) -> None:
        for place in (uri, f"{uri}/below"):
            wanted = LakeTableRecord(database="default", name="wanted", location=place)
            with pytest.raises(LocationTaken, match="still being deleted"):
                lake.catalog.create_lake_table(wanted, SCHEMA)
        seen.append(uri)
        delete(uri, may_go_on)

    monkeypatch.setattr(storage, "delete_directory", slow)
    lake.catalog.dropped.drop("", "default", "t", now=True, request_id="drop")
    assert seen == [table.record.location]
    again = lake.table()
    lake.catalog.dropped.drop("", "default", "t", now=True, request_id="drop")
    assert Path(again.record.location.removeprefix("file:")).is_dir(), "asked again, it deletes nothing new"
    assert verify(lake.store) == []


def fails(uri: str, *_: object) -> None:
    raise Unavailable(f"{uri}: nothing was applied")


def test_what_a_drop_left_is_deleted_later(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table()
    with monkeypatch.context() as patched:
        patched.setattr(storage, "delete_directory", fails)
        with pytest.raises(FilesLeft, match="the table is dropped"):
            lake.catalog.dropped.drop("", "default", "t", now=True)
    with pytest.raises(TableNotFound):
        lake.catalog.get_lake_table("", "default", "t")
    place = Path(table.record.location.removeprefix("file:"))
    assert place.is_dir()
    assert left_directories.finish(lake.store, lake.clock()) == [], "somebody may be at it"
    lake.clock.advance(LEFT_MS + 1)
    assert left_directories.finish(lake.store, lake.clock()) == [table.record.location]
    assert not place.exists()
    lake.table()


def made(lake: Lake) -> Path:
    """A database with a file in its directory."""
    record = lake.catalog.create_database(DatabaseRecord(catalog="hive", name="d"))
    place = Path(record.location.removeprefix("file:"))
    (place / "file").write_text("x")
    return place


def test_a_dropped_database_whose_files_cannot_be_deleted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    place = made(lake)
    with monkeypatch.context() as patched:
        patched.setattr(storage, "begin_move", fails)
        patched.setattr(storage, "delete_directory", fails)
        with pytest.raises(FilesLeft, match="database 'd' is dropped, but not its directory") as left:
            lake.catalog.drop_database("", "d", request_id="drop")
    assert left.value.details == {"location": f"file:{place}"}
    with pytest.raises(DatabaseNotFound):
        lake.catalog.get_database("", "d")
    assert (place / "file").exists()
    lake.catalog.drop_database("", "d", request_id="drop")
    assert not place.exists()


def test_an_empty_directory_is_removed_where_it_is(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    place = made(lake)
    (place / "file").unlink()
    monkeypatch.setattr(storage, "begin_move", fails)
    monkeypatch.setattr(storage, "delete_directory", fails)
    lake.catalog.drop_database("", "d")
    assert not place.exists()
    assert verify(lake.store) == []
    assert left_directories.finish(lake.store, lake.clock() + 2 * LEFT_MS) == []


def test_what_was_put_aside_before_a_crash_is_deleted_though_the_directory_is_empty(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was moved, and the transaction that notes it was not made; then some other program made the directory."""
    place = made(lake)
    move = storage.begin_move

    def moves_and_fails(source: str, target: str, may_go_on: Callable[[], None]) -> None:
        move(source, target, may_go_on)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(storage, "begin_move", moves_and_fails)
        with pytest.raises(KeyboardInterrupt):
            lake.catalog.drop_database("", "d")
    place.mkdir()
    lake.clock.advance(LEFT_MS + 1)
    left_directories.finish(lake.store, lake.clock())
    assert list(place.parent.glob(".lakemark-deleted-*")) == []
    assert verify(lake.store) == []


def test_a_database_that_was_put_aside_is_deleted_later(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    place = made(lake)
    with monkeypatch.context() as patched:
        patched.setattr(storage, "delete_directory", fails)
        lake.catalog.drop_database("", "d")
    again = made(lake)
    assert (again, [one.name for one in again.iterdir()]) == (place, ["file"])
    (aside,) = place.parent.glob(".lakemark-deleted-*/file")
    lake.clock.advance(LEFT_MS + 1)
    assert left_directories.finish(lake.store, lake.clock()) == [f"file:{aside.parent}"]
    assert not aside.parent.exists()
    assert (again / "file").exists()
    assert verify(lake.store) == []


def test_a_database_that_is_made_again_is_not_deleted_by_asking_again(lake: Lake) -> None:
    made(lake)
    lake.catalog.drop_database("", "d", request_id="drop")
    place = made(lake)
    lake.catalog.drop_database("", "d", request_id="drop")
    assert (place / "file").exists()
