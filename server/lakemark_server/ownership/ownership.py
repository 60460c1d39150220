"""Claims of places, and whether directories may be deleted: the rules on what the registry says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lakemark_core.errors import LocationTaken
from lakemark_proto.store.v1.store_pb2 import ClosedRecord, Holder
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.ownership import closures, places, rules
from lakemark_server.ownership.rules import Bounds, Holding

_OF_ONE_TABLE = (Holder.WAREHOUSE_TABLE, Holder.PARTITION)


class Ownership:
    """Thread-safe. ``roots``: locations below which things own their directories; ``kept``: what is never deleted.

    ``own_new_databases``: whether a database elsewhere owns its directory if that was empty when it was created.
    """

    def __init__(self, roots: Iterable[str], kept: Iterable[str] = (), *, own_new_databases: bool = True) -> None:
        self.bounds = Bounds([places.place_of(root) for root in roots], [places.place_of(one) for one in kept])
        self.own_new_databases = own_new_databases

    def take(
        self,
        tx: Transaction,
        claim: Holding,
        *,
        database_id: int = 0,
        chosen: bool = False,
        closed: Sequence[ClosedRecord] = (),
        keeping: bool = False,
    ) -> Holding:
        """Notes that the claim's holder has the place, and takes away what it had under the same kind, id and part.

        ``keeping``: it keeps that, too, for the time being.

        It owns the place only if ``claim.owns``, and if it lies where things own their directories, or was ``chosen``
        by the service. ``database_id``: the database of the claim, in whose directory it may lie. ``closed``: what
        the caller has closed. A partition that cannot own the place reads it.

        Raises LocationTaken.
        """
        closures.require_open(tx, [claim.place], but=closed)
        mine = places.held(tx, claim.kind, claim.id, claim.part)
        same = next((one for one in mine if one.place == claim.place and not one.dropped), None)
        if same is not None and (same.owns or not claim.owns) and len(mine) == 1:
            places.put(tx, claim)  # it has the place, whoever is around it by now
            return claim
        others = _of_others(claim, places.around_and_inside(tx, claim.place, mine))
        taken = claim
        if claim.owns and not (claim.is_lake_table or claim.is_database or claim.is_catalog or chosen):
            taken = replace(claim, owns=rules.may_own(claim, others, self.bounds, database_id))
        reason = rules.in_the_way(taken, others, self.bounds, database_id)
        if reason and taken.kind == Holder.PARTITION and taken.owns:
            taken = replace(taken, owns=False)
            reason = rules.in_the_way(taken, others, self.bounds, database_id)
        if reason:
            raise LocationTaken(
                f"{claim.name} cannot have the location {claim.place}: {reason}; choose another directory",
                location=claim.place,
            )
        for holding in mine:
            if holding.place != claim.place and not keeping:
                places.clear(tx, holding)
        places.put(tx, taken)
        return taken

    def rename(self, tx: Transaction, kind: Holder.Kind.ValueType, id_: int, label: str) -> None:
        """Messages call the holder by another name from now on, but not its partitions."""
        for holding in places.held(tx, kind, id_):
            places.put(tx, replace(holding, label=label))

    def leave(self, tx: Transaction, kind: Holder.Kind.ValueType, id_: int, part: bytes | None = b"") -> list[Holding]:
        """The holder has no place any more; ``part`` None: none under any part. Returns what it had."""
        left = places.held(tx, kind, id_, part)
        for holding in left:
            places.clear(tx, holding)
        return left

    def may_own_database(self, place: str, *, was_empty: bool) -> bool:
        """Whether a database owns its directory."""
        if self.bounds.kept_in(place):
            return False
        return self.bounds.is_below_a_root(place) or (self.own_new_databases and was_empty)

    def why_not_owned(self, tx: ReadTransaction, holding: Holding, database_id: int) -> str:
        """Like ``what_keeps``, of a directory that its holder has left: also why it did not own it."""
        others = places.around_and_inside(tx, holding.place, [holding])
        if not rules.may_own(holding, others, self.bounds, database_id):
            return "it lies outside of the directories in which tables own their data"
        reason = rules.in_the_way(holding, _of_others(holding, others), self.bounds, database_id)
        return reason or self._what_keeps(holding, others)

    def what_keeps(self, tx: ReadTransaction, holding: Holding) -> str:
        """Why the directory of a holder must not be deleted, emptied or moved, as the end of a sentence; "": it may.

        Of a table its own partitions do not count.
        """
        return self._what_keeps(holding, places.around_and_inside(tx, holding.place, [holding]))

    def _what_keeps(self, holding: Holding, others: list[Holding]) -> str:
        if holding.kind == Holder.WAREHOUSE_TABLE:
            others = [one for one in others if one.id != holding.id or one.kind != Holder.PARTITION]
        return rules.what_keeps(holding, others, self.bounds)


def _of_others(claim: Holding, holdings: list[Holding]) -> list[Holding]:
    """Without those of the same warehouse table and of its partitions."""
    if claim.kind not in _OF_ONE_TABLE:
        return holdings
    return [one for one in holdings if one.id != claim.id or one.kind not in _OF_ONE_TABLE]
