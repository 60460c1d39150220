"""The service itself: processes, leases, locks, open instants, sinks and listeners."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, NamedTuple

from lakemark_core.errors import NotFound
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.timeline.instants.alive import Alive
from lakemark_web import texts
from lakemark_web.domains import Domains

LEASES_SHOWN: Final = 200
LOCKS_SHOWN: Final = 200
INSTANTS_SHOWN: Final = 200


class OpenInstant(NamedTuple):
    """An instant that is requested or inflight. ``database`` and ``table`` are "" if the table is gone."""

    catalog: str
    database: str
    table: str
    instant: int
    operation: str
    state: str
    heard_ms: int
    timeout_ms: int
    lost: bool


def view(domains: Domains, catalog: str) -> dict[str, Any]:
    """What the template shows."""
    now_ms = domains.clock()
    open_now, more = domains.timeline.open_instants()
    silent_first = sorted(open_now, key=lambda one: one[1].deadline_ms)
    locks = list(islice(domains.transactions.locks.shown(), LOCKS_SHOWN + 1))
    leases = domains.leases(LEASES_SHOWN + 1)
    return {
        "catalog": catalog,
        "process": domains.process,
        "instants": [_instant(domains, *one, now_ms) for one in silent_first[:INSTANTS_SHOWN]],
        "instants_left_out": max(0, len(open_now) - INSTANTS_SHOWN),
        "instants_more": bool(more),
        "leases": leases[:LEASES_SHOWN],
        "leases_more": len(leases) > LEASES_SHOWN,
        "locks": locks[:LOCKS_SHOWN],
        "locks_more": len(locks) > LOCKS_SHOWN,
        "sinks": domains.sinks.list(catalog),
        "listeners": domains.listeners.list(catalog),
        "consumers": domains.events.consumers.list(catalog, limit=LEASES_SHOWN),
        "extent": domains.events.log.extent(catalog),
    }


def _instant(domains: Domains, table_id: int, living: Alive, now_ms: int) -> OpenInstant:
    catalog, database, name = "", "", ""
    try:
        record = domains.catalog.lake_record(table_id)
        catalog, database, name = record.catalog, record.database, record.name
    except NotFound:
        pass
    return OpenInstant(
        catalog,
        database,
        name,
        living.instant,
        texts.words(pb.Operation.Name(living.operation)),
        "inflight" if living.inflight else "requested",
        living.deadline_ms - living.timeout_ms,
        living.timeout_ms,
        living.expired(now_ms),
    )
