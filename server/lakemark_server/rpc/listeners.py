"""ListenerService over the listeners' registry."""

from __future__ import annotations

from typing import Protocol

import grpc

from lakemark_core.errors import InvalidArgument, UnsupportedOperation
from lakemark_proto.v1 import listeners_pb2 as pb
from lakemark_proto.v1.listeners_pb2_grpc import ListenerServiceServicer
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.names import catalog_name, legal_catalog
from lakemark_server.listeners.registry import Listeners
from lakemark_server.rpc.declaration import method

Context = grpc.ServicerContext


class Comparing(Protocol):
    """Looks at both sides of a listener's objects, which takes the Metastore's protocol."""

    def compare(self, listener: pb.Listener, limit: int) -> pb.CompareListenerResponse:
        """What differs, up to ``limit`` differences (0: the default)."""


class ListenerServicer(ListenerServiceServicer):
    def __init__(self, listeners: Listeners, comparing: Comparing | None) -> None:
        self._listeners = listeners
        self._comparing = comparing

    @method(Rank.WRITE)
    def CreateListener(self, request: pb.CreateListenerRequest, context: Context) -> pb.Listener:
        wanted = pb.Listener(
            catalog=legal_catalog(request.catalog),
            name=request.name,
            uri=request.uri,
            patterns=request.patterns,
            compare_interval_ms=request.compare_interval_ms,
            adopt=request.adopt,
            paused=request.paused,
            owner=request.owner,
        )
        return self._listeners.create(wanted, request.request_id)

    @method(Rank.VITAL)
    def GetListener(self, request: pb.GetListenerRequest, context: Context) -> pb.Listener:
        return self._listeners.describe(catalog_name(request.catalog), request.name)

    @method(Rank.VITAL)
    def ListListeners(self, request: pb.ListListenersRequest, context: Context) -> pb.ListListenersResponse:
        return pb.ListListenersResponse(listeners=self._listeners.list(catalog_name(request.catalog)))

    @method(Rank.READ)
    def CompareListener(self, request: pb.CompareListenerRequest, context: Context) -> pb.CompareListenerResponse:
        if request.limit < 0:
            raise InvalidArgument(f"limit is {request.limit}: it must be 0 (the service's choice) or more")
        listener = self._listeners.get(catalog_name(request.catalog), request.name)
        if self._comparing is None:
            raise UnsupportedOperation("this process does not speak to outside Metastores")
        return self._comparing.compare(listener, request.limit)

    @method(Rank.WRITE)
    def RepairListener(self, request: pb.RepairListenerRequest, context: Context) -> pb.Listener:
        return self._listeners.ask_repair(
            catalog_name(request.catalog), request.name, request.overwrites, request_id=request.request_id
        )

    @method(Rank.VITAL)
    def PauseListener(self, request: pb.PauseListenerRequest, context: Context) -> pb.Listener:
        return self._listeners.pause(
            catalog_name(request.catalog), request.name, paused=True, request_id=request.request_id
        )

    @method(Rank.VITAL)
    def ResumeListener(self, request: pb.ResumeListenerRequest, context: Context) -> pb.Listener:
        return self._listeners.pause(
            catalog_name(request.catalog), request.name, paused=False, request_id=request.request_id
        )

    @method(Rank.WRITE)
    def DropListener(self, request: pb.DropListenerRequest, context: Context) -> pb.DropListenerResponse:
        dropped = self._listeners.drop(
            catalog_name(request.catalog), request.name, if_exists=request.if_exists, request_id=request.request_id
        )
        return pb.DropListenerResponse(dropped=dropped)
