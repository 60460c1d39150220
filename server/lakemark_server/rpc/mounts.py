"""MountService, and what the catalog's listings need of mounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import grpc

from lakemark_proto.v1 import mounts_pb2 as pb
from lakemark_proto.v1.catalog_pb2 import TableSummary
from lakemark_proto.v1.mounts_pb2_grpc import MountServiceServicer
from lakemark_server.admission.ranks import Rank
from lakemark_server.mounts.registry import CACHE_MS, Mounts
from lakemark_server.rpc.declaration import method

Context = grpc.ServicerContext


class MountedTables(Protocol):
    """Databases that are read through."""

    def names(self, catalog: str) -> Sequence[str]:
        """The names under which databases are mounted, in order."""

    def tables(self, catalog: str, database: str) -> Sequence[TableSummary] | None:
        """The tables of a mounted database, in order of name; None: nothing is mounted there."""


class NothingMounted:
    """Where no outside Metastore can be read."""

    def names(self, catalog: str) -> Sequence[str]:
        return ()

    def tables(self, catalog: str, database: str) -> Sequence[TableSummary] | None:
        return None


class MountServicer(MountServiceServicer):
    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts

    @method(Rank.WRITE)
    def CreateMount(self, request: pb.CreateMountRequest, context: Context) -> pb.Mount:
        wanted = pb.Mount(
            catalog=request.catalog,
            name=request.name,
            uri=request.uri,
            database=request.database,
            cache_ms=request.cache_ms if request.HasField("cache_ms") else CACHE_MS,
            owner=request.owner,
        )
        return self._mounts.create(wanted, request.request_id)

    @method(Rank.READ)
    def GetMount(self, request: pb.GetMountRequest, context: Context) -> pb.Mount:
        return self._mounts.get(request.catalog, request.name)

    @method(Rank.READ)
    def ListMounts(self, request: pb.ListMountsRequest, context: Context) -> pb.ListMountsResponse:
        return pb.ListMountsResponse(mounts=self._mounts.list(request.catalog))

    @method(Rank.WRITE)
    def DropMount(self, request: pb.DropMountRequest, context: Context) -> pb.DropMountResponse:
        dropped = self._mounts.drop(
            request.catalog, request.name, if_exists=request.if_exists, request_id=request.request_id
        )
        return pb.DropMountResponse(dropped=dropped)
