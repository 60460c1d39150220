"""The registry of places says what all who have a directory say, and no owner is in another's directory."""

from __future__ import annotations

from typing import cast

from lakemark_core.storage import is_within
from lakemark_proto.store.v1.store_pb2 import Holder, PlaceRecord
from lakemark_server.catalog import partition_places
from lakemark_server.catalog.earlier_places import InTable, who_is_where
from lakemark_server.kv import ReadTransaction, Store, keys_below
from lakemark_server.ownership import places, rules
from lakemark_server.ownership.rules import Bounds, Holding
from lakemark_server.store.keyspace import HELD, LEAVING, PARTITION_PLACES, PLACES, PLACES_KNOWN

_Key = tuple[int, int, bytes, str]  # kind, id, part, place
_Note = tuple[int, str, bytes]  # table id, relative location, part
_NOWHERE = Bounds((), ())


def check(store: Store) -> list[str]:
    """Nothing if no process of this build has served the store yet: it has no registry."""
    if not store.read(_has_registry):
        return []
    listed = {cast(_Key, items) for items, _ in keys_below(store, HELD)}
    noted = {cast(_Note, items) for items, _ in keys_below(store, PARTITION_PLACES)}
    leaving = {items[0] for items, _ in keys_below(store, LEAVING)}
    holdings, notes, missing = dict[_Key, Holding](), set[_Note](), []
    for here in who_is_where(store):
        if isinstance(here, InTable) and here.row.relative:
            note = (here.table.table_id, here.row.location, partition_places.part_of(here.row.values))
            notes.add(note)
            if here.settled and note not in noted:
                missing.append(f"partition {here.row.location} of {here.table.label} is not noted with its table")
            continue
        holding = partition_places.holding(here.table, here.row) if isinstance(here, InTable) else here
        key = (holding.kind, holding.id, holding.part, holding.place)
        holdings[key] = holding
        if key not in listed and (here is holding or cast(InTable, here).settled):
            missing.append(f"{holding.name} has its directory at {holding.location}, which is in no registry of places")
    unknown = [
        f"the place {place} is held by {_name(kind)} id {id_}, which has no directory there"
        for kind, id_, part, place in sorted(listed - holdings.keys())
        if not (kind == Holder.PARTITION and id_ in leaving)
    ]
    unknown += [f"a partition of table id {note[0]} is noted at {note[1]}, and is not there" for note in noted - notes]
    return [*missing, *unknown, *_different(store, listed), *_in_the_way(store, holdings)]


def _has_registry(tx: ReadTransaction) -> bool:
    return tx.get(PLACES_KNOWN) is not None or bool(tx.get_range(*HELD.range(), limit=1))


def _different(store: Store, listed: set[_Key]) -> list[str]:
    """Both ways to look into the registry say the same."""
    held = {
        (holder.kind, holder.id, holder.part, cast(str, items[0]))
        for items, value in keys_below(store, PLACES)
        for holder in PlaceRecord.FromString(value).holders
    }
    return [
        f"the registry has {_name(key[0])} id {key[1]} at {key[3]} in one direction only"
        for key in sorted(listed ^ held)
    ]


def _name(kind: int) -> str:
    return Holder.Kind.Name(cast(Holder.Kind.ValueType, kind)).lower().replace("_", " ")


def _in_the_way(store: Store, holdings: dict[_Key, Holding]) -> list[str]:
    """Earlier builds let owners share directories."""
    problems = []
    for key in sorted(holdings):
        for own in store.read(lambda tx, key=key: places.held(tx, key[0], key[1], key[2])):  # type: ignore[misc]
            if not own.owns or own.dropped:
                continue
            others = store.read(lambda tx, own=own: places.around_and_inside(tx, own.place, [own]))  # type: ignore[misc]
            # A table that is renamed into another database stays where it is.
            others = [
                one
                for one in others
                if one.owns and one.kind and not one.is_database and not one.is_catalog and not _same_table(own, one)
            ]
            if own.is_catalog:  # what lies in it has its own directories
                others = [one for one in others if is_within(own.place, one.place)]
            reason = rules.in_the_way(own, others, _NOWHERE, database_id=0)
            if reason:
                problems.append(
                    f"{own.name} owns {own.location}, and {reason}: neither is deleted while both are there"
                )
    return problems


def _same_table(first: Holding, second: Holding) -> bool:
    of_table = (Holder.WAREHOUSE_TABLE, Holder.PARTITION)
    return first.kind in of_table and second.kind in of_table and first.id == second.id
