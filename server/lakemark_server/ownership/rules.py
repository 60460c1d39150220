"""Who may hold a place beside whom, and what keeps a directory from being deleted. Pure.

A holder that *owns* its directory has it deleted when it is dropped, and lets nobody else own anything in it. One that
does not own it is a *reader*: its files are never deleted, neither with it nor with somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakemark_core.storage import is_within
from lakemark_proto.store.v1.store_pb2 import Holder

_KINDS = {
    Holder.DATABASE: "database",
    Holder.LAKE_TABLE: "lake table",
    Holder.WAREHOUSE_TABLE: "table",
    Holder.PARTITION: "partition",
    Holder.CATALOG: "catalog",
}


@dataclass(frozen=True, slots=True)
class Holding:
    """That somebody holds a place, which it calls ``location``."""

    location: str
    place: str
    kind: Holder.Kind.ValueType
    id: int
    part: bytes
    owns: bool
    label: str
    dropped: bool = False

    @property
    def name(self) -> str:
        """For messages: ``table db.t``."""
        return f"{_KINDS.get(self.kind, 'object')} {self.label}"

    @property
    def is_database(self) -> bool:
        return self.kind == Holder.DATABASE

    @property
    def is_catalog(self) -> bool:
        return self.kind == Holder.CATALOG

    @property
    def is_lake_table(self) -> bool:
        return self.kind == Holder.LAKE_TABLE


@dataclass(frozen=True, slots=True)
class Bounds:
    """Places that are the operator's.

    ``roots``: below them, things own their directories; they are never deleted themselves. ``kept``: not deleted
    either, as the directory of the store.
    """

    roots: Sequence[str]
    kept: Sequence[str]

    def is_below_a_root(self, place: str) -> bool:
        return any(place != root and is_within(place, root) for root in self.roots)

    def kept_in(self, place: str) -> str:
        """One of the operator's places that lies in this one; "" if there is none."""
        return next((kept for kept in (*self.roots, *self.kept) if is_within(kept, place)), "")


def may_own(claim: Holding, others: Iterable[Holding], bounds: Bounds, database_id: int) -> bool:
    """Whether the directory is where things own theirs: below a root, or in the database's own directory.

    The database ``default`` of a catalog has the catalog's directory, and does not own it itself.
    """
    around = [one for one in others if one.place != claim.place and is_within(claim.place, one.place)]
    own = [one for one in around if one.is_database and one.id == database_id]
    owned = {one.place for one in around if one.is_catalog and one.owns}
    return not bounds.kept_in(claim.place) and (
        bounds.is_below_a_root(claim.place) or any(one.owns or one.place in owned for one in own)
    )


def in_the_way(claim: Holding, others: Iterable[Holding], bounds: Bounds, database_id: int) -> str:
    """Why the claim is refused, as the end of a sentence; "" if it is not.

    ``others`` hold places that are equal to, around or inside that of the claim. ``database_id``: of the claim's
    database, in whose directory it may lie.
    """
    kept = bounds.kept_in(claim.place)
    if kept and not claim.is_database:
        return f"{kept} lies there, which is kept for the service"
    for other in others:
        at, around = other.place == claim.place, is_within(claim.place, other.place)
        if not _excludes(claim, other, at=at, around=around, database_id=database_id):
            continue
        if at:
            return f"{other.name} has its directory there"
        return f"{other.name} has {'the directory around it' if around else f'its directory in it, {other.place}'}"
    return ""


def _excludes(claim: Holding, other: Holding, *, at: bool, around: bool, database_id: int) -> bool:
    """``around``: the other one's place is that of the claim, or around it; else it lies inside."""
    if claim.is_catalog:  # what lies inside would be deleted with it
        return (other.owns and (at or around or claim.owns)) or (other.is_lake_table and not other.dropped)
    if other.is_catalog:
        return other.owns and (at or not around) and (claim.owns or not claim.is_database)
    if claim.is_lake_table:
        if other.is_database:
            own = other.id == database_id
            return at or not around or (other.owns and not own)
        return not other.dropped
    if claim.is_database:
        # What lies inside stays when the database is dropped, as tables that were renamed into another one do.
        return other.owns and (at if not claim.owns else around or other.is_database)
    if other.is_lake_table:
        return not other.dropped
    if claim.owns:
        return other.owns and not (other.is_database and around and not at and other.id == database_id)
    # A reader may read what others have, but not hold a whole database, whose tables could never be deleted.
    return other.is_database and other.owns and (at or not around)


def what_keeps(holding: Holding, others: Iterable[Holding], bounds: Bounds) -> str:
    """Why a directory must not be deleted, emptied or moved, as the end of a sentence; "" if it may be.

    ``others``: who else holds places equal to, around or inside it.
    """
    kept = bounds.kept_in(holding.place)
    if kept:
        return f"{kept} lies there, which is kept for the service"
    for other in others:
        if other.place == holding.place:
            return f"{other.name} has its directory there, too"
        if not is_within(holding.place, other.place):
            return f"{other.name} has its directory in it, {other.place}"
        own_table = other.kind == Holder.WAREHOUSE_TABLE and other.id == holding.id
        if not other.is_database and not other.is_catalog and not (own_table and holding.kind == Holder.PARTITION):
            return f"{other.name} has the directory around it, {other.place}"
    return ""
