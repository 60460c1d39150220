"""Whether what one head has may follow on another: the check of a merge, and of a question whether one would do.

A version of the source that the target lacks is put behind everything that the target has. Of that, it has not seen
what the source lacks, and what came to the source only after it. Against all this it is checked, as if its writer had
committed late. If the source lacks nothing, the target becomes what the source is, and it is enough that the order of
files which come and go does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakemark_core.errors import CommitConflict, LimitExceeded
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.kv import ReadTransaction
from lakemark_server.timeline.branches.divergence import LOOKED_AT_MAX, Head, Known, Side, side
from lakemark_server.timeline.branches.forks import name_of
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.conflicts.changes import NO_TOTALS, Change, Operation, Run, Totals, by_group
from lakemark_server.timeline.conflicts.rules import RULES, Collision, Verdict, commute, find_collision


@dataclass(frozen=True, slots=True)
class Divergence:
    """``source``: what it has that the target lacks; ``target``: the other way round."""

    source: Side
    target: Side

    @property
    def fast_forward(self) -> bool:
        """The source has all that the target has."""
        return not self.target.own

    def turned(self) -> Divergence:
        return Divergence(self.target, self.source)


def diverged(tx: ReadTransaction, table_id: int, log: ChangeLog, source: Head, target: Head) -> Divergence:
    """What each of two heads has that the other lacks. Raises LimitExceeded."""
    return Divergence(
        side(tx, table_id, log, source, Known(tx, table_id, target)),
        side(tx, table_id, log, target, Known(tx, table_id, source)),
    )


class _Moved:
    """Changes that are to follow others, grouped by what the conflict rules look at first."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._by_kind: dict[tuple[Operation, bool], list[tuple[str, Change]]] = {}
        self.count = 0
        self.totals = NO_TOTALS

    def add(self, branch: str, changes: Iterable[Change]) -> None:
        for change in changes:
            self._by_kind.setdefault((change.operation, change.once), []).append((branch, by_group(change)))
            self.count += 1
            self.totals = self.totals.plus(change.totals)

    def against(self, theirs: Change) -> Iterator[tuple[str, Collision]]:
        """The collisions of those that must not follow ``theirs``, each with the branch that the change came from."""
        for (operation, once), changes in self._by_kind.items():
            if RULES[self._policy][operation, theirs.operation] is Verdict.NEVER and not (once and theirs.once):
                continue
            for branch, mine in changes:
                collision = find_collision(self._policy, mine, [theirs])
                if collision is not None:
                    yield branch, collision


def check_merge(tx: ReadTransaction, log: ChangeLog, table: LakeTable, divergence: Divergence) -> tuple[int, Totals]:
    """How many versions the merge replays, and what they add and remove. Raises CommitConflict, LimitExceeded."""
    divergence.source.check_own()
    table_id = table.table_id
    moved, looked_at = _Moved(table.policy), 0
    source, target = divergence.source.head.name, divergence.target.head.name

    def changes(run: Run) -> Iterator[Change]:
        nonlocal looked_at
        for change in log.of_run(tx, table_id, run):
            looked_at += 1
            if looked_at > LOOKED_AT_MAX:
                raise LimitExceeded(
                    f"a merge of {source!r} into {target!r} is to be checked against more than {LOOKED_AT_MAX} "
                    "versions; make a new branch and do the work again on it"
                )
            yield change

    for run, shared in divergence.source.pieces:
        if not shared:
            moved.add(run.branch, reversed(list(changes(run))))
        elif moved.count:
            for theirs in changes(run):
                for branch, collision in moved.against(theirs):
                    if not (divergence.fast_forward and commute(collision.mine, theirs)):
                        raise _refusal(table, divergence, branch, run, collision, passed=True)
    for run in divergence.target.own:
        for theirs in changes(run):
            for branch, collision in moved.against(theirs):
                raise _refusal(table, divergence, branch, run, collision, passed=False)
    return moved.count, moved.totals


def _refusal(
    table: LakeTable, divergence: Divergence, branch: str, other: Run, collision: Collision, *, passed: bool
) -> CommitConflict:
    source, target = divergence.source.head.name, divergence.target.head.name
    theirs = name_of(other.branch)
    why = f", which {source!r} got only after it and {target!r} has already" if passed else ""
    return CommitConflict(
        f"merge of {source!r} into {target!r} of {table.name} refused: version {collision.mine.version} of branch "
        f"{name_of(branch)!r} against {collision.describe(table.column_names)} on branch {theirs!r}{why}. Make a new "
        f"branch of {target!r} and do the work again on it",
        branch=name_of(branch),
        branch_version=str(collision.mine.version),
        into=target,
        other_branch=theirs,
        **collision.details(),
    )
