"""Every gRPC method declares its rank."""

from __future__ import annotations

import pytest

from lakemark_proto.v1 import admin_pb2, catalog_pb2, snapshot_pb2, timeline_pb2
from lakemark_server.admission.ranks import Rank
from lakemark_server.rpc.admin import AdminServicer
from lakemark_server.rpc.catalog import CatalogServicer
from lakemark_server.rpc.declaration import rank_of
from lakemark_server.rpc.snapshot import SnapshotServicer
from lakemark_server.rpc.timeline import TimelineServicer

SERVICERS = {
    "AdminService": (admin_pb2, AdminServicer),
    "CatalogService": (catalog_pb2, CatalogServicer),
    "SnapshotService": (snapshot_pb2, SnapshotServicer),
    "TimelineService": (timeline_pb2, TimelineServicer),
}
RANKS = {
    method.name: rank_of(servicer.__new__(servicer), method.name)  # type: ignore[call-overload]
    for name, (module, servicer) in SERVICERS.items()
    for method in module.DESCRIPTOR.services_by_name[name].methods
}


def test_what_changes_metadata_is_a_write() -> None:
    changes = ("Create", "Drop", "Rename", "Set", "Alter", "Merge", "Open", "Start", "Stage", "Commit", "Rollback")
    ranks = {name: rank for name, rank in RANKS.items() if name.startswith(changes) and name != "SetQuota"}
    assert len(ranks) > len(changes)
    assert set(ranks.values()) == {Rank.WRITE}


def test_heartbeats_and_operators_are_vital() -> None:
    vital = {name for name, rank in RANKS.items() if rank is Rank.VITAL}
    assert vital == {"Heartbeat", "GetQuota", "SetQuota", "ListQuotas"}


def test_a_method_without_a_rank_is_refused() -> None:
    class Servicer:
        def GetTable(self, request: object, context: object) -> None:  # noqa: N802 - as in a proto
            pass

    for name in ("GetTable", "DropTable"):
        with pytest.raises(TypeError, match=rf"Servicer.{name} declares no rank: decorate it with @method\(Rank...\)"):
            rank_of(Servicer(), name)
