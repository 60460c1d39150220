"""Transactions over several tables: the publishing step over several heads in one transaction of the store."""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import InstantStateError, LakemarkError, LimitExceeded
from lakemark_proto.store.v1.store_pb2 import CommittedTogetherRecord
from lakemark_server.store.mutations import Mutation
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.publication.commits import Commit, Committed
from lakemark_server.timeline.publication.publish import publish
from lakemark_server.timeline.publication.table_state import TableState

TOGETHER_BYTES_MAX: Final = 900_000


class Together:
    """``commits`` are pairs of table id and commit, published in this order.

    ``refused`` is the place of the commit that failed the last attempt.
    """

    def __init__(self, commits: list[tuple[int, Commit]], request_id: str) -> None:
        """Raises LimitExceeded."""
        _check_size(sum(commit.size_bytes for _, commit in commits))
        self._commits = commits
        self._request_id = request_id
        self.refused = 0

    def publish(self, mutation: Mutation, log: ChangeLog) -> tuple[list[TableState], list[Committed]]:
        """The body of the transaction; may run several times. Raises the error of the first commit that is refused."""
        states = {table_id: TableState(mutation, table_id) for table_id, _ in self._commits}

        def commit(mutation: Mutation) -> CommittedTogetherRecord:
            committed = self._all(states, mutation.now_ms, log)
            return CommittedTogetherRecord(commits=[one.to_record() for one in committed])

        record = mutation.once(self._request_id, "CommitTransaction", CommittedTogetherRecord, commit).answer
        return list(states.values()), [Committed.of_record(one) for one in record.commits]

    def _all(self, states: dict[int, TableState], now_ms: int, log: ChangeLog) -> list[Committed]:
        answers, fresh = [], []
        for place, (table_id, commit) in enumerate(self._commits):
            self.refused = place
            before = _published(states[table_id])
            answer = publish(states[table_id], [commit], now_ms, log)[0]
            if isinstance(answer, LakemarkError):
                raise answer
            _check_size(states[table_id].tx.size_bytes)  # with what the instants were given at their opening
            answers.append(answer)
            fresh.append(_published(states[table_id]) > before)
        if any(fresh) and not all(fresh):
            one = self._commits[fresh.index(False)][1].instant
            raise InstantStateError(
                f"instant {one} was committed before, outside of this transaction: all of its commits are published "
                "together or none. Send the others without it",
                instant=str(one),
                state="COMPLETED",
            )
        return answers


def _check_size(size_bytes: int) -> None:
    if size_bytes > TOGETHER_BYTES_MAX:
        raise LimitExceeded(
            f"these commits write {size_bytes:,} bytes or more; a transaction over several tables takes at most "
            f"{TOGETHER_BYTES_MAX:,}: stage their files before, shorten their metadata, or send fewer of them"
        )


def _published(state: TableState) -> int:
    return sum(len(branch.fresh) for branch in state.branches.values())
