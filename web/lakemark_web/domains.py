"""What the pages are made of: the domains of the service, handed over by the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.context.clock import ClockMs
from lakemark_server.events.service import Events
from lakemark_server.listeners.registry import Listeners
from lakemark_server.mounts.registry import Mounts
from lakemark_server.optimization.service import Optimization
from lakemark_server.sinks.registry import Sinks
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.leases import Lease
from lakemark_server.timeline.service import Timeline
from lakemark_server.transactions.service import Transactions


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The process that serves the pages. ``addresses``: by protocol. ``store``: its URL without secrets."""

    version: str
    pid: int
    host: str
    started_ms: int
    store: str
    addresses: dict[str, str]


@dataclass(frozen=True, slots=True)
class Domains:
    """What the process hands over.

    ``survey_snapshots``: with a small cache of its own, so that looking at all tables pushes nothing out that readers
    need. ``leases``: at most so many of them.
    """

    clock: ClockMs
    catalog: Catalog
    warehouse: Warehouse
    timeline: Timeline
    snapshots: Snapshots
    survey_snapshots: Snapshots
    events: Events
    sinks: Sinks
    listeners: Listeners
    mounts: Mounts
    transactions: Transactions
    leases: Callable[[int], Sequence[Lease]]
    optimization: Optimization
    process: ProcessFacts
