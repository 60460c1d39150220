"""Backups of stores in use, and stores restored from them: the same content, of one moment, for any kind of store."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from lakemark.errors import EventsLost, FailedPrecondition, NotEmpty
from lakemark_proto.v1.events_pb2 import EventKind
from lakemark_server.backup import BackupNotFound, HalfRestored, Repository, restore, take
from lakemark_server.events.log import EventLog
from lakemark_server.kv import Store, counter, open_store
from lakemark_server.kv.api import KEYS_END
from lakemark_server.process import open_existing
from lakemark_server.store.keyspace import EPOCH
from lakemark_server.verify import verify
from tests.integration.backup.conftest import URLS, backup, ballast, content, fill, opened, restored
from tests.lakes import Clock, Lake
from tests.stores import sqlite_url

ACCOUNTS = 10


@pytest.mark.parametrize("of", URLS)
@pytest.mark.parametrize("to", URLS)
def test_from_any_store_to_any_other(tmp_path: Path, repository: Repository, of: str, to: str) -> None:
    with opened(URLS[of](tmp_path)) as source:
        lake = Lake(source, tmp_path, Clock())
        table = lake.table()
        for month in range(1, 8):
            lake.put(table, [month, month + 1])
        fill(source, ballast(1_500) | {b"\0" * 5_000: b"", b"\xfe" * 2_500: b"x" * 90_000})
        before = content(source)
        manifest = backup(source, repository)
        paths = [lake.paths(table, version) for version in range(8)]
    assert manifest.store == of
    directory = tmp_path / "target"
    directory.mkdir()
    with opened(URLS[to](directory)) as target:
        restore(target, repository, manifest)
        assert content(target) == before
        assert verify(target) == []
        again = Lake(target, tmp_path, Clock())
        assert [again.paths(table, version) for version in range(8)] == paths
        again.put(table, [1])
        assert backup(target, repository).version


def test_the_same_content_makes_the_same_chunks_on_every_store(tmp_path: Path, repository: Repository) -> None:
    with opened(sqlite_url(tmp_path)) as source:
        fill(source, ballast(4_000))
        first = backup(source, repository)
    (tmp_path / "target").mkdir()
    with opened(sqlite_url(tmp_path / "target")) as target:
        restore(target, repository, first)
        target.transact(lambda tx: tx.clear(EPOCH))  # which the restore has begun
        second = backup(target, repository)
    assert second.content == first.content
    assert (second.new_chunks, second.new_bytes) == (0, 0)


def test_later_backups_write_only_what_has_changed(source: Store, repository: Repository) -> None:
    pairs = ballast(10_000)
    fill(source, pairs)
    first = backup(source, repository)
    assert first.new_chunks == len(first.chunks) > 8
    fill(source, {b"005000": b"changed", b"005000x": b"new"})
    second = backup(source, repository)
    assert 1 <= second.new_chunks <= 2
    assert second.pairs == first.pairs + 1
    assert backup(source, repository).new_chunks == 0


def test_each_backup_is_one_state_while_others_write(source: Store, repository: Repository, tmp_path: Path) -> None:
    fill(source, {b"account %d" % number: (100).to_bytes(8, "little") for number in range(ACCOUNTS)})
    fill(source, ballast(3_000))
    done = threading.Event()
    moved = threading.Semaphore(0)

    def move(seed: int) -> None:
        chance = random.Random(seed)
        while not done.is_set():
            one, other = (b"\x02zz\x00account %d" % number for number in chance.sample(range(ACCOUNTS), 2))
            source.transact(lambda tx, a=one, b=other: [tx.add(a, -1), tx.add(b, 1), tx.add(b"\x02zz\x00n", 1)])  # type: ignore[misc]
            moved.release()

    writers = [threading.Thread(target=move, args=(seed,)) for seed in range(3)]
    for writer in writers:
        writer.start()
    try:
        manifests = []
        for _ in range(4):
            moved.acquire()
            manifests.append(backup(source, repository))
    finally:
        done.set()
        for writer in writers:
            writer.join()
    counts = []
    for number, manifest in enumerate(manifests):
        directory = tmp_path / f"restored {number}"
        directory.mkdir()
        found = restored(sqlite_url(directory), repository, manifest)
        counts.append(counter(found[b"\x02zz\x00n"]))
        assert sum(counter(value) for key, value in found.items() if b"account" in key) == 100 * ACCOUNTS
        assert len(found) == 3_000 + ACCOUNTS + 1
    assert counts == sorted(set(counts)), "each state comes after the one before"


def test_commits_go_on_and_every_backup_verifies(source: Store, repository: Repository, tmp_path: Path) -> None:
    """Versions have no gap, and nothing refers to missing records."""
    lake = Lake(source, tmp_path, Clock())
    table = lake.table()
    done = threading.Event()
    committed = threading.Semaphore(0)

    def write() -> None:
        while not done.is_set():
            lake.put(table, [1, 2])
            committed.release()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        manifests = []
        for _ in range(3):
            for _ in range(5):
                committed.acquire()
            manifests.append(backup(source, repository))
    finally:
        done.set()
        writer.join()
    latest = []
    for number, manifest in enumerate(manifests):
        directory = tmp_path / f"restored {number}"
        directory.mkdir()
        with opened(sqlite_url(directory)) as target:
            restore(target, repository, manifest)
            copy = Lake(target, tmp_path, Clock())
            versions = copy.timeline.versions(table.table_id, "", limit=1_000)[0]
            assert [record.version for record in versions] == list(range(1, len(versions) + 1))
            assert copy.paths(table) == lake.paths(table, len(versions))
            latest.append(len(versions))
    assert latest == sorted(set(latest))


def test_of_a_file_that_another_store_writes(source: Store, repository: Repository, tmp_path: Path) -> None:
    """Like ``lakemark backup`` beside ``lakemark serve``."""
    fill(source, ballast(100))
    reader = open_existing(sqlite_url(tmp_path), read_only=True)
    try:
        assert backup(reader, repository).pairs == 100
        fill(source, {b"later": b""})
        assert backup(reader, repository).pairs == 101
        assert reader.integrity_check() == []
        with pytest.raises(FailedPrecondition, match="reading only"):
            reader.transact(lambda tx: tx.set(b"a", b""))
    finally:
        reader.close()
    fill(source, {b"still": b"written"})


def test_a_store_that_is_not_empty_is_left_alone(source: Store, repository: Repository, target_url: str) -> None:
    fill(source, ballast(10))
    manifest = backup(source, repository)
    with opened(target_url) as target:
        target.transact(lambda tx: tx.set(b"mine", b"1"))
        with pytest.raises(NotEmpty, match="is not empty"):
            restore(target, repository, manifest)
        assert content(target) == {b"mine": b"1"}


def test_an_empty_store_is_nothing_to_back_up(source: Store, repository: Repository) -> None:
    with pytest.raises(BackupNotFound, match="Is its URL right"):
        backup(source, repository, keep=1)
    assert repository.ids() == []


def test_who_writes_into_a_store_that_is_restored_is_noticed(
    source: Store, repository: Repository, target_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(source, ballast(3_000))
    manifest = backup(source, repository)
    plain = Repository.read
    with opened(target_url) as target:

        def read(self: Repository, entry: object) -> bytes:
            target.transact(lambda tx: tx.set(b"intruder", b""))
            return plain(self, entry)  # type: ignore[arg-type]

        monkeypatch.setattr(Repository, "read", read)
        with pytest.raises(Exception, match="another program writes to it"):
            restore(target, repository, manifest)
        with pytest.raises(HalfRestored):
            take(target, repository, "")
        assert target.read(lambda tx: tx.get_range(b"", KEYS_END, limit=2))


def test_a_backup_made_while_it_is_read_only_opens_a_store_that_exists(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no store"):
        open_existing(sqlite_url(tmp_path), read_only=True)
    with pytest.raises(FailedPrecondition, match="there is no file"):
        open_store(sqlite_url(tmp_path), read_only=True)


def test_a_restored_store_goes_on_with_its_log_of_events_in_another_epoch(
    tmp_path: Path, repository: Repository
) -> None:
    def events(store: Store) -> list[tuple[int, int, str]]:
        log = EventLog(store)
        page = log.page("hive", log.begin("hive", 0))
        return [(event.offset, event.epoch, EventKind.Name(event.kind)) for event in page.events]

    with opened(sqlite_url(tmp_path)) as source:
        lake = Lake(source, tmp_path, Clock())
        table = lake.table()
        manifest = backup(source, repository)
        lake.put(table, [1])
        lake.put(table, [2])
        before = events(source)
    (tmp_path / "target").mkdir()
    with opened(sqlite_url(tmp_path / "target")) as target:
        restore(target, repository, manifest)
        epoch = EventLog(target).extent("hive").epoch
        assert epoch > 0
        assert events(target) == [*before[:-2], (len(before) - 1, epoch, "STORE_RESTORED")]
        Lake(target, tmp_path, Clock()).put(table, [1])
        assert events(target)[-1] == (len(before), epoch, "COMMITTED")
        log = EventLog(target)
        log.begin("hive", len(before) - 2, 0)  # of an event that the backup has
        with pytest.raises(EventsLost) as lost:
            log.begin("hive", len(before), 0)
        assert lost.value.details["last_offset"] == str(len(before) - 2)
