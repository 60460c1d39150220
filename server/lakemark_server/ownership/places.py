"""The registry: who holds which place, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from lakemark_core import storage
from lakemark_core.errors import InvalidArgument, LimitExceeded
from lakemark_proto.store.v1.store_pb2 import Holder, PlaceRecord
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.ownership.rules import Holding
from lakemark_server.store.keyspace import HELD, HIVE_TABLES, PLACES

RECORD_BYTES_MAX: Final = 90_000
"""Of the holders of one place: some hundreds."""

INSIDE_MAX: Final = 1_000
"""How many places in a directory are looked at. Where there are more, it is as if one were in the way."""

LOCATION_CHARS_MAX: Final = 2_000


def place_of(location: str) -> str:
    """The place of a location (``storage.place_of``), which may follow links. Raises InvalidArgument."""
    if len(location) > LOCATION_CHARS_MAX:
        raise InvalidArgument(
            f"location {location[:60]!r}… has {len(location)} characters; at most {LOCATION_CHARS_MAX}"
        )
    return storage.place_of(location)


def holding(
    location: str,
    kind: Holder.Kind.ValueType,
    id_: int,
    label: str,
    *,
    owns: bool,
    part: bytes = b"",
    dropped: bool = False,
) -> Holding:
    """That somebody has the directory at a location. Raises InvalidArgument if the location is none."""
    return Holding(location, place_of(location), kind, id_, part, owns, label, dropped)


def put(tx: Transaction, holding: Holding) -> None:
    """Notes who holds the place, instead of what was noted of the same holder. Raises LimitExceeded."""
    record = _record(tx, holding.place)
    others = [holder for holder in record.holders if not _is(holder, holding)]
    if sum(other.ByteSize() + 4 for other in others) > RECORD_BYTES_MAX:
        raise LimitExceeded(f"{holding.place} is the location of {len(others)} tables and partitions; no more can be")
    own = Holder(
        kind=holding.kind,
        id=holding.id,
        part=holding.part,
        owns=holding.owns,
        label=holding.label,
        dropped=holding.dropped,
        location=holding.location,
    )
    _write(tx, holding.place, [*others, own])
    tx.set(HELD.key(holding.kind, holding.id, holding.part, holding.place), b"")


def clear(tx: Transaction, holding: Holding) -> None:
    """The place is no longer held by this holder."""
    _write(tx, holding.place, [holder for holder in _record(tx, holding.place).holders if not _is(holder, holding)])
    tx.clear(HELD.key(holding.kind, holding.id, holding.part, holding.place))


def held(
    tx: ReadTransaction, kind: Holder.Kind.ValueType, id_: int, part: bytes | None = b"", limit: int = 0
) -> list[Holding]:
    """What somebody holds; ``part`` None: with all partitions of the table."""
    begin, end = HELD.range(kind, id_) if part is None else HELD.range(kind, id_, part)
    listed = []
    for key, _ in tx.get_range(begin, end, limit=limit):
        place, own_part = cast(str, HELD.unpack(key)[-1]), cast(bytes, HELD.unpack(key)[-2])
        listed += [
            _holding(place, holder)
            for holder in _record(tx, place).holders
            if (holder.kind, holder.id, holder.part) == (kind, id_, own_part)
        ]
    return listed


def has_any(tx: ReadTransaction, kind: Holder.Kind.ValueType, id_: int) -> bool:
    """Whether somebody holds anything; partitions by the id of their table."""
    return bool(tx.get_range(*HELD.range(kind, id_), limit=1))


def around_and_inside(tx: ReadTransaction, place: str, without: Iterable[Holding] = ()) -> list[Holding]:
    """Who else holds the place, one around it, or one inside, the last ones bounded in number."""
    away = {(one.place, one.kind, one.id, one.part) for one in without}
    over = [place, *storage.places_above(place)]
    values = tx.get_many([PLACES.key(one) for one in over])
    pairs = [(one, value) for one, value in zip(over, values, strict=True) if value is not None]
    inside = tx.get_range(*PLACES.range_of_texts(f"{place}/"), limit=INSIDE_MAX + 1)
    pairs += [(cast(str, PLACES.unpack(key)[-1]), value) for key, value in inside]
    every = [_holding(at, holder) for at, value in pairs for holder in PlaceRecord.FromString(value).holders]
    if len(inside) > INSIDE_MAX:  # nobody looks at the rest: it is as if it were in the way
        far = f"{place}/…"
        every.append(Holding(far, far, Holder.KIND_UNSPECIFIED, 0, b"", True, f"one of more than {INSIDE_MAX}"))
    return _without_dead(tx, [one for one in every if (one.place, one.kind, one.id, one.part) not in away])


def _without_dead(tx: ReadTransaction, holdings: Sequence[Holding]) -> list[Holding]:
    """Partitions leave their places some time after their table was dropped: those hold nothing any more."""
    ids = sorted({one.id for one in holdings if one.kind == Holder.PARTITION})
    rows = tx.get_many([HIVE_TABLES.space(table_id).key(0) for table_id in ids]) if ids else []
    dead = {table_id for table_id, row in zip(ids, rows, strict=True) if row is None}
    return [one for one in holdings if one.kind != Holder.PARTITION or one.id not in dead]


def _record(tx: ReadTransaction, place: str) -> PlaceRecord:
    stored = tx.get(PLACES.key(place))
    return PlaceRecord() if stored is None else PlaceRecord.FromString(stored)


def _write(tx: Transaction, place: str, holders: Sequence[Holder]) -> None:
    if holders:
        tx.set(PLACES.key(place), PlaceRecord(holders=holders).SerializeToString())
    else:
        tx.clear(PLACES.key(place))


def _is(holder: Holder, holding: Holding) -> bool:
    return (holder.kind, holder.id, holder.part) == (holding.kind, holding.id, holding.part)


def _holding(place: str, holder: Holder) -> Holding:
    return Holding(
        holder.location, place, holder.kind, holder.id, holder.part, holder.owns, holder.label, holder.dropped
    )
