"""The logs of events: they can be read from their beginning, and their marks are where they say."""

from __future__ import annotations

from typing import cast

from lakemark_core.errors import LakemarkError
from lakemark_proto.store.v1.store_pb2 import EventMark
from lakemark_server.events.log import EventLog
from lakemark_server.kv import Store, keys_below
from lakemark_server.store.keyspace import EVENT_ENDS, EVENT_MARKS
from lakemark_server.verify.lake import Problems


def check_logs(store: Store) -> Problems:
    """A sentence for each violation, of all catalogs."""
    return [problem for (name,), _ in keys_below(store, EVENT_ENDS) for problem in _check_log(store, str(name))]


def _check_log(store: Store, catalog: str) -> Problems:
    marks = {
        cast(int, items[0]): EventMark.FromString(value) for items, value in keys_below(store, EVENT_MARKS, catalog)
    }
    try:
        places = _places(store, catalog)
    except LakemarkError as error:
        return [f"the log of events of catalog {catalog!r} cannot be read: {error.message}"]
    return [
        f"the mark at offset {offset} of the events of catalog {catalog!r} names another place"
        for offset, mark in marks.items()
        if (mark.offset, mark.key) != (offset, places.get(offset))
    ]


def _places(store: Store, catalog: str) -> dict[int, bytes]:
    """The ends of all batches, by the offset of the last event before each."""
    log = EventLog(store)
    position = log.begin(catalog, log.extent(catalog).first - 1)
    places = {position.offset: position.key}
    while True:
        page = log.page(catalog, position)
        places.update(page.places)
        if page.whole:
            return places
        position = page.position
