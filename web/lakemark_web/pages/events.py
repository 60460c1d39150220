"""The latest events of a catalog, and writers that were refused before they began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lakemark_core.errors import EventsTrimmed
from lakemark_proto.v1 import events_pb2
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.events.filters import filter_of, subject_of
from lakemark_web import texts
from lakemark_web.domains import Domains
from lakemark_web.event_texts import EventLine, line_of

EVENTS_SHOWN: Final = 100
LOOKED_AT: Final = 2_000
"""Events that a page with a filter looks at; older ones are on the next."""

REFUSED_SHOWN: Final = 50
KINDS: Final = {
    "": "all kinds",
    "commits": "commits",
    "rolled-back": "rolled back",
    "definitions": "definitions",
    "stopped": "optimizer stopped",
}
_KINDS: Final[dict[str, Sequence[events_pb2.EventKind.ValueType]]] = {
    "commits": [events_pb2.COMMITTED],
    "rolled-back": [events_pb2.INSTANT_ROLLED_BACK],
    "stopped": [events_pb2.OPTIMIZATION_STOPPED],
    "definitions": [
        kind for kind in events_pb2.EventKind.values() if events_pb2.DATABASE_CREATED <= kind < events_pb2.COMMITTED
    ],
}


def view(domains: Domains, catalog: str, pattern: str, kind: str, before: int) -> dict[str, Any]:
    """The events before an offset (0: the latest), newest first. Raises InvalidArgument for a pattern."""
    wanted = filter_of(
        events_pb2.EventFilter(patterns=[pattern.strip()] if pattern.strip() else [], kinds=_KINDS.get(kind, ()))
    )
    log = domains.events.log
    extent = log.extent(catalog)
    end = min(before - 1, extent.last) if before else extent.last
    plain = not pattern.strip() and kind not in _KINDS
    begin = max(extent.first - 1, end - (EVENTS_SHOWN if plain else LOOKED_AT))
    lines: list[EventLine] = []
    if end > begin:
        lines = [line_of(event) for event in _between(domains, catalog, begin, end) if wanted.fits(subject_of(event))]
    # A page ends where the list was cut, or where it looked no further.
    cut = lines[:-EVENTS_SHOWN]
    older = lines[-EVENTS_SHOWN].offset if cut else begin + 1
    return {
        "catalog": catalog,
        "catalogs": domains.catalog.list_catalogs(),
        "lines": lines[-EVENTS_SHOWN:][::-1],
        "older": older if older > extent.first else 0,
        "first": begin + 1,
        "end": end,
        "extent": extent,
        "pattern": pattern,
        "kind": kind,
        "kinds": KINDS,
        "before": before,
        "refused": [
            (one, texts.words(pb.Operation.Name(one.operation)))
            for one in domains.timeline.refusals.newest()[:REFUSED_SHOWN]
        ],
        "process": domains.process,
    }


def _between(domains: Domains, catalog: str, begin: int, end: int) -> list[events_pb2.Event]:
    """Those behind the offset ``begin`` up to ``end``, or what is left of them."""
    log = domains.events.log
    events: list[events_pb2.Event] = []
    try:
        position = log.begin(catalog, begin)
        while True:
            page = log.page(catalog, position)
            events += [event for event in page.events if event.offset <= end]
            position = page.position
            if page.whole or position.offset >= end:
                return events
    except EventsTrimmed:
        return events
