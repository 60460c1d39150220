"""What happens to a batch: all jobs of a table that wait at one moment, in one transaction of the store."""

from __future__ import annotations

from typing import Final, TypeAlias

from lakemark_core.errors import CommitConflict, LakemarkError, Unavailable
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import Store, Transaction, TransactionTooLarge
from lakemark_server.store.keyspace import ALIVE, HEADS, INSTANTS, LAST_INSTANT, MAIN
from lakemark_server.timeline.batching.jobs import MOVED, CommittedAndOpened, Moved, Opened, OpenJob, StartJob
from lakemark_server.timeline.batching.named import NamedJob, TableNames
from lakemark_server.timeline.batching.opening import opened_once, started
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.publication.publish import CommitJob, metadata_bytes, publish
from lakemark_server.timeline.publication.rollback import delete_files, refuse
from lakemark_server.timeline.publication.schema_change import AlterJob, altered_once
from lakemark_server.timeline.publication.table_state import TableState

Job: TypeAlias = OpenJob | StartJob | CommitJob | AlterJob | NamedJob
Answer: TypeAlias = Opened | pb.CommitResponse | CommittedAndOpened | LakeTable | Moved

BATCH_BYTES_MAX: Final = 1_000_000
"""Of one transaction of several jobs, as the store counts them."""

_JOB_BYTES: Final = 1_500
"""Of what a job writes beside its files, metadata and profile, conflict ranges included."""


def size_of(job: Job) -> int:
    """About how many bytes it writes. What an instant was given at its opening is written again with its commit, which
    is seen only in the transaction."""
    work = job.work if isinstance(job, NamedJob) else job
    if isinstance(work, CommitJob):
        return _JOB_BYTES + work.size_bytes
    if isinstance(work, pb.CommitRequest):
        return _JOB_BYTES + work.ByteSize()
    if isinstance(work, OpenJob):
        once = metadata_bytes(work.metadata) + (work.profile.ByteSize() if work.profile else 0)
        return _JOB_BYTES + (2 * once if work.request_id else once)  # the answer is recorded, too
    return _JOB_BYTES + (work.profile.ByteSize() if isinstance(work, StartJob) else 0)


class Batches:
    """Thread-safe."""

    def __init__(self, store: Store, clock: ClockMs, log: ChangeLog, quotas: Quotas, names: TableNames) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._quotas = quotas
        self._names = names

    def run(self, table_id: int, jobs: list[Job]) -> list[Answer | LakemarkError]:
        """The answers in the order of the jobs, once they are durable: instants first, then commits in turn."""
        gone: list[tuple[LakeTable, int]] = []

        def body(tx: Transaction) -> tuple[TableState, list[Answer | LakemarkError]]:
            now = self._clock()
            self._read_ahead(tx, table_id, jobs)
            state = TableState(tx, table_id)
            answers: list[Answer | LakemarkError] = []
            commits: list[tuple[int, CommitJob]] = []
            for place, job in enumerate(self._understood(state, jobs)):
                if isinstance(job, CommitJob):
                    commits.append((place, job))
                    answers.append(MOVED)
                else:
                    answers.append(job if isinstance(job, Moved | LakemarkError) else self._begin(state, job, now))
            gone.clear()
            published = publish(state, [job for _, job in commits], now, self._log) if commits else []
            for (place, job), answer in zip(commits, published, strict=True):
                answers[place] = self._and_opened(state, jobs[place], answer, now)
                if isinstance(answer, CommitConflict) and refuse(state, job.instant, answer, now):
                    gone.append((state.table, job.instant))
            if tx.size_bytes > BATCH_BYTES_MAX and len(jobs) > 1:
                raise TransactionTooLarge(f"a batch of {len(jobs)} jobs takes {tx.size_bytes} bytes")
            return state, answers

        try:
            state, answers = self._store.transact(body)
        except TransactionTooLarge:
            if len(jobs) == 1:
                raise
            half = len(jobs) // 2
            return self.run(table_id, jobs[:half]) + self.run(table_id, jobs[half:])
        remember(self._log, state)
        for table, instant in gone:
            delete_files(table.record.location, instant)
        return answers

    def _read_ahead(self, tx: Transaction, table_id: int, jobs: list[Job]) -> None:
        """What the jobs are nearly sure to ask for, at once: each read may be a round trip, and the transaction keeps
        what it has read. Conflicts are a matter of those who ask."""
        keys = [HEADS.key(table_id, MAIN), LAST_INSTANT.key(table_id)]
        keys += self._names.reads([job for job in jobs if isinstance(job, NamedJob)])
        for job in jobs:
            work = job.work if isinstance(job, NamedJob) else job
            if isinstance(work, StartJob | CommitJob | pb.CommitRequest):
                keys += (INSTANTS.key(table_id, work.instant), ALIVE.key(table_id, work.instant))
        tx.get_many(keys, snapshot=True)

    def _understood(
        self, state: TableState, jobs: list[Job]
    ) -> list[OpenJob | StartJob | AlterJob | CommitJob | Moved | LakemarkError]:
        named = iter(self._names.understood(state, [job for job in jobs if isinstance(job, NamedJob)]))
        return [next(named) if isinstance(job, NamedJob) else job for job in jobs]

    def _and_opened(
        self, state: TableState, job: Job, answer: pb.CommitResponse | LakemarkError, now: int
    ) -> Answer | LakemarkError:
        """Opens the next instant of a writer that was committed and wants one."""
        if isinstance(answer, LakemarkError) or not isinstance(job, NamedJob) or isinstance(job.work, OpenJob):
            return answer
        if not job.work.HasField("next"):
            return answer
        return CommittedAndOpened(answer, self._open(state, OpenJob.of(job.work.next), now))

    def _begin(self, state: TableState, job: OpenJob | StartJob | AlterJob, now: int) -> Answer | LakemarkError:
        if isinstance(job, OpenJob):
            return self._open(state, job, now)
        try:
            if isinstance(job, AlterJob):
                return altered_once(state, job, now)
            return started(state, job, now, self._log)
        except Unavailable:
            raise  # of the store, in the middle: what this job has written so far must not be committed with the others
        except LakemarkError as error:
            return error

    def _open(self, state: TableState, job: OpenJob, now: int) -> Opened | LakemarkError:
        try:
            return opened_once(state, job, now, self._log, self._quotas)
        except Unavailable:
            raise  # likewise
        except LakemarkError as error:
            return error


def remember(log: ChangeLog, state: TableState) -> None:
    """What was published, once its transaction is durable."""
    for key, branch in state.branches.items():
        log.add(state.table_id, key, branch.fresh)
