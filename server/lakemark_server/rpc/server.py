"""The gRPC server: services, health, reflection, limits."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Final

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from lakemark_proto.v1 import (
    admin_pb2,
    catalog_pb2,
    events_pb2,
    listeners_pb2,
    mounts_pb2,
    optimization_pb2,
    sinks_pb2,
    snapshot_pb2,
    timeline_pb2,
)
from lakemark_server.admission.lanes import LaneUse
from lakemark_server.admission.pressure import InflightBytes
from lakemark_server.admission.tenants import Tenants
from lakemark_server.catalog.service import Catalog
from lakemark_server.events.service import Events
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.host.ports import cannot_listen
from lakemark_server.maintenance.cleaning.cleaner import Cleaner
from lakemark_server.optimization.reads import ReadCounts
from lakemark_server.optimization.service import Optimization
from lakemark_server.rpc import loop
from lakemark_server.rpc.admin import AdminServicer
from lakemark_server.rpc.admission import Receiving
from lakemark_server.rpc.catalog import CatalogServicer
from lakemark_server.rpc.events import EventServicer
from lakemark_server.rpc.lanes import Lanes
from lakemark_server.rpc.listeners import ListenerServicer
from lakemark_server.rpc.methods import Methods
from lakemark_server.rpc.mounts import MountedTables, MountServicer
from lakemark_server.rpc.optimization import OptimizationServicer, OptimizerServicer
from lakemark_server.rpc.sinks import SinkServicer
from lakemark_server.rpc.snapshot import SnapshotServicer
from lakemark_server.rpc.timeline import TimelineServicer
from lakemark_server.sinks.registry import Sinks
from lakemark_server.snapshots.comparisons import Comparer
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline.service import Timeline


def _service(module: ModuleType, name: str) -> ServiceDescriptor:
    service: ServiceDescriptor = module.DESCRIPTOR.services_by_name[name]
    return service


# Requests beyond those that the lanes hold: health, reflection, and requests that are being refused.
_MORE_REQUESTS: Final = 1_000
_HANDSHAKE_MS: Final = 20_000


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Limits on what clients can make the server hold. The defaults are those of ``Settings``."""

    threads: int = 64
    reserved_threads: int = 8
    waiting_max: int = 1_024
    message_bytes_max: int = 64 << 20
    request_s_max: float = 600.0
    watchers_max: int = 1_000
    connections_max: int = 4_096
    idle_s_max: float = 600.0


class GrpcServer:
    """Listens from ``start`` to ``stop``. ``port`` is the port that was taken, even if any free one was asked for."""

    def __init__(
        self,
        catalog: Catalog,
        timeline: Timeline,
        snapshots: Snapshots,
        planner: Planner,
        comparer: Comparer,
        cleaner: Cleaner,
        events: Events,
        sinks: Sinks,
        tenants: Tenants,
        inflight: InflightBytes,
        listeners: ListenerServicer,
        mounts: MountServicer,
        mounted: MountedTables,
        optimization: Optimization,
        reads: ReadCounts,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: GrpcLimits | None = None,
    ) -> None:
        limits = limits or GrpcLimits()
        self._lanes = Lanes(limits.threads, limits.reserved_threads, limits.waiting_max, inflight)
        self._health = health.aio.HealthServicer()
        servicers = {
            _service(catalog_pb2, "CatalogService"): CatalogServicer(catalog, snapshots, timeline, mounted),
            _service(timeline_pb2, "TimelineService"): TimelineServicer(catalog, timeline, comparer, cleaner),
            _service(snapshot_pb2, "SnapshotService"): SnapshotServicer(
                snapshots, planner, limits.message_bytes_max, reads.note
            ),
            _service(admin_pb2, "AdminService"): AdminServicer(catalog.quotas, tenants),
            _service(sinks_pb2, "SinkService"): SinkServicer(sinks),
            _service(events_pb2, "EventService"): EventServicer(events, catalog.quotas.known, limits.watchers_max),
            _service(listeners_pb2, "ListenerService"): listeners,
            _service(mounts_pb2, "MountService"): mounts,
            _service(optimization_pb2, "OptimizationService"): OptimizationServicer(catalog, optimization),
            _service(optimization_pb2, "OptimizerService"): OptimizerServicer(optimization.tasks),
        }
        self._services = tuple(service.full_name for service in servicers)
        methods = Methods(
            servicers,
            self._lanes,
            tenants,
            Receiving(max(1, inflight.most // limits.message_bytes_max)),
            limits.request_s_max,
        )
        try:
            self._server, self.port = loop.run(self._bound(methods, f"{host}:{port}", limits))
        except RuntimeError as error:
            raise cannot_listen("gRPC", host, port, error) from error

    def lane_uses(self) -> list[LaneUse]:
        """How the lanes are used."""
        return self._lanes.uses()

    def start(self) -> None:
        loop.run(self._start())

    def stop(self, grace_s: float = 5.0) -> None:
        """Takes no new requests, and gives running ones ``grace_s`` to finish."""
        loop.run(self._stop(grace_s))
        self._lanes.stop()

    async def _bound(self, methods: Methods, address: str, limits: GrpcLimits) -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(
            handlers=[methods],
            options=[
                ("grpc.max_receive_message_length", limits.message_bytes_max),
                ("grpc.max_send_message_length", limits.message_bytes_max),
                ("grpc.max_metadata_size", 64 << 10),
                # A window does not grow before its message is read: see ``Receiving``.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.http2.lookahead_bytes", 64 << 10),
                ("grpc.so_reuseport", 0),  # a second server on the port is a mistake, not a helper
                # gRPC tells nobody of its connections, so that none can be chosen to go for another: those without a
                # call go soon, and clients open another when they need it.
                ("grpc.max_allowed_incoming_connections", limits.connections_max),
                ("grpc.max_connection_idle_ms", max(1, int(limits.idle_s_max * 1_000))),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ],
            # gRPC refuses further requests before receiving their messages. The lanes hold fewer, and so usually refuse
            # first, with a reason.
            maximum_concurrent_rpcs=3 * (limits.threads + limits.waiting_max) + limits.watchers_max + _MORE_REQUESTS,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        return server, server.add_insecure_port(address)

    async def _start(self) -> None:
        await self._server.start()
        for name in ("", *self._services):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def _stop(self, grace_s: float) -> None:
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)
