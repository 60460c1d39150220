"""The log of recent changes stays within its size, and forgotten changes come from the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark_core.errors import CommitConflict, LakemarkError
from lakemark_proto.store.v1.store_pb2 import Touched, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.kv import CommitUnknownResult, ReadTransaction, Store, Transaction, open_store
from lakemark_server.store.keyspace import MAIN
from lakemark_server.timeline import records
from lakemark_server.timeline.conflicts.change_log import ChangeLog, memory_bytes
from lakemark_server.timeline.conflicts.changes import Change, of_record
from lakemark_server.timeline.lineage import OF_MAIN
from tests.lakes import Lake, file, open_lake, profile

TABLE = 7
VERSIONS = 40


class Counting:
    """A transaction that counts the ranges that are read."""

    def __init__(self, tx: ReadTransaction) -> None:
        self._tx = tx
        self.ranges = 0

    def __getattr__(self, name: str) -> object:
        self.ranges += name == "get_range"
        return getattr(self._tx, name)


def filled(directory: Path) -> tuple[Store, list[Change]]:
    store = open_store(f"sqlite:///{directory}/store.db")
    versions = [
        VersionRecord(version=number, instant=number, partitions=["m=1"], touched=Touched(files=range(number)))
        for number in range(1, VERSIONS + 1)
    ]

    def write(tx: Transaction) -> None:
        for version in versions:
            records.put_version(tx, TABLE, MAIN, version)

    store.transact(write)
    return store, [of_record(version) for version in versions]


def read(store: Store, log: ChangeLog, after: int, upto: int) -> tuple[list[int], int]:
    """The versions, and how many ranges of the store were read for them."""

    def body(tx: ReadTransaction) -> tuple[list[int], int]:
        counting = Counting(tx)
        found = log.between(counting, TABLE, OF_MAIN, after, upto)  # type: ignore[arg-type]
        return [change.version for change in found], counting.ranges

    return store.read(body)


def test_what_takes_more_bytes_pushes_out_more(tmp_path: Path) -> None:
    store, changes = filled(tmp_path)
    log = ChangeLog(sum(map(memory_bytes, changes[-10:])))
    log.add(TABLE, MAIN, changes)
    log.add(TABLE, MAIN, changes[-5:])  # counted once
    assert read(store, log, VERSIONS - 10, VERSIONS) == (list(range(VERSIONS, VERSIONS - 10, -1)), 0)
    assert read(store, log, VERSIONS - 11, VERSIONS) == (list(range(VERSIONS, VERSIONS - 11, -1)), 1)
    assert read(store, log, 0, VERSIONS)[0] == list(range(VERSIONS, 0, -1))
    small = [Change(number, t.APPEND, version=number) for number in range(100, 120)]
    log.add(TABLE, MAIN, small)
    assert read(store, log, 99, 119) == (list(range(119, 99, -1)), 0), "of those that name less there is room for more"
    store.close()


def test_what_is_published_again_replaces_what_was_lost(tmp_path: Path) -> None:
    store, changes = filled(tmp_path)
    log = ChangeLog()
    log.add(TABLE, MAIN, [Change(1, t.APPEND, version=1, owner="unknown result")])
    log.add(TABLE, MAIN, [changes[0]])
    assert store.read(lambda tx: list(log.between(tx, TABLE, OF_MAIN, 0, 1))) == [changes[0]]
    store.close()


def test_what_was_not_committed_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may publish something else as that version, and writers must see that."""

    def fail(_: object) -> None:
        raise CommitUnknownResult("it was not")

    with open_lake(tmp_path) as lake:
        other = Lake(lake.store, tmp_path, lake.clock)
        table = lake.table()
        other.put(table, [3])
        lost = lake.open(table, work=profile(2))
        with monkeypatch.context() as broken:
            broken.setattr(lake.store, "_submit", fail)
            with pytest.raises(LakemarkError):
                lake.commit(table, lost, [file(lost, "a", 2)])
        assert other.put(table, [1], t.OVERWRITE_PARTITIONS).version == 2
        with pytest.raises(CommitConflict, match="version 2"):
            lake.open(table, work=profile(1), read_version=1)
