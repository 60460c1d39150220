"""One service process: the store, the domains, and the two protocols in front of them.

The only place that knows all parts; everything else is handed what it needs.
"""

from __future__ import annotations

import gc
import ipaddress
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from itertools import chain
from types import FrameType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import structlog

from lakemark_core import storage
from lakemark_core.errors import InvalidArgument, LakemarkError, NotFound
from lakemark_server.access import passwords
from lakemark_server.access.tokens import DelegationTokens, TokenLimits
from lakemark_server.admission.pressure import InflightBytes
from lakemark_server.admission.quotas import Quotas
from lakemark_server.admission.tenants import Tenants
from lakemark_server.backup import refuse_half_restored
from lakemark_server.catalog import earlier_places
from lakemark_server.catalog.dropped_tables import Size
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.doors.service import Doors
from lakemark_server.events.service import Events
from lakemark_server.events.upkeep import EventRetention
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.host import cores, descriptors, logs, memory, ports
from lakemark_server.host.scrape_server import ScrapeServer
from lakemark_server.kv import Store, backend_of, open_store, public_url
from lakemark_server.listeners.registry import Listeners
from lakemark_server.maintenance.base_folder import BaseFolder
from lakemark_server.maintenance.cleaning.cleaner import Cleaner
from lakemark_server.maintenance.housekeeping import Housekeeping
from lakemark_server.maintenance.sweeper import Round, Sweeper
from lakemark_server.mounts.registry import Mounts
from lakemark_server.optimization.assessments import Assessor
from lakemark_server.optimization.generator import PlanGenerator
from lakemark_server.optimization.leader import PlannerThread
from lakemark_server.optimization.reads import ReadCounts
from lakemark_server.optimization.service import Optimization
from lakemark_server.optimization.tasks import Tasks
from lakemark_server.ownership import Ownership
from lakemark_server.rpc.listeners import ListenerServicer
from lakemark_server.rpc.mounts import MountServicer
from lakemark_server.rpc.server import GrpcLimits, GrpcServer
from lakemark_server.service_metrics import EventMetrics, LaneMetrics
from lakemark_server.settings import WEB_PORT, Settings
from lakemark_server.sinks.registry import Sinks
from lakemark_server.sinks.runner import SinkRunner
from lakemark_server.snapshots.base_builds import Thresholds
from lakemark_server.snapshots.comparisons import Comparer
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.store import event_log, leases, store_format
from lakemark_server.store.mutations import Mutations
from lakemark_server.timeline.service import Timeline
from lakemark_server.transactions.limits import TransactionLimits
from lakemark_server.transactions.service import Transactions

if TYPE_CHECKING:
    from lakemark_hms.admission import Admission
    from lakemark_hms.bridge import HmsBridge
    from lakemark_hms.facet import LakeFacet
    from lakemark_hms.federation.mounted import Mounted
    from lakemark_hms.listener.runner import Domains
    from lakemark_hms.tokens import TokenDesk
    from lakemark_hms.wire.sasl import Conversation, Mechanisms
    from lakemark_hms.wire.security import Security
    from lakemark_web.server import WebServer

STOP_S: Final = 10.0
"""Running requests get so long to finish when the service stops, at all ports at once."""

_FOLD_CACHE_BYTES: Final = 32 << 20
_OPTIMIZER_CACHE_BYTES: Final = 64 << 20
_SURVEY_CACHE_BYTES: Final = 32 << 20

_log = structlog.get_logger(__name__)


