"""Writers in flight against each other: early conflict detection, and who gives way to whom.

Between two writers the first to commit wins. Between a writer and a clustering the table chooses
(``lakemark.clustering.preference``): "writer", the default, never slows a writer for housekeeping; "clustering" lets a
scheduled clustering finish and sends writers of its file groups away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.store.keyspace import INSTANTS
from lakemark_server.timeline.conflicts.changes import Change, Operation, of_record
from lakemark_server.timeline.conflicts.rules import RULES, WRITES, Collision, Verdict, find_collision
from lakemark_server.timeline.publication.table_state import TableState

_Concerns = Callable[[Operation], bool]


def gives_way(mine: Operation, theirs: Operation, preference: str) -> bool:
    """Whether *mine* must not be published while *theirs* is in flight and would be aborted by it."""
    if preference == "clustering":
        return mine in WRITES and theirs == pb.CLUSTER
    return mine == pb.CLUSTER and theirs in WRITES


def find_rival(state: TableState, record: InstantRecord, mine: Change, now_ms: int) -> Collision | None:
    """The first live writer that would collide with *mine*, which wants to start: whoever started first stays."""
    table = state.table
    rules, preference = RULES[table.policy], table.clustering_preference

    def concerns(theirs: Operation) -> bool:
        if gives_way(theirs, mine.operation, preference):
            return False
        return rules[mine.operation, theirs] is not Verdict.NEVER or mine.once

    return find_collision(table.policy, mine, _inflight(state, record, now_ms, concerns))


def find_favoured(state: TableState, record: InstantRecord, mine: Change, now_ms: int) -> Collision | None:
    """The first live writer to which *mine*, which wants to commit, gives way; None for nearly all commits."""
    table = state.table
    preference = table.clustering_preference
    if mine.operation != pb.CLUSTER and (preference != "clustering" or mine.operation not in WRITES):
        return None
    state.guard_starts()
    rivals = _inflight(state, record, now_ms, concerns=lambda theirs: gives_way(mine.operation, theirs, preference))
    # The question is what would become of them if mine were first.
    for theirs in rivals:
        collision = find_collision(table.policy, theirs, [mine])
        if collision is not None:
            return replace(collision, mine=mine, theirs=theirs)
    return None


def _inflight(state: TableState, record: InstantRecord, now_ms: int, concerns: _Concerns) -> Iterable[Change]:
    """The changes of other live writers of the branch, as far as they are known."""
    concerning = set(filter(concerns, state.operations))
    if not concerning:
        return ()  # many writers, and none of their operations matters: the way of nearly every append
    rivals = [
        one.instant
        for one in state.writers.values()
        if one.operation in concerning and one.inflight and not one.expired(now_ms) and one.instant != record.instant
    ]
    stored = state.tx.get_many([INSTANTS.key(state.table_id, instant) for instant in rivals], snapshot=True)
    records = (InstantRecord.FromString(value) for value in stored if value is not None)
    return [of_record(rival) for rival in records if rival.branch == record.branch]
