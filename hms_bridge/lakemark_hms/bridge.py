"""The Hive Metastore facade as one object: handlers over the domains, behind a socket server."""

from __future__ import annotations

from collections.abc import Mapping

from lakemark_core import storage
from lakemark_hms.admission import Admission, lane_of
from lakemark_hms.doors.facade import DoorFacade
from lakemark_hms.errors import to_declared
from lakemark_hms.facet import LakeFacet
from lakemark_hms.federation.handlers import with_mounts
from lakemark_hms.federation.mounted import Mounted
from lakemark_hms.handlers import all_handlers
from lakemark_hms.kept_answers import BYTES_MAX_DEFAULT, KEPT, KeptAnswers
from lakemark_hms.notifications.formats import JSON, MessageFormat
from lakemark_hms.services import Services
from lakemark_hms.tokens import TokenDesk
from lakemark_hms.wire.dispatch import Dispatcher, run_all
from lakemark_hms.wire.limits import ServerSettings
from lakemark_hms.wire.security import Security
from lakemark_hms.wire.server import HmsServer
from lakemark_server.admission.lanes import LaneUse
from lakemark_server.catalog import named_content
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.grants.service import Grants
from lakemark_server.host.ports import cannot_listen
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline.service import Timeline
from lakemark_server.transactions.service import Transactions


class HmsBridge:
    """Serves the Metastore protocol; ``port`` 0 takes a free one. Use as a context manager, or start and stop.

    Without a ``lake`` facet, lake tables can be created and dropped but not read. ``config`` has the answers of
    ``get_config_value``, to which the warehouse directory is added. ``admission`` limits what tenants may request;
    None: no limits. ``mounted``: databases of outside Metastores. ``security``: what clients must prove first.
    ``timeline``, ``transactions``: the process's own, if it has them. ``engine_schemes``, ``notification_format``,
    ``partitions_max``, ``doors``, ``tokens``: see ``Services``. Answers of up to ``kept_bytes_max`` bytes are kept
    (``kept_answers``; 0: none). Raises Unavailable if the port is taken.
    """

    def __init__(
        self,
        catalog: Catalog,
        lake: LakeFacet | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: ServerSettings | None = None,
        config: Mapping[str, str] | None = None,
        warehouse: Warehouse | None = None,
        admission: Admission | None = None,
        timeline: Timeline | None = None,
        transactions: Transactions | None = None,
        engine_schemes: Mapping[str, str] | None = None,
        notification_format: MessageFormat = JSON,
        partitions_max: int = 0,
        mounted: Mounted | None = None,
        kept_bytes_max: int = BYTES_MAX_DEFAULT,
        doors: DoorFacade | None = None,
        tokens: TokenDesk | None = None,
        security: Security | None = None,
    ) -> None:
        schemes = engine_schemes or {}
        known = {"hive.metastore.warehouse.dir": storage.in_scheme(catalog.warehouse, schemes)} | dict(config or {})
        timeline = timeline or Timeline(catalog.store, Snapshots(catalog.store), catalog.clock)
        self.services = Services(
            catalog,
            warehouse or Warehouse(catalog),
            timeline,
            transactions or Transactions(catalog.mutations),
            Grants(catalog.mutations, named_content.require),
            lake,
            known,
            schemes,
            notification_format,
            partitions_max,
            doors,
            tokens,
        )
        handlers = all_handlers(self.services)
        if mounted is not None:
            handlers = with_mounts(handlers, mounted)
        self._kept: KeptAnswers | None = None
        if kept_bytes_max:
            kept = self._kept = KeptAnswers(catalog.store, kept_bytes_max, admission=admission, mounted=mounted)
            handlers = {name: kept.keeping(handler) if name in KEPT else handler for name, handler in handlers.items()}
        run = admission.run if admission else run_all
        dispatcher = Dispatcher(handlers, to_declared, doors.watched(run) if doors is not None else run)
        try:
            self._server = HmsServer(
                dispatcher,
                host,
                port,
                settings,
                lane_of=lane_of,
                room=admission,
                ready=self._kept,
                security=security,
            )
        except OSError as error:
            raise cannot_listen("HMS", host, port, error) from error

    @property
    def port(self) -> int:
        return self._server.port

    def lane_uses(self) -> list[LaneUse]:
        """How the lanes are used."""
        every = self._server.lanes
        lanes = {"main": every.main, "reads": every.reads, "vital": every.vital, "slow": every.slow}
        return [LaneUse(name, lane.threads, lane.pending, lane.begun) for name, lane in lanes.items()]

    def start(self) -> None:
        self._server.start()

    def stop(self, deadline_seconds: float = 10.0) -> None:
        """See ``HmsServer.stop``."""
        self._server.stop(deadline_seconds)

    def __enter__(self) -> HmsBridge:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
