"""Directories that are closed: their files are being deleted or moved, so that nothing may begin in them.

A directory is closed in the transaction that decides on the change, and opened again when the files are gone. What a
process leaves closed because it died is found by its age.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import cast

from lakemark_core import storage
from lakemark_core.errors import LocationTaken
from lakemark_proto.store.v1.store_pb2 import ClosedRecord
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.ownership import places
from lakemark_server.store.keyspace import CLOSED

_EARLIER_BYTES = 8  # of a value that earlier builds wrote: since when

_DOING = {
    ClosedRecord.DELETED: "is still being deleted after something was dropped",
    ClosedRecord.EMPTIED: "is being emptied",
    ClosedRecord.MOVED: "is being moved",
}


def close(tx: Transaction, record: ClosedRecord) -> None:
    """Closes ``record.location``, and of a move its target."""
    for location in filter(None, (record.location, record.target)):
        tx.set(CLOSED.key(places.place_of(location)), record.SerializeToString())


def reopen(tx: Transaction, record: ClosedRecord) -> None:
    """Opens what ``close`` closed, which need not be closed any more."""
    for location in filter(None, (record.location, record.target)):
        for place in {places.place_of(location), location}:  # earlier builds closed the location as it is
            tx.clear(CLOSED.key(place))


def find(tx: ReadTransaction, location: str) -> ClosedRecord | None:
    """Why the directory itself is closed; None: it is open."""
    for place in {places.place_of(location), location}:
        stored = tx.get(CLOSED.key(place))
        if stored is not None:
            return _parse(place, stored)
    return None


def require_open(tx: ReadTransaction, wanted: Iterable[str], but: Collection[str] = ()) -> None:
    """Raises LocationTaken if one of the places lies in a directory that is closed and none of ``but``."""
    over = sorted({above for place in wanted for above in (place, *storage.places_above(place))} - set(but))
    for place, stored in zip(over, tx.get_many([CLOSED.key(place) for place in over]), strict=True):
        if stored is not None:
            doing = _DOING[_parse(place, stored).why]
            raise LocationTaken(f"{place} {doing}; try again in a moment", location=place)


def any_inside(tx: ReadTransaction, place: str) -> bool:
    """Whether a directory in this one, or this one, is closed."""
    return tx.get(CLOSED.key(place)) is not None or bool(tx.get_range(*CLOSED.range_of_texts(f"{place}/"), limit=1))


def require_not_in_use(tx: ReadTransaction, place: str) -> None:
    """Raises LocationTaken if the directory, one around it or one in it is being emptied or moved at the moment."""
    over = [place, *storage.places_above(place)]
    pairs = list(zip(over, tx.get_many([CLOSED.key(at) for at in over]), strict=True))
    pairs += [
        (cast(str, CLOSED.unpack(key)[-1]), value) for key, value in tx.get_range(*CLOSED.range_of_texts(f"{place}/"))
    ]
    for at, value in pairs:
        why = ClosedRecord.DELETED if value is None else _parse(at, value).why
        if why != ClosedRecord.DELETED:
            raise LocationTaken(f"{at} {_DOING[why]}; try again in a moment", location=at)


def older_than(tx: ReadTransaction, before_ms: int, limit: int) -> list[ClosedRecord]:
    """What was closed before that time, some of it."""
    pairs = tx.get_range(*CLOSED.range(), limit=limit, snapshot=True)
    records = [_parse(cast(str, CLOSED.unpack(key)[-1]), value) for key, value in pairs]
    return [record for record in records if record.since_ms < before_ms]


def _parse(place: str, stored: bytes) -> ClosedRecord:
    if len(stored) == _EARLIER_BYTES:
        return ClosedRecord(since_ms=int.from_bytes(stored, "big"), location=place)
    return ClosedRecord.FromString(stored)
