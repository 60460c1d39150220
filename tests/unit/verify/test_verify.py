"""The checker of invariants: silent on a healthy store, and each kind of damage is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakemark_proto.store.v1.store_pb2 import HeadRecord, InstantRecord, TableEntry, VersionRecord
from lakemark_proto.store.v1.warehouse_pb2 import ConstraintRecord
from lakemark_proto.v1 import catalog_pb2
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog import lake as lakes
from lakemark_server.kv import Transaction
from lakemark_server.store.keyspace import (
    ALIVE,
    BLOCKS,
    CONSTRAINTS,
    HEADS,
    HELD,
    HIVE_TABLES,
    INSTANTS,
    LAKE_TABLES,
    LAST_INSTANT,
    OF_TABLE,
    PARTITION_PLACES,
    PLACES,
    REFERENCES,
    SCHEMAS,
    STAGED_SLICES,
    TABLE_NAMES,
    VERSION_TIMES,
    VERSIONS,
)
from lakemark_server.timeline.instants.alive import Alive
from lakemark_server.verify import verify
from tests.lakes import Lake, file


class Filled:
    """A table with a commit of one file, one of staged blocks, a rolled back, a requested and an inflight instant."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.table = lake.table()
        self.id = self.table.table_id
        self.small = lake.put(self.table, [1, 2]).instant
        lake.clock.advance(5)
        self.large = lake.open(self.table)
        lake.stage(self.table, self.large, 1, [file(self.large, f"g{n}", n % 3) for n in range(100)])
        lake.stage(self.table, self.large, 2, [file(self.large, f"h{n}", n % 3) for n in range(3)])
        lake.commit(self.table, self.large, [file(self.large, "last", 5)])
        self.gone = lake.open(self.table)
        lake.stage(self.table, self.gone, 1, [file(self.gone, "g", 1)])
        lake.timeline.rollback(self.table, self.gone, "")
        self.requested = lake.open(self.table, start=False)
        self.inflight = lake.open(self.table)
        lake.stage(self.table, self.inflight, 1, [file(self.inflight, "g", 1)])

    def damage(self, body: Callable[[Transaction], object]) -> list[str]:
        self.lake.store.transact(body)
        return verify(self.lake.store)

    def version(self, number: int, **change: object) -> Callable[[Transaction], None]:
        def body(tx: Transaction) -> None:
            key = VERSIONS.key(self.id, "main", number)
            record = VersionRecord.FromString(tx.get(key) or b"")
            for name, value in change.items():
                setattr(record, name, value)
            tx.set(key, record.SerializeToString())

        return body

    def instant(self, number: int, **change: object) -> Callable[[Transaction], None]:
        def body(tx: Transaction) -> None:
            key = INSTANTS.key(self.id, number)
            record = InstantRecord.FromString(tx.get(key) or b"")
            for name, value in change.items():
                setattr(record, name, value)
            tx.set(key, record.SerializeToString())

        return body


@pytest.fixture
def filled(lake: Lake) -> Filled:
    return Filled(lake)


def test_healthy(filled: Filled) -> None:
    assert verify(filled.lake.store) == []


def test_a_dropped_table_leaves_nothing(filled: Filled) -> None:
    filled.lake.catalog.dropped.drop("", "default", "t", now=True)
    assert verify(filled.lake.store) == []
    for space in OF_TABLE:
        assert filled.lake.store.read(lambda tx, space=space: tx.get_range(space.prefix, space.prefix + b"\xff")) == []  # type: ignore[misc]


def test_a_renamed_table_is_healthy(filled: Filled) -> None:
    filled.lake.catalog.rename_lake_table("", "default", "t", "", "u")
    assert verify(filled.lake.store) == []


Damage = Callable[[Filled], Callable[[Transaction], object]]


def shorter(filled: Filled) -> Callable[[Transaction], None]:
    """A block that does not match what the version says."""

    def body(tx: Transaction) -> None:
        first, second = BLOCKS.key(filled.id, filled.large, 0), BLOCKS.key(filled.id, filled.large, 1)
        tx.set(first, tx.get(second) or b"")

    return body


def renamed(filled: Filled) -> Callable[[Transaction], None]:
    def body(tx: Transaction) -> None:
        record = lakes.get_record(tx, filled.id)
        record.name = "other"
        lakes.put(tx, record)

    return body


def strip(tx: Transaction, filled: Filled) -> None:
    key = VERSIONS.key(filled.id, "main", 1)
    record = VersionRecord.FromString(tx.get(key) or b"")
    del record.partitions[:]
    tx.set(key, record.SerializeToString())


def head_7(filled: Filled) -> Callable[[Transaction], None]:
    return lambda tx: tx.set(HEADS.key(filled.id, "main"), HeadRecord(version=7).SerializeToString())


def heartbeat(tx: Transaction, filled: Filled, instant: int) -> None:
    tx.set(ALIVE.key(filled.id, instant), Alive(instant, 1, 1, True, t.APPEND).pack())


def name(tx: Transaction, database_id: int, table_id: int, kind: catalog_pb2.TableKind.ValueType) -> None:
    tx.set(TABLE_NAMES.key(database_id, "u"), TableEntry(table_id=table_id, kind=kind).SerializeToString())


def constrain(tx: Transaction, table_id: int, **fields: Any) -> None:
    record = ConstraintRecord(**({"name": "c"} | fields))
    tx.set(CONSTRAINTS.key(table_id, "c"), record.SerializeToString())


