"""Directories that are closed: their files are being deleted or moved, so that nothing may begin in them.

A directory is closed in the transaction that decides on the change, and opened again when the files are gone, by the
worker that closed it. A worker that lives renews its closures (``working``); what one leaves closed because it died is
found by its age, and another one takes it over.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final, cast

from lakemark_core import storage
from lakemark_core.errors import FailedPrecondition, LocationTaken
from lakemark_proto.store.v1.store_pb2 import ClosedRecord
from lakemark_server.kv import ReadTransaction, Store, Transaction, keys_below
from lakemark_server.ownership import places
from lakemark_server.store.keyspace import CLOSED

_EARLIER_BYTES = 8  # of a value that earlier builds wrote: since when

_DOING = {
    ClosedRecord.DELETED: "is still being deleted after something was dropped",
    ClosedRecord.EMPTIED: "is being emptied",
    ClosedRecord.MOVED: "is being moved",
}


WORKER: Final = secrets.token_bytes(8)
"""This process, in the records of what it closes."""


class TakenOver(FailedPrecondition):
    """Another process took this one for dead and goes on with its directory: nothing more must be done there."""

    code = "taken_over"


def close(tx: Transaction, record: ClosedRecord) -> None:
    """Closes ``record.location``, and of a move its target, for this process, which is set in ``record``."""
    record.worker = WORKER
    for place in places_of(record):
        tx.set(CLOSED.key(place), record.SerializeToString())


def reopen(tx: Transaction, records: Collection[ClosedRecord]) -> None:
    """Opens what ``close`` or ``take_over`` closed, as far as it is still closed for the same worker."""
    workers = {record.location: record.worker for record in records}
    for key, stored in _stored(tx, *records):
        if stored.worker == workers.get(stored.location):
            tx.clear(key)


def reopen_own(tx: Transaction, record: ClosedRecord) -> None:
    """Opens what is still closed for its worker. Raises TakenOver if it is not."""
    for key, _ in _own(tx, record):
        tx.clear(key)


def renew(tx: Transaction, records: Sequence[ClosedRecord], passed_ms: int) -> None:
    """Notes that their worker was at them until ``passed_ms`` after the last time. Raises TakenOver."""
    for key, stored in _own(tx, *records):
        stored.since_ms += passed_ms
        tx.set(key, stored.SerializeToString())


def take_over(tx: Transaction, record: ClosedRecord, now_ms: int) -> ClosedRecord | None:
    """Closes the directory for this process instead of another one. None: it is not as ``record`` says any more."""
    there = _stored(tx, record)
    if not there or any((stored.worker, stored.since_ms) != (record.worker, record.since_ms) for _, stored in there):
        return None
    taken = ClosedRecord()
    taken.CopyFrom(record)
    taken.since_ms, taken.worker = now_ms, WORKER
    for key, _ in there:
        tx.set(key, taken.SerializeToString())
    return taken


def _own(tx: ReadTransaction, *records: ClosedRecord) -> list[tuple[bytes, ClosedRecord]]:
    there = _stored(tx, *records)
    at = {stored.location: stored.worker for _, stored in there}
    for record in records:
        if at.get(record.location) != record.worker:
            raise TakenOver(
                f"another process goes on with {record.location}, because this one was not heard of for too long",
                location=record.location,
            )
    return there


def places_of(record: ClosedRecord) -> list[str]:
    """The places that are closed by it."""
    return [places.place_of(location) for location in (record.location, record.target) if location]


def _stored(tx: ReadTransaction, *records: ClosedRecord) -> list[tuple[bytes, ClosedRecord]]:
    # Earlier builds closed the location as it is.
    names = dict.fromkeys(
        name for record in records for name in (*places_of(record), record.location, record.target) if name
    )
    keys = [CLOSED.key(name) for name in names]
    return [
        (key, _parse(name, value))
        for name, key, value in zip(names, keys, tx.get_many(keys), strict=True)
        if value is not None
    ]


def find(tx: ReadTransaction, location: str) -> ClosedRecord | None:
    """Why the directory itself is closed; None: it is open."""
    for place in {places.place_of(location), location}:
        stored = tx.get(CLOSED.key(place))
        if stored is not None:
            return _parse(place, stored)
    return None


def require_open(tx: ReadTransaction, wanted: Iterable[str], but: Sequence[ClosedRecord] = ()) -> None:
    """Raises LocationTaken if one of the places lies in a directory that is closed and none of ``but``.

    ``but`` is what the caller has closed. Raises TakenOver if it is not the caller's any more.
    """
    _own(tx, *but)
    mine = {place for record in but for place in places_of(record)}
    over = sorted({above for place in wanted for above in (place, *storage.places_above(place))} - mine)
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


def older_than(store: Store, before_ms: int, limit: int) -> list[ClosedRecord]:
    """What was closed, or last renewed, before that time; at most ``limit`` of it."""
    records = (_parse(cast(str, place), value) for (place,), value in keys_below(store, CLOSED))
    return list(islice((record for record in records if record.since_ms < before_ms), limit))


def _parse(place: str, stored: bytes) -> ClosedRecord:
    if len(stored) == _EARLIER_BYTES:
        return ClosedRecord(since_ms=int.from_bytes(stored, "big"), location=place)
    return ClosedRecord.FromString(stored)
