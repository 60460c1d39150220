"""What one head of a table has and another does not (docs/branches.md).

Merges take everything up to a head, and a branch forks from everything up to a version. So of each branch a head always
has all versions up to a certain one, and what two heads share is known without a look at what the versions changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from lakemark_core.errors import LimitExceeded
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import MERGES
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.conflicts.changes import Run
from lakemark_server.timeline.lineage import Lineage

VERSIONS_MAX: Final = 10_000
LOOKED_AT_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Head:
    """A version on the lineage of a branch. ``name`` is what a user calls it, for messages."""

    name: str
    lineage: Lineage
    version: int


class Piece(NamedTuple):
    """``shared``: the other head has it, too."""

    run: Run
    shared: bool


@dataclass(frozen=True, slots=True)
class Side:
    """``pieces``: what a head has behind ``after``, the last version of its lineage that the other has as a whole, in
    its order."""

    head: Head
    after: int
    pieces: tuple[Piece, ...]

    @property
    def own(self) -> list[Run]:
        """What the other head does not have; what one branch got stays together, whatever came in between."""
        runs: list[Run] = []
        for run, shared in self.pieces:
            if shared:
                continue
            if runs and runs[-1].branch == run.branch:
                runs[-1] = runs[-1]._replace(upto=run.upto)
            else:
                runs.append(run)
        return runs

    def check_own(self) -> None:
        """Raises LimitExceeded: it is too much to be replayed."""
        versions = sum(run.upto - run.after for run, shared in self.pieces if not shared)
        if versions > VERSIONS_MAX:
            raise LimitExceeded(
                f"{self.head.name!r} has {versions} versions that the other side does not have; at most {VERSIONS_MAX} "
                "are merged or compared at once",
                versions=str(versions),
            )

    @property
    def shared(self) -> list[Run]:
        return [piece.run for piece in self.pieces if piece.shared]


class Known:
    """Up to which version a head has what each branch got."""

    def __init__(self, tx: ReadTransaction, table_id: int, head: Head) -> None:
        self._tx, self._table_id = tx, table_id
        self._segments = list(head.lineage.segments(0, head.version))
        self._upto: dict[str, int] = {}

    def upto(self, key: str) -> int:
        """0: nothing."""
        if key not in self._upto:
            self._upto[key] = max((self._by(key, segment, high) for segment, _, high in self._segments), default=0)
        return self._upto[key]

    def _by(self, key: str, segment: str, high: int) -> int:
        if segment == key:
            return high
        begin, _ = MERGES.range(self._table_id, key, segment)
        end = MERGES.key(self._table_id, key, segment, high + 1)
        last = self._tx.get_range(begin, end, limit=1, reverse=True, snapshot=True)
        return cast(int, MERGES.unpack(last[0][0])[-1]) if last else 0

    def last_of(self, lineage: Lineage, version: int) -> int:
        """The last version of a lineage, up to this one, that the head has as a whole."""
        for key, low, high in reversed(list(lineage.segments(0, version))):
            if self.upto(key) > low:
                return min(high, self.upto(key))
        return 0


def side(tx: ReadTransaction, table_id: int, log: ChangeLog, head: Head, other: Known) -> Side:
    """What ``head`` has that the other does not. Raises LimitExceeded: it is too much."""
    after = other.last_of(head.lineage, head.version)
    if head.version - after > LOOKED_AT_MAX:
        raise LimitExceeded(
            f"{head.name!r} has {head.version - after} versions behind {after}, up to where the other side has all; at "
            f"most {LOOKED_AT_MAX} are looked at",
            versions=str(head.version - after),
        )
    pieces: list[Piece] = []
    for entry in reversed(list(log.entries(tx, table_id, head.lineage, after, head.version))):
        own = (Run(head.lineage.owner(entry.version), entry.version - 1, entry.version),)
        for piece in _split(entry.replays or own, other):
            last = pieces[-1] if pieces else None
            if last and (last.shared, last.run.branch) == (piece.shared, piece.run.branch):
                # What that branch got between the two are merges, else it would stand here.
                pieces[-1] = Piece(last.run._replace(upto=piece.run.upto), piece.shared)
            else:
                pieces.append(piece)
    return Side(head, after, tuple(pieces))


def _split(runs: tuple[Run, ...], other: Known) -> Iterator[Piece]:
    for run in runs:
        known = min(max(other.upto(run.branch), run.after), run.upto)
        if known > run.after:
            yield Piece(run._replace(upto=known), shared=True)
        if known < run.upto:
            yield Piece(run._replace(after=known), shared=False)


def merged_upto(runs: Iterable[Run], owner: str, version: int) -> dict[str, int]:
    """By branch, how much of it a merge of ``version``, which ``owner`` got, brings to where it is complete."""
    return {run.branch: run.upto for run in runs} | {owner: version}


def put_merge(tx: Transaction, table_id: int, target: str, version: int, merged: Side) -> None:
    """From this version on the target has all that the other head has."""
    head = merged.head
    for key, last in merged_upto(merged.own, head.lineage.owner(head.version), head.version).items():
        tx.set(MERGES.key(table_id, key, target, version, last), b"")