DAMAGES: list[tuple[str, Damage]] = [
    ("there is a gap", lambda f: lambda tx: tx.clear(VERSIONS.key(f.id, "main", 1))),
    ("the head is version", lambda f: lambda tx: tx.clear(VERSIONS.key(f.id, "main", 2))),
    ("the head is version 7", head_7),
    ("the head is version 0", lambda f: lambda tx: tx.clear(HEADS.key(f.id, "main"))),
    ("before version 1", lambda f: f.version(2, committed_ms=1)),
    ("has the record of version 9", lambda f: f.version(2, version=9)),
    ("read version 2", lambda f: f.version(2, read_version=2)),
    ("are of one instant", lambda f: f.version(2, instant=f.small)),
    ("cannot be found by their time", lambda f: lambda tx: tx.clear_range(*VERSION_TIMES.range(f.id))),
    ("times without their version", lambda f: lambda tx: tx.set(VERSION_TIMES.key(f.id, "main", 5, 9), b"")),
    ("which is not there", lambda f: f.instant(f.gone, state=t.COMPLETED, version=3)),
    ("is INFLIGHT, but is version 1", lambda f: f.instant(f.small, state=t.INFLIGHT)),
    ("versions without their instant", lambda f: lambda tx: tx.clear(INSTANTS.key(f.id, f.small))),
    ("the last one given out is 3", lambda f: lambda tx: tx.set(LAST_INSTANT.key(f.id), (3).to_bytes(8, "big"))),
    ("has a heartbeat and is not open", lambda f: lambda tx: heartbeat(tx, f, f.gone)),
    ("has a heartbeat and is not open", lambda f: lambda tx: heartbeat(tx, f, 7)),
    ("heartbeat of another state", lambda f: f.instant(f.requested, state=t.INFLIGHT)),
    ("open instants without a heartbeat", lambda f: lambda tx: tx.clear_range(*ALIVE.range(f.id))),
    ("has 1 of its 2 blocks", lambda f: lambda tx: tx.clear(BLOCKS.key(f.id, f.large, 1))),
    ("cannot be read", lambda f: lambda tx: tx.set(BLOCKS.key(f.id, f.large, 0), b"Arubbish")),
    ("cannot be read", lambda f: lambda tx: tx.set(BLOCKS.key(f.id, f.large, 0), b"P\xff\xff\xff")),
    ("cannot be read", lambda f: f.version(1, inline_block=b"Zrubbish")),
    ("says 104 files", shorter),
    ("says 2 files", lambda f: f.version(1, inline_block=b"")),
    ("partitions that it does not name", lambda f: lambda tx: strip(tx, f)),
    ("has staged blocks", lambda f: lambda tx: tx.set(BLOCKS.key(f.id, f.gone, 0), b"P")),
    ("has staged slices", lambda f: lambda tx: tx.set(STAGED_SLICES.key(f.id, 7, 0, 0), b"")),
    ("cannot be read: schema 1", lambda f: lambda tx: tx.clear_range(*SCHEMAS.range(f.id))),
    ("was dropped", lambda f: lambda tx: tx.clear_range(*LAKE_TABLES.range(f.id))),
    ("says default.other", renamed),
    ("has the name default.t too", lambda f: lambda tx: name(tx, 1, f.id, catalog_pb2.LAKE)),
    ("its database does not exist", lambda f: lambda tx: name(tx, 99, 77, catalog_pb2.LAKE)),
    ("has no definition", lambda f: lambda tx: name(tx, 1, 77, catalog_pb2.WAREHOUSE)),
    ("which is in no registry", lambda f: lambda tx: tx.clear_range(*HELD.range(2))),
    ("is held by lake table id 77, which has no", lambda f: lambda tx: tx.set(HELD.key(2, 77, b"", "file:/gone"), b"")),
    ("in one direction only", lambda f: lambda tx: tx.clear_range(*PLACES.range())),
    ("is noted at a, and is not there", lambda f: lambda tx: tx.set(PARTITION_PLACES.key(77, "a", b"x"), b"")),
    ("says that it is other", lambda f: lambda tx: constrain(tx, f.id, name="other")),
    ("constraint c of table id 1 cannot be read", lambda f: lambda tx: tx.set(CONSTRAINTS.key(f.id, "c"), b"\xff")),
    ("which does not exist", lambda f: lambda tx: constrain(tx, f.id, kind=ConstraintRecord.FOREIGN_KEY, parent_id=99)),
    ("constraint c of table id 99, which does", lambda f: lambda tx: tx.set(REFERENCES.key(f.id, 99, "c"), b"")),
    ("has no name, but there are keys under 'ver'", lambda f: lambda tx: tx.clear_range(*TABLE_NAMES.range())),
    ("has no name, but there are keys under 'lasti'", lambda f: lambda tx: tx.set(LAST_INSTANT.key(77), b"")),
    ("has no name, but there are keys under 'hive'", lambda f: lambda tx: tx.set(HIVE_TABLES.key(77, 0), b"")),
]  # fmt: skip


@pytest.mark.parametrize(("problem", "damage"), DAMAGES, ids=[problem for problem, _ in DAMAGES])
def test_damage_is_told(filled: Filled, problem: str, damage: Damage) -> None:
    found = filled.damage(damage(filled))
    assert any(problem in one for one in found), found


def test_pages_do_not_lose_anything(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemark_server.verify.lake.PAGE_BLOCKS", 2)
    table = lake.table()
    for number in range(7):
        lake.put(table, [number])
    assert verify(lake.store) == []