class Service:
    """Everything of one process. ``start`` listens; ``stop`` finishes what runs and closes the store."""

    def __init__(self, settings: Settings, store: Store | None = None, clock: ClockMs = now_ms) -> None:
        self.settings = settings
        storage.configure(settings.storage)
        self._hms_security = self._security()
        ports.check_free("gRPC", settings.host, settings.grpc_port)
        if settings.hms_enabled:
            ports.check_free("HMS", settings.host, settings.hms_port, shared=settings.hms_shared_ports)
        if settings.hms_engine_port is not None:
            engine_port, shared = settings.hms_engine_port, settings.hms_shared_ports
            ports.check_free("HMS-engine", settings.host, engine_port, shared=shared)
        self._connections = descriptors.connection_limits(
            {
                "grpc": settings.grpc_connections_max,
                "hms": settings.hms_connections_max if settings.hms_enabled else 0,
                "engine": 0 if settings.hms_engine_port is None else settings.hms_connections_max,
                "web": settings.web_connections_max if settings.web_enabled else 0,
            }
        )
        if settings.metrics_port is not None:
            ports.check_free("metrics", settings.metrics_host, settings.metrics_port)
        if settings.web_enabled and settings.web_port is not None:
            ports.check_free("web", settings.web_host, settings.web_port)
        self.store = store or open_or_make(settings.store)
        try:
            refuse_half_restored(self.store)
            store_format.ensure(self.store)
        except LakemarkError:
            self.store.close()
            raise
        self.quotas = Quotas(self.store, settings.quotas, cache_s=settings.quota_cache_s, clock=clock)
        self.tenants = Tenants(self.quotas.known)
        self.inflight = InflightBytes(settings.max_inflight_bytes)
        self.snapshots = Snapshots(self.store, settings.snapshot_cache_bytes)
        ownership = Ownership(
            [settings.warehouse_uri, *settings.owned_roots],
            backend_of(settings.store).files(settings.store),
            own_new_databases=settings.own_new_databases,
        )
        earlier_places.fill(self.store, ownership.bounds.roots)
        self.catalog = Catalog(
            self.store,
            settings.warehouse_uri,
            clock,
            self.quotas,
            dropped_retain_ms=int(settings.dropped_retain_s * 1_000),
            measure=self._measured,
            ownership=ownership,
            client_catalogs=settings.client_catalogs,
        )
        self.catalog.ensure_default_database()
        self.timeline = Timeline(self.store, self.snapshots, clock, self.quotas)
        transaction_limits = TransactionLimits(timeout_ms=max(1, int(settings.txn_timeout_s * 1_000)))
        self.transactions = Transactions(self.catalog.mutations, transaction_limits)
        self.doors = Doors(
            self.store,
            self.timeline,
            self.snapshots,
            clock,
            int(settings.door_doubt_s * 1_000),
            settings.door_rewrite_bytes_max,
        )
        self.comparer = Comparer(self.store, self.snapshots, self.timeline.log)
        self.cleaner = Cleaner(self.store, clock, self.snapshots)
        self.planner = Planner(self.snapshots.cache)
        retention = EventRetention(int(settings.event_retain_s * 1_000), settings.event_retain_bytes)
        self.events = Events(self.store, retention, clock)
        self.sinks = Sinks(self.store, self.events.log, self.events.consumers, clock, settings.sinks.policy)
        self.listeners = Listeners(self.store, self.events.log, self.events.consumers, clock)
        self.mounts = Mounts(self.store, clock)
        self.optimization = Optimization(self.store, self.snapshots, clock)
        self._reads = ReadCounts(self.store, clock)
        self._mounted = self._mounted_databases()
        mirrored = self._mirrored(clock)
        self._listener_runners = mirrored.runners(settings.listener_interval_s, settings.listener_lease_s)
        self.grpc = GrpcServer(
            self.catalog,
            self.timeline,
            self.snapshots,
            self.planner,
            self.comparer,
            self.cleaner,
            self.events,
            self.sinks,
            self.tenants,
            self.inflight,
            ListenerServicer(self.listeners, mirrored.comparison()),
            MountServicer(self.mounts),
            self._mounted,
            self.optimization,
            self._reads,
            host=settings.host,
            port=settings.grpc_port,
            limits=GrpcLimits(
                threads=settings.grpc_threads,
                reserved_threads=settings.grpc_reserved_threads,
                waiting_max=settings.grpc_waiting_max,
                message_bytes_max=settings.grpc_message_bytes_max,
                request_s_max=settings.request_s_max,
                watchers_max=settings.grpc_watchers_max,
                connections_max=self._connections["grpc"],
                idle_s_max=settings.grpc_idle_s_max,
            ),
        )
        self._warehouse = Warehouse(self.catalog)
        self._hms_admission = self._admission()
        self._token_desk = self._tokens()
        self.hms, self.engine = self._bridges()
        self._sweeper = Sweeper(
            self.store,
            clock,
            settings.sweep_interval_s,
            lambda store: self._housekeeping(store, clock, retention, transaction_limits),
        )
        self._folder = BaseFolder(
            self.store,
            Snapshots(self.store, _FOLD_CACHE_BYTES),  # what a fold reads once should not push out what plans need
            clock,
            settings.fold_interval_s,
            Thresholds(settings.fold_versions, settings.fold_files),
            int(settings.fold_grace_s * 1_000),
        )
        self._optimizer = self._plan_generator(clock, retention) if settings.optimizer else None
        self._sink_runner = SinkRunner(self.store, clock, settings.sinks, self.events.feed)
        self.metrics = None if settings.metrics_port is None else self._scraped(settings.metrics_port)
        self.web = self._web(clock) if settings.web_enabled else None

    def _housekeeping(
        self, store: Store, clock: ClockMs, retention: EventRetention, transaction_limits: TransactionLimits
    ) -> Round:
        settings = self.settings
        housekeeping = Housekeeping(
            store,
            clock,
            self.catalog,
            Timeline(store, self.snapshots, clock),
            Cleaner(store, clock, self.snapshots),
            request_retain_ms=int(settings.request_retain_s * 1_000),
            clean_interval_ms=int(settings.clean_interval_s * 1_000),
            clean_grace_ms=int(settings.clean_grace_s * 1_000),
            event_retention=retention,
            transaction_limits=transaction_limits,
            tokens=DelegationTokens(Mutations(store, clock), self._token_limits),
        )
        tasks = Tasks(store, clock)

        def round_() -> list[tuple[int, int]]:
            lost = housekeeping.round()
            tasks.end_overdue()  # workers and tasks are given up also if no process plans
            return lost

        return round_

    def _plan_generator(self, clock: ClockMs, retention: EventRetention) -> PlannerThread:
        snapshots = Snapshots(self.store, _OPTIMIZER_CACHE_BYTES)  # looks should not push out what plans need

        def made(store: Store) -> PlanGenerator:
            return PlanGenerator(
                store,
                clock,
                Timeline(store, self.snapshots, clock, self.quotas),
                Assessor(store, snapshots, clock),
                self.events.log,
                Events(store, retention, clock).consumers,
            )

        return PlannerThread(self.store, clock, made, self.settings.optimizer_interval_s)

    def _scraped(self, port: int) -> ScrapeServer:
        lanes = {"grpc": self.grpc.lane_uses} | {name: bridge.lane_uses for name, bridge in self._listening()}
        measured = (LaneMetrics(lanes), EventMetrics(self.store, self.events, self.sinks, self.listeners))
        return ScrapeServer(
            self.settings.metrics_host,
            port,
            lambda: chain.from_iterable(part.families() for part in measured),
            lambda: self.store.read(event_log.epoch),
        )

    def _web(self, clock: ClockMs) -> WebServer:
        from lakemark_web.connection_limits import ConnectionLimits
        from lakemark_web.domains import Domains, ProcessFacts
        from lakemark_web.server import WebServer

        given = self.settings
        facts = ProcessFacts(
            version=version_text(),
            pid=os.getpid(),
            host=socket.gethostname(),
            started_ms=clock(),
            store=public_url(given.store),
            addresses={"gRPC": self.grpc_address, "Metastore": self.hms_uri, "Metrics": self.metrics_url},
        )
        domains = Domains(
            clock=clock,
            catalog=self.catalog,
            warehouse=Warehouse(self.catalog),
            timeline=self.timeline,
            snapshots=self.snapshots,
            survey_snapshots=Snapshots(self.store, _SURVEY_CACHE_BYTES),
            events=self.events,
            sinks=self.sinks,
            listeners=self.listeners,
            mounts=self.mounts,
            transactions=self.transactions,
            leases=lambda limit: self.store.read(lambda tx: leases.listed(tx, limit)),
            optimization=self.optimization,
            process=facts,
        )
        limits = ConnectionLimits(self._connections["web"], given.web_peer_connections_max)
        return WebServer(
            domains,
            given.web_host,
            given.web_port,
            WEB_PORT,
            given.web_hosts,
            limits,
            actions=given.web_actions,
        )

    def _mounted_databases(self) -> Mounted:
        from lakemark_hms.federation.mounted import Mounted

        return Mounted(self.mounts)

    def _mirrored(self, clock: ClockMs) -> Domains:
        from lakemark_hms.listener.runner import Domains

        return Domains(
            self.store,
            clock,
            self.catalog,
            Warehouse(self.catalog),
            self.snapshots,
            self.events.log,
            self.events.feed,
            self.events.consumers,
            self.listeners,
            self.settings.engine_schemes,
        )

    def _measured(self, catalog: str, database: str, name: str) -> Size:
        snapshots = self.snapshots
        snapshot = snapshots.again(lambda: snapshots.snapshot(catalog, database, name, SnapshotReference()).snapshot)
        return Size(snapshot.version, snapshot.files, snapshot.size_bytes)

    @property
    def grpc_address(self) -> str:
        return f"{self.settings.host}:{self.grpc.port}"

    @property
    def hms_uri(self) -> str:
        """ "" if the Hive Metastore protocol is switched off."""
        return f"thrift://{self.settings.host}:{self.hms.port}" if self.hms else ""

    @property
    def engine_uri(self) -> str:
        """ "" if there is no port for engines other than Spark."""
        return f"thrift://{self.settings.host}:{self.engine.port}" if self.engine else ""

    @property
    def metrics_url(self) -> str:
        """ "" if there is no port for Prometheus."""
        return f"http://{self.settings.metrics_host}:{self.metrics.port}/metrics" if self.metrics else ""

    @property
    def web_url(self) -> str:
        """ "" if the web page is switched off."""
        return self.web.url if self.web else ""

    def start(self) -> None:
        self.grpc.start()
        for _, bridge in self._listening():
            bridge.start()
        self._sweeper.start()
        self._folder.start()
        self._reads.start()
        self.doors.start()
        if self._optimizer:
            self._optimizer.start()
        self._sink_runner.start()
        self._listener_runners.start()
        if self.metrics:
            self.metrics.start()
        if self.web:
            self.web.start()
        _log.info(
            "ready",
            grpc=self.grpc_address,
            hms=self.hms_uri,
            engine=self.engine_uri,
            metrics=self.metrics_url,
            web=self.web_url,
            store=public_url(self.settings.store),
            warehouse=self.settings.warehouse_uri,
        )

    def stop(self) -> None:
        if self.web:
            self.web.stop()
        if self.metrics:
            self.metrics.stop()
        if self._optimizer:
            self._optimizer.stop()
        self._reads.stop()
        self.doors.stop()
        self._sink_runner.stop()  # before what they read from ends: they note how far they are
        self._listener_runners.stop()
        self.events.close()
        with ThreadPoolExecutor() as pool:
            stopping = [pool.submit(bridge.stop, STOP_S) for _, bridge in self._listening()]
            self.grpc.stop(STOP_S)
        for port in stopping:
            port.result()
        self._sweeper.stop()
        self._folder.stop()
        self.quotas.close()
        self.store.close()

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _listening(self) -> list[tuple[str, HmsBridge]]:
        """The ports of the Metastore protocol that there are, with the names of their lanes in metrics."""
        named = (("hms", self.hms), ("engine", self.engine))
        return [(name, bridge) for name, bridge in named if bridge is not None]

    def _bridges(self) -> tuple[HmsBridge | None, HmsBridge | None]:
        """For Spark and Hive, and for other engines."""
        from lakemark_hms.lake.facet import EngineFacet, SparkFacet

        given = self.settings
        if not given.hms_enabled and given.hms_engine_port is None:
            return None, None
        spark, engine = (
            facet(self.snapshots, given.engine_schemes, self._reads.note) for facet in (SparkFacet, EngineFacet)
        )
        return (
            self._bridge(spark, given.hms_port, "hms") if given.hms_enabled else None,
            None if given.hms_engine_port is None else self._bridge(engine, given.hms_engine_port, "engine"),
        )

    def _admission(self) -> Admission:
        from lakemark_hms.admission import Admission

        return Admission(self.tenants, self.inflight, self.settings.request_s_max)

    def _security(self) -> Security:
        """What clients of the Metastore protocol have to prove. Raises InvalidArgument for settings that cannot be."""
        from lakemark_hms.wire.layers import Certificates
        from lakemark_hms.wire.security import Security

        given = self.settings
        mechanisms = self._mechanisms()
        certificates = None
        if given.hms_tls_certificate:
            try:
                certificates = Certificates(given.hms_tls_certificate, given.hms_tls_key, given.hms_tls_client_ca)
            except OSError as error:
                raise InvalidArgument(
                    f"hms_tls_certificate={given.hms_tls_certificate} with its key cannot be used: {error}"
                ) from error
        elif given.hms_tls_key or given.hms_tls_client_ca:
            raise InvalidArgument("hms_tls_key and hms_tls_client_ca need hms_tls_certificate")
        elif "PLAIN" in mechanisms and not _is_loopback(given.host):
            _log.warning("passwords of the Metastore protocol cross the network as they are: set hms_tls_certificate")
        return Security(certificates, mechanisms or None)

    @property
    def _token_limits(self) -> TokenLimits:
        given = self.settings
        return TokenLimits(
            lifetime_ms=max(1, int(given.hms_token_lifetime_s * 1_000)),
            renew_ms=max(1, int(given.hms_token_renew_s * 1_000)),
            of_owner_max=given.hms_tokens_max,
        )

    def _tokens(self) -> TokenDesk | None:
        """Tokens are for those who log in. They protect nothing, so they are none where all has to be protected."""
        from lakemark_hms.principals import service_principal
        from lakemark_hms.tokens import TokenDesk
        from lakemark_hms.wire.security import tokens

        given, security = self.settings, self._hms_security
        if security.mechanisms is None or "auth" not in given.hms_sasl_qop:
            return None
        realm = service_principal(given.hms_kerberos_principal)[1] if given.hms_kerberos_principal else ""
        desk = TokenDesk(DelegationTokens(self.catalog.mutations, self._token_limits), realm)
        self._hms_security = replace(security, mechanisms={**security.mechanisms, **tokens(desk.account)})
        return desk

    def _mechanisms(self) -> Mechanisms:
        """How clients of the Metastore protocol may log in. Raises InvalidArgument for settings that cannot be."""
        from lakemark_hms.wire.security import kerberos, plain

        given = self.settings
        mechanisms: dict[str, Callable[[], Conversation]] = {}
        check = passwords.check_of(given.users_file, given.password_check)
        if ("plain" in given.hms_auth) != (check is not None):
            raise InvalidArgument("hms_auth=plain and users_file or password_check go together: set both or none")
        if check is not None:
            mechanisms |= plain(check, check.known) if isinstance(check, passwords.UsersFile) else plain(check)
        principal, keytab = given.hms_kerberos_principal, given.hms_kerberos_keytab
        if len({"kerberos" in given.hms_auth, bool(principal), bool(keytab)}) > 1:
            raise InvalidArgument(
                "hms_auth=kerberos, hms_kerberos_principal and hms_kerberos_keytab go together: set all or none"
            )
        if principal:
            mechanisms |= kerberos(principal, keytab, given.hms_sasl_qop)
        if "auth" not in given.hms_sasl_qop and mechanisms.keys() != {"GSSAPI"}:
            raise InvalidArgument("hms_sasl_qop without auth is for hms_auth=kerberos alone: PLAIN protects nothing")
        return mechanisms

    def _bridge(self, lake: LakeFacet, port: int, kind: str) -> HmsBridge:
        from lakemark_hms.bridge import HmsBridge
        from lakemark_hms.doors.facade import DoorFacade
        from lakemark_hms.notifications.formats import BY_SETTING
        from lakemark_hms.wire.limits import ServerSettings

        given = self.settings
        limits = ServerSettings(
            connections_max=self._connections[kind],
            peer_connections_max=given.hms_peer_connections_max,
            workers=given.hms_threads,
            reserved_workers=given.hms_reserved_threads,
            waiting_max=given.hms_waiting_max,
            idle_seconds_max=given.hms_idle_s_max,
            received_bytes_max=given.max_inflight_bytes,
            shared_port=given.hms_shared_ports,
        )
        return HmsBridge(
            self.catalog,
            lake,
            host=given.host,
            port=port,
            settings=limits,
            admission=self._hms_admission,
            warehouse=self._warehouse,
            timeline=self.timeline,
            transactions=self.transactions,
            engine_schemes=given.engine_schemes,
            notification_format=BY_SETTING[given.hms_notification_format],
            partitions_max=given.hms_partitions_max,
            mounted=self._mounted,
            kept_bytes_max=given.hms_kept_bytes_max,
            # What engines other than Spark do when a statement ends is not known.
            doors=DoorFacade(self.doors, self.snapshots, given.engine_schemes) if kind == "hms" else None,
            security=self._hms_security,
            tokens=self._token_desk,
        )


