"""Work in a closed directory that takes long: it stays this process's own, or ends before it does harm."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark_core import storage
from lakemark_core.errors import LakemarkError, LocationTaken, Unavailable
from lakemark_proto.store.v1.store_pb2 import ClosedRecord, DatabaseRecord
from lakemark_server.catalog import directories, left_directories
from lakemark_server.ownership import closures, tenures
from lakemark_server.ownership.tenures import LEFT_MS, at_work
from tests.lakes import Lake

MINUTE_S = 60

OtherProcess = Callable[[Callable[[], None]], None]


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    clock = Seconds()
    monkeypatch.setattr(tenures, "_seconds", clock)
    monkeypatch.setattr(tenures.Tenures, "_run", lambda _: None)  # the tests renew by themselves
    monkeypatch.setattr(tenures, "_tenures", tenures.Tenures())
    return clock


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "wh" / "d"
    (place / "p=1").mkdir(parents=True)
    (place / "p=1" / "file").touch()
    return place


@pytest.fixture
def other_process(monkeypatch: pytest.MonkeyPatch) -> OtherProcess:
    """Runs something as another process would, which knows nothing of this one's threads."""

    def run(body: Callable[[], None]) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(closures, "WORKER", b"other")
            patched.setattr(tenures, "_tenures", tenures.Tenures())
            body()

    return run


def begun(lake: Lake, location: Path) -> ClosedRecord:
    return lake.store.transact(lambda tx: directories.begin_deletion(tx, f"file:{location}", lake.clock(), aside=False))


def test_work_that_goes_on_is_not_taken_over(
    lake: Lake, directory: Path, seconds: Seconds, other_process: OtherProcess
) -> None:
    def sweep() -> None:
        assert left_directories.finish(lake.store, lake.clock()) == []

    with at_work(lake.store, [begun(lake, directory)]) as tenure:
        for _ in range(30):
            seconds.now += MINUTE_S
            lake.clock.advance(MINUTE_S * 1_000)
            tenure.renew()  # as the thread does
            other_process(sweep)
            tenure.may_go_on()
    lake.clock.advance(LEFT_MS + 1)
    other_process(lambda: swept(lake, directory))


def swept(lake: Lake, directory: Path) -> None:
    assert left_directories.finish(lake.store, lake.clock()) == [f"file:{directory}"]
    assert not directory.exists()


def test_its_own_sweeper_leaves_a_thread_alone_that_does_not_get_on(lake: Lake, directory: Path) -> None:
    with at_work(lake.store, [begun(lake, directory)]):
        lake.clock.advance(LEFT_MS + 1)
        assert left_directories.finish(lake.store, lake.clock()) == []
    assert left_directories.finish(lake.store, lake.clock()) == [f"file:{directory}"]


def test_who_was_taken_for_dead_deletes_nothing_any_more(
    lake: Lake, directory: Path, seconds: Seconds, other_process: OtherProcess
) -> None:
    """The process stood still; another one ended its work, and somebody has files there again."""
    record = begun(lake, directory)
    with at_work(lake.store, [record]) as tenure:
        seconds.now += 11 * MINUTE_S
        lake.clock.advance(LEFT_MS + 1)
        other_process(lambda: swept(lake, directory))
        (directory / "p=2").mkdir(parents=True)
        (directory / "p=2" / "file").touch()
        with pytest.raises(closures.TakenOver, match="another process goes on with file:"):
            storage.delete_directory(record.location, tenure.may_go_on)
    assert (directory / "p=2" / "file").exists()


def test_who_was_taken_for_dead_opens_nothing(lake: Lake, directory: Path, other_process: OtherProcess) -> None:
    record = begun(lake, directory)

    def take_over() -> None:
        assert lake.store.transact(lambda tx: closures.take_over(tx, record, lake.clock()))

    other_process(take_over)
    lake.store.transact(lambda tx: closures.reopen(tx, [record]))
    assert lake.store.read(lambda tx: closures.find(tx, record.location)) is not None


@pytest.mark.parametrize(("away_s", "raises"), [(1 * MINUTE_S, False), (1.8 * MINUTE_S, True)])
def test_a_store_that_is_away_for_a_while_stops_nothing(
    lake: Lake, directory: Path, seconds: Seconds, monkeypatch: pytest.MonkeyPatch, away_s: float, raises: bool
) -> None:
    def away(_: object) -> None:
        raise Unavailable("the store is away")

    with at_work(lake.store, [begun(lake, directory)]) as tenure:
        monkeypatch.setattr(lake.store, "transact", away)
        seconds.now += away_s
        tenure.renew()
        if not raises:
            tenure.may_go_on()
            return
        with pytest.raises(Unavailable, match="the store is away"):
            tenure.may_go_on()


