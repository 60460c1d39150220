"""The gRPC server: services, health, reflection, limits."""

from __future__ import annotations

from concurrent import futures
from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from lakemark.errors import Unavailable
from lakemark_proto.v1 import catalog_pb2, snapshot_pb2, timeline_pb2
from lakemark_proto.v1.catalog_pb2_grpc import add_CatalogServiceServicer_to_server
from lakemark_proto.v1.snapshot_pb2_grpc import add_SnapshotServiceServicer_to_server
from lakemark_proto.v1.timeline_pb2_grpc import add_TimelineServiceServicer_to_server
from lakemark_server.catalog.service import Catalog
from lakemark_server.rpc.catalog import CatalogServicer
from lakemark_server.rpc.errors import ErrorInterceptor
from lakemark_server.rpc.snapshot import SnapshotServicer
from lakemark_server.rpc.timeline import TimelineServicer
from lakemark_server.snapshot.planning import Planner
from lakemark_server.snapshot.service import Snapshots
from lakemark_server.timeline.service import Timeline

SERVICES: Final = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (catalog_pb2, "CatalogService"),
        (timeline_pb2, "TimelineService"),
        (snapshot_pb2, "SnapshotService"),
    )
)


class GrpcServer:
    """Listens from ``start`` to ``stop``. ``port`` is the real one."""

    def __init__(
        self,
        catalog: Catalog,
        timeline: Timeline,
        snapshots: Snapshots,
        planner: Planner,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        threads: int = 64,
        message_bytes_max: int = 64 << 20,
    ) -> None:
        self._server = grpc.server(
            futures.ThreadPoolExecutor(threads, thread_name_prefix="grpc"),
            interceptors=[ErrorInterceptor()],
            options=[
                ("grpc.max_receive_message_length", message_bytes_max),
                ("grpc.max_send_message_length", message_bytes_max),
                ("grpc.max_metadata_size", 64 << 10),
                ("grpc.so_reuseport", 0),  # a second server on the port is a mistake, not a helper
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ],
        )
        add_CatalogServiceServicer_to_server(CatalogServicer(catalog, snapshots), self._server)
        add_TimelineServiceServicer_to_server(TimelineServicer(catalog, timeline), self._server)
        add_SnapshotServiceServicer_to_server(SnapshotServicer(snapshots, planner), self._server)
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        try:
            self.port: int = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise Unavailable(
                f"gRPC cannot listen on {host}:{port}; is another program using the port? Choose one with --grpc-port",
                port=str(port),
            ) from error

    def start(self) -> None:
        self._server.start()
        for name in ("", *SERVICES):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace_s: float = 5.0) -> None:
        """Takes no new requests, and gives running ones ``grace_s`` to finish."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait()
