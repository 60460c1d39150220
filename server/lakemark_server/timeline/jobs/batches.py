"""What happens to a batch: all jobs of a table that wait at one moment, in one transaction of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakemark_core.errors import CommitConflict, LakemarkError, Unavailable
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.kv import TransactionTooLarge
from lakemark_server.metrics.process import COMMIT_CONFLICTS
from lakemark_server.store.keyspace import HEADS, LAST_INSTANT, MAIN
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.jobs.job import Answer, Batch, CommittedAndOpened, Decision, Job, PendingCommit
from lakemark_server.timeline.publication.commits import Committed
from lakemark_server.timeline.publication.publish import publish
from lakemark_server.timeline.publication.rollback import delete_files, refuse
from lakemark_server.timeline.publication.table_state import TableState
from lakemark_server.timeline.refusals import Refusals

BATCH_BYTES_MAX: Final = 1_000_000
"""Of one transaction of several jobs, as the store counts them."""


class Batches:
    """Thread-safe."""

    def __init__(self, mutations: Mutations, log: ChangeLog, quotas: Quotas, refusals: Refusals) -> None:
        self._mutations = mutations
        self._log = log
        self._quotas = quotas
        self._refusals = refusals

    def run(self, table_id: int, jobs: Sequence[Job]) -> list[Answer | LakemarkError]:
        """The answers in the order of the jobs, once they are durable.

        All jobs are run in turn, which opens instants and changes schemas; then the commits among them are published,
        in turn as well.
        """

        def body(mutation: Mutation) -> tuple[_Attempt, list[Answer | LakemarkError]]:
            attempt = _Attempt(Batch(mutation, TableState(mutation, table_id), self._log, self._quotas))
            answers = attempt.answers(jobs)
            size = mutation.tx.size_bytes
            if size > BATCH_BYTES_MAX and len(jobs) > 1:
                raise TransactionTooLarge(f"a batch of {len(jobs)} jobs takes {size} bytes")
            return attempt, answers

        try:
            attempt, answers = self._mutations.run(body)
        except TransactionTooLarge:
            if len(jobs) == 1:
                raise
            half = len(jobs) // 2
            return self.run(table_id, jobs[:half]) + self.run(table_id, jobs[half:])
        remember(self._log, attempt.batch.state)
        self._refusals.add(attempt.batch.refused_starts)
        conflicts = sum(isinstance(answer, CommitConflict) for answer in answers)
        if conflicts:
            COMMIT_CONFLICTS.add(by=conflicts)
        for table, instant in attempt.refused:
            delete_files(table.record.location, instant)
        return answers


class _Attempt:
    """One attempt at a batch. ``refused``: instants that were rolled back because their commits were refused."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.refused: list[tuple[LakeTable, int]] = []

    def answers(self, jobs: Sequence[Job]) -> list[Answer | LakemarkError]:
        self._read_ahead(jobs)
        for job in jobs:
            job.prepare(self.batch)
        if self.batch.commits:
            self.batch.commits.read(self.batch.state.tx, self.batch.state.table)
        decisions = [self._decision(job) for job in jobs]
        pending = [decision for decision in decisions if isinstance(decision, PendingCommit)]
        published = iter(self._publish(pending))
        return [next(published) if isinstance(decision, PendingCommit) else decision for decision in decisions]

    def _read_ahead(self, jobs: Sequence[Job]) -> None:
        """Reads at once what the jobs are nearly sure to ask for: each read may be a round trip, and the transaction
        keeps what it has read. Conflicts are a matter of those who ask."""
        tx, table_id = self.batch.state.tx, self.batch.state.table_id
        keys = {HEADS.key(table_id, MAIN), LAST_INSTANT.key(table_id)}
        for job in jobs:
            keys.update(job.reads(table_id))
        tx.get_many(list(keys), snapshot=True)

    def _decision(self, job: Job) -> Decision | LakemarkError:
        try:
            return job.run(self.batch)
        except Unavailable:
            raise  # of the store, in the middle: what this job has written so far must not be committed with the others
        except LakemarkError as error:
            return error

    def _publish(self, pending: Sequence[PendingCommit]) -> list[Answer | LakemarkError]:
        if not pending:
            return []
        state, now_ms = self.batch.state, self.batch.mutation.now_ms
        published = publish(state, [one.commit for one in pending], now_ms, self.batch.log)
        answers: list[Answer | LakemarkError] = []
        for one, answer in zip(pending, published, strict=True):
            if isinstance(answer, CommitConflict) and refuse(state, one.commit, answer):
                self.refused.append((state.table, one.commit.instant))
            answers.append(self._followed(one, answer) if isinstance(answer, Committed) else answer)
        return answers

    def _followed(self, pending: PendingCommit, committed: Committed) -> Committed | CommittedAndOpened:
        """Opens the writer's next instant if it wants one."""
        if pending.following is None:
            return committed
        try:
            return CommittedAndOpened(committed, pending.following.run(self.batch))
        except Unavailable:
            raise  # likewise
        except LakemarkError as error:
            return CommittedAndOpened(committed, error)


def remember(log: ChangeLog, state: TableState) -> None:
    """Keeps what was published, once its transaction is durable."""
    for key, branch in state.branches.items():
        log.add(state.table_id, key, branch.fresh)
