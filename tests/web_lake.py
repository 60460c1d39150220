"""A lake for tests of the web page: branches, conflicts, silent writers, small files, and names that are attacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from lakemark_core.errors import CommitConflict
from lakemark_core.types import BIGINT, STRING, Field, Schema
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_proto.v1 import catalog_pb2
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import caller
from lakemark_server.process import Service
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft, Committed
from lakemark_server.timeline.references import ReferenceDraft

ATTACK = "<script>alert('owned')</script>\"'&<img src=x onerror=alert(1)>"


def _schema(comment: str) -> Schema:
    columns = [Field(0, "id", BIGINT), Field(0, "name", STRING, comment=comment), Field(0, "day", STRING)]
    return Schema.build(columns, ["day"], 1)


SCHEMA = _schema(ATTACK)
DAY = "2026-11-22"
MEGA = 1 << 20


class WebLake:
    """Short helpers over the domains of a service."""

    def __init__(self, service: Service, attack: str = ATTACK) -> None:
        self.service, self.attack = service, attack

    def table(self, name: str, database: str = "sales", **properties: str) -> LakeTable:
        record = LakeTableRecord(
            database=database, name=name, owner=self.attack, comment=f"comment {self.attack}", properties=properties
        )
        return self.service.catalog.create_lake_table(record, _schema(self.attack))

    def database(self, name: str) -> None:
        self.service.catalog.create_database(DatabaseRecord(name=name))

    def open(
        self,
        table: LakeTable,
        operation: t.Operation.ValueType = t.APPEND,
        days: Iterable[str] = (),
        *,
        owner: str = "etl",
        branch: str = "",
        timeout_ms: int = 0,
    ) -> int:
        partitions = [t.WorkProfile.Partition(values=[p.Value(text=day)]) for day in days]
        job = OpenJob(
            operation=operation,
            branch=branch,
            owner=owner,
            heartbeat_timeout_ms=timeout_ms,
            profile=t.WorkProfile(partitions=partitions),
            metadata={"job": "nightly", self.attack: self.attack},
        )
        return self.service.timeline.open(table.table_id, job).record.instant

    def commit(self, table: LakeTable, instant: int, sizes: Sequence[int], day: str = DAY) -> Committed:
        given = [
            p.DataFile(
                path=f"{instant}/g{at}/a.parquet",
                size_bytes=size,
                row_count=10,
                file_group=f"g{instant}-{at}",
                partition=[p.Value(text=day)],
            )
            for at, size in enumerate(sizes)
        ]
        added = p.DataFiles(list=p.DataFileList(files=given))
        return self.service.timeline.commit(table, CommitDraft(instant, added))

    def put(
        self, table: LakeTable, sizes: Sequence[int], day: str = DAY, *, owner: str = "etl", branch: str = ""
    ) -> int:
        instant = self.open(table, days=[day], owner=owner, branch=branch)
        return self.commit(table, instant, sizes, day).version

    def reference(
        self, table: LakeTable, name: str, kind: catalog_pb2.ReferenceKind.ValueType, version: int = 0
    ) -> None:
        draft = ReferenceDraft(name, kind, from_version=version)
        self.service.timeline.references.create(table, draft)


def fill(service: Service, attack: str = ATTACK) -> WebLake:
    """The tables ``sales.orders`` (with a history), ``sales.clicks`` (small files) and, with an attack,
    ``sales.hostile``."""
    lake = WebLake(service, attack)
    lake.database("sales")
    with caller.named(lambda: "ann@warehouse"):
        _orders(lake)
    clicks = lake.table("clicks")
    for _ in range(3):
        lake.put(clicks, [20_000] * 10, owner="collector")
    if attack == ATTACK:
        hostile = lake.table("hostile", note=ATTACK)
        lake.put(hostile, [MEGA], day=ATTACK, owner=ATTACK)
    return lake


STRANGE = "\u202eevil\u200b\n'\"" + "w" * 1_000
"""Turns what follows it around, has a line feed, quotes, and no place to break."""


def strange(lake: WebLake) -> str:
    """The table ``sales.strange``, whose texts are. Returns the name of its partition."""
    table = lake.table("strange", **{"line": "a\nb", "long": "x" * 4_000, STRANGE: STRANGE})
    lake.put(table, [MEGA], day=STRANGE, owner=STRANGE[:200])
    lake.open(table, days=[STRANGE], owner=STRANGE[:200], timeout_ms=1)
    given_up = lake.open(table, owner=STRANGE[:200])
    lake.service.timeline.rollback(table, given_up, STRANGE)
    snapshots = lake.service.snapshots
    loaded = snapshots.snapshot("hive", "sales", "strange", SnapshotReference())
    return str(loaded.snapshot.parts[0].partition_codes[1][0])


def _orders(lake: WebLake) -> None:
    orders = lake.table("orders")
    lake.put(orders, [130 * MEGA, 90 * MEGA], "2026-11-20")
    lake.put(orders, [120 * MEGA], "2026-11-21")
    lake.reference(orders, "audited", catalog_pb2.TAG, 2)
    lake.reference(orders, "dev", catalog_pb2.BRANCH, 2)
    late = lake.open(orders, t.OVERWRITE_PARTITIONS, ["2026-11-19"], owner="late job")
    lake.put(orders, [140 * MEGA, 2 * MEGA, MEGA // 2])
    lake.put(orders, [100 * MEGA], branch="dev", owner="bob")
    with pytest.raises(CommitConflict):  # it has read less than what it replaces now
        lake.commit(orders, late, [MEGA])
    lake.open(orders, t.OVERWRITE_PARTITIONS, [DAY], owner="nightly")
    with pytest.raises(CommitConflict):
        lake.open(orders, t.OVERWRITE_PARTITIONS, [DAY], owner="eager")
    lake.open(orders, owner="crashed", timeout_ms=1)