def test_a_directory_that_was_put_aside_too_late_is_put_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, other_process: OtherProcess
) -> None:
    """Between the look at a directory and its rename another process has deleted it, and it was made again."""
    lake.catalog.create_database(DatabaseRecord(catalog="hive", name="d"))
    place = Path(lake.catalog.get_database("hive", "d").location.removeprefix("file:"))
    (place / "old").touch()
    rename = storage.begin_move

    def late(source: str, target: str, may_go_on: Callable[[], None]) -> storage.Move:
        monkeypatch.setattr(storage, "begin_move", rename)
        lake.clock.advance(LEFT_MS + 1)
        other_process(lambda: swept_aside(lake))
        lake.catalog.create_database(DatabaseRecord(catalog="hive", name="d"))
        (place / "file").touch()
        return rename(source, target, may_go_on)

    monkeypatch.setattr(storage, "begin_move", late)
    with pytest.raises(LakemarkError, match="another process goes on with"):
        lake.catalog.drop_database("", "d")
    assert (place / "file").exists()
    assert list(place.parent.glob(".lakemark-deleted-*")) == []


def test_an_empty_directory_that_was_removed_too_late_is_made_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, other_process: OtherProcess
) -> None:
    lake.catalog.create_database(DatabaseRecord(catalog="hive", name="d"))
    place = Path(lake.catalog.get_database("hive", "d").location.removeprefix("file:"))
    remove = storage.remove_if_empty

    def late(uri: str) -> bool:
        monkeypatch.setattr(storage, "remove_if_empty", remove)
        lake.clock.advance(LEFT_MS + 1)
        other_process(lambda: left_directories.finish(lake.store, lake.clock()))
        assert not place.exists()
        lake.catalog.create_database(DatabaseRecord(catalog="hive", name="d"))
        return remove(uri)

    monkeypatch.setattr(storage, "remove_if_empty", late)
    with pytest.raises(LakemarkError, match="another process goes on with"):
        lake.catalog.drop_database("", "d")
    assert place.is_dir()


def swept_aside(lake: Lake) -> None:
    assert len(left_directories.finish(lake.store, lake.clock())) == 1


def test_two_threads_are_not_at_one_directory(lake: Lake, directory: Path) -> None:
    record = begun(lake, directory)
    with (
        at_work(lake.store, [record]),
        pytest.raises(LocationTaken, match="is being worked on already; try again in a moment"),
    ):
        directories.finish_deletion(lake.store, record.location, lake.clock())
    directories.finish_deletion(lake.store, record.location, lake.clock())
    assert not directory.exists()


def test_a_thread_renews_them(lake: Lake, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = threading.Event()
    monkeypatch.setattr(tenures, "_tenures", tenures.Tenures())
    monkeypatch.setattr(tenures, "_RENEWED_S", 0.01)
    monkeypatch.setattr(tenures.Tenure, "renew", lambda _: renewed.set())
    with at_work(lake.store, [begun(lake, directory)]):
        assert renewed.wait(30)


def test_a_young_closure_of_another_process_is_left_to_it(
    lake: Lake, directory: Path, other_process: OtherProcess
) -> None:
    record = begun(lake, directory)
    other_process(lambda: directories.finish_deletion(lake.store, record.location, lake.clock()))
    assert directory.exists()
    lake.clock.advance(LEFT_MS + 1)
    other_process(lambda: directories.finish_deletion(lake.store, record.location, lake.clock()))
    assert not directory.exists()


def test_work_that_begins_late_is_renewed_first(
    lake: Lake, directory: Path, seconds: Seconds, other_process: OtherProcess
) -> None:
    """Between the drop and the deletion there was other work, and another process took over meanwhile."""
    record = begun(lake, directory)
    late = LEFT_MS - 1_000
    lake.clock.advance(LEFT_MS + 1)
    other_process(lambda: swept(lake, directory))
    directory.mkdir()
    with at_work(lake.store, [record], late) as tenure, pytest.raises(closures.TakenOver):
        storage.delete_directory(record.location, tenure.may_go_on)
    assert directory.exists()


def test_deletions_that_fail_hold_up_no_others(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_directories, "_AT_ONCE_MAX", 2)
    delete = storage.delete_directory
    places = [tmp_path / name for name in "abcde"]
    for place in places:
        place.mkdir()
        begun(lake, place)

    def fails(uri: str, may_go_on: Callable[[], None]) -> None:
        if not uri.endswith("e"):
            raise Unavailable("not now")
        delete(uri, may_go_on)

    monkeypatch.setattr(storage, "delete_directory", fails)
    lake.clock.advance(LEFT_MS + 1)
    for _ in range(3):
        left_directories.finish(lake.store, lake.clock())
    assert [place.exists() for place in places] == [True, True, True, True, False]
