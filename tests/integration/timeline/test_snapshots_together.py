"""Snapshots of several tables as of one moment, over a real gRPC server and with the Python client."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark import Client, SnapshotOf
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.process import Service
from lakemark_server.snapshots.service import SnapshotReference
from tests.lakes import file, open_lake
from tests.wire import Wire, refused


@pytest.fixture
def other(wire: Wire, service: Service) -> Wire:
    """A second table with no versions. The table of ``wire`` has version 1 on main and version 2 on branch dev."""
    wire.create()
    wire.commit(one := wire.open().instant, file(one, "g1"))
    wire.catalog.CreateReference(c.CreateReferenceRequest(table=wire.table, name="dev", kind=c.BRANCH))
    wire.commit(two := wire.open(branch="dev").instant, file(two, "g2"))
    opened = Wire(service.grpc_address, f"{wire.table.table}_other")
    opened.create()
    return opened


def test_snapshots_of_several_tables_and_branches(wire: Wire, other: Wire) -> None:
    asked = [
        s.GetSnapshotRequest(table=other.table),
        s.GetSnapshotRequest(table=wire.table, at=s.SnapshotReference(branch="dev")),
        s.GetSnapshotRequest(table=wire.table),
        s.GetSnapshotRequest(table=wire.table, at=s.SnapshotReference(version=0)),
    ]
    found = wire.snapshots.GetSnapshots(s.GetSnapshotsRequest(snapshots=asked)).snapshots
    assert [(one.table.table, one.branch, one.version, one.files) for one in found] == [
        (other.table.table, "main", 0, 0),
        (wire.table.table, "dev", 2, 2),
        (wire.table.table, "main", 1, 1),
        (wire.table.table, "main", 0, 0),
    ]
    assert list(found) == [wire.snapshots.GetSnapshot(one) for one in asked]


def test_one_that_is_not_there_refuses_all(wire: Wire, other: Wire) -> None:
    def ask(*names: p.TableName) -> None:
        wanted = [s.GetSnapshotRequest(table=name) for name in names]
        wire.snapshots.GetSnapshots(s.GetSnapshotsRequest(snapshots=wanted))

    with refused("table_not_found", "nothing"):
        ask(wire.table, p.TableName(database="default", table="nothing"))
    with refused("invalid_argument", "not named"):
        ask(wire.table, p.TableName())
    for number in (0, 101):
        with refused("invalid_argument", "1 to 100"):
            ask(*[wire.table] * number)
    ask(*[wire.table] * 100)


def test_by_the_client(wire: Wire, other: Wire, service: Service) -> None:
    one, two = f"default.{wire.table.table}", f"default.{other.table.table}"
    with Client(service.grpc_address) as client:
        found = client.snapshots([two, SnapshotOf(one, branch="dev"), SnapshotOf(one, version=0)])
        assert [snapshot.version for snapshot in found] == [0, 2, 0]
        assert found[1] == client.snapshot(one, branch="dev")


def test_they_are_looked_up_in_one_read_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit between two reads would make the snapshots inconsistent."""
    with open_lake(tmp_path) as lake:
        tables = [lake.table(name) for name in ("a", "b")]
        read = lake.store.read

        def then_commit(body):  # type: ignore[no-untyped-def]
            answer = read(body)
            monkeypatch.setattr(lake.store, "read", read)
            for table in tables:
                lake.put(table, [1])
            monkeypatch.setattr(lake.store, "read", then_commit)
            return answer

        monkeypatch.setattr(lake.store, "read", then_commit)
        found = lake.snapshots.resolve_together([("", "default", name, SnapshotReference()) for name in ("a", "b")])
        assert [one.version for one in found] == [0, 0]