def version_text() -> str:
    """The release of this service; "unknown" in a checkout that is not installed."""
    try:
        return metadata.version("lakemark")
    except metadata.PackageNotFoundError:
        return "unknown"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_or_make(url: str) -> Store:
    """Opens the store at ``url``, and makes its place first if need be. Raises what ``open_store`` raises."""
    backend_of(url).make_place(url)
    return open_store(url)


def open_existing(url: str, *, read_only: bool = False) -> Store:
    """Opens the store at ``url`` if there is one. Raises NotFound, and what ``open_store`` raises."""
    if not backend_of(url).exists(url):
        raise NotFound(f"there is no store at {url}; name one with --store or LAKEMARK_STORE")
    return open_store(url, read_only=read_only)


def main(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Prints one line with the addresses on standard output when it is ready."""
    memory.configure()
    logs.configure(settings.log_format, settings.log_level)
    if settings.cores == "one":
        cores.keep_to_one()
    # Where pandas is installed, pyarrow imports it with its first array: no request should wait for that.
    pa.array([0])
    service = Service(settings)
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        asked.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    service.start()
    # What is there now stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    scraped = f"metrics={service.metrics_url} " if service.metrics else ""
    engine = f"engine={service.engine_uri} " if service.engine else ""
    page = f"web={service.web_url} " if service.web else ""
    print(
        f"lakemark ready grpc={service.grpc_address} hms={service.hms_uri} {engine}{scraped}{page}pid={os.getpid()}",
        flush=True,
    )
    asked.wait()
    _log.info("stopping")
    service.stop()
    sys.stdout.flush()
