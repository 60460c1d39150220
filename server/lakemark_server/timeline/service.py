"""The timeline of lake tables: the protocol of instants, from request to completion or rollback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, cast

from lakemark_core.errors import CommitConflict, InstantStateError, InvalidArgument, LimitExceeded, NotFound
from lakemark_proto.store.v1.store_pb2 import CommittedRecord, InstantRecord, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1.types_pb2 import DataFiles
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import deadline
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.store.requests import check_request_id
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.instants import alive, pages
from lakemark_server.timeline.instants.alive import Alive
from lakemark_server.timeline.jobs.alteration import AlterJob
from lakemark_server.timeline.jobs.batcher import Answered, Batcher
from lakemark_server.timeline.jobs.batches import Batches, remember
from lakemark_server.timeline.jobs.buckets import BucketsJob
from lakemark_server.timeline.jobs.commit import CommitJob, SmallCommitJob
from lakemark_server.timeline.jobs.job import Answer, CommittedAndOpened, Job, Opened, Retry, TableKey
from lakemark_server.timeline.jobs.named import NamedJob, TableNames
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.jobs.start import StartJob
from lakemark_server.timeline.preparation import Preparation, VersionFiles
from lakemark_server.timeline.publication import direct
from lakemark_server.timeline.publication.commits import Commit, CommitDraft, Committed
from lakemark_server.timeline.publication.rollback import delete_files, keep_conflict, roll_back
from lakemark_server.timeline.publication.table_state import TableState
from lakemark_server.timeline.publication.together import Together
from lakemark_server.timeline.references import References
from lakemark_server.timeline.refusals import Refusals
from lakemark_server.timeline.savepoints import Savepoints

PAGE_MAX: Final = 1_000
TOGETHER_MAX: Final = 100


class Timeline:
    """Thread-safe; holds no state that another process would need."""

    def __init__(
        self, store: Store, files: VersionFiles, clock: ClockMs = now_ms, quotas: Quotas | None = None
    ) -> None:
        self._store = store
        quotas = quotas or Quotas(store)
        self._mutations = Mutations(store, clock)
        self.log = ChangeLog()
        self.references = References(self._mutations, self.log)
        self.savepoints = Savepoints(self._mutations)
        self.refusals = Refusals()
        self._preparation = Preparation(self._mutations, files, quotas)
        self._names = TableNames()
        self._batches: Batcher[int, Job, Answer] = Batcher(
            Batches(self._mutations, self.log, quotas, self.refusals).run, lambda job: job.size_bytes
        )

    # -- writers ------------------------------------------------------------------------------------------------------

    def open(self, table_id: int, job: OpenJob) -> Opened:
        """A new instant, REQUESTED or (with a profile) INFLIGHT. Raises CommitConflict if it would collide at once."""
        job.check()
        return cast(Opened, self._batches.submit(table_id, job))

    def open_by(self, table_id: int, job: Job) -> Opened:
        """What a job of another domain opens, which writes its own records in the same transaction. Raises its
        error."""
        return cast(Opened, self._batches.submit(table_id, job))

    def open_named(self, name: TableKey, job: OpenJob, answered: Answered[Opened | Retry]) -> bool:
        """``open`` without a thread that waits; ``answered`` is given what it would return or raise, or a Retry.

        False, and nothing is done: the name was never looked up. Raises InvalidArgument, LimitExceeded.
        """
        job.check()
        return self._hand_in(name, job, cast("Answered[Answer]", answered))

    def commit_named(
        self, name: TableKey, job: SmallCommitJob, answered: Answered[Committed | CommittedAndOpened | Retry]
    ) -> bool:
        """``commit`` (or ``commit_and_open``, if an instant is to follow) without a thread that waits."""
        job.check()
        return self._hand_in(name, job, cast("Answered[Answer]", answered))

    def _hand_in(self, name: TableKey, job: Job, answered: Answered[Answer]) -> bool:
        table_id = self._names.last_id(name)
        if table_id is None:
            return False
        self._batches.hand_in(table_id, NamedJob(name, job, self._names), answered)
        return True

    def learn(self, name: TableKey, table_id: int) -> None:
        """So that ``open_named`` and ``commit_named`` know where to queue."""
        self._names.learn(name, table_id)

    def start(self, table_id: int, instant: int, profile: pb.WorkProfile) -> Opened:
        """REQUESTED -> INFLIGHT, unless the work would collide with a commit or with another live writer."""
        return cast(Opened, self._batches.submit(table_id, StartJob(instant, profile)))

    def stage(
        self,
        table: LakeTable,
        instant: int,
        sequence: int,
        *,
        added: DataFiles | None = None,
        removed: Sequence[str] = (),
        file_schema: bytes = b"",
    ) -> InstantRecord:
        """Writes entries under the instant, which it returns with the totals so far.

        ``sequence`` numbers the requests of an instant: 1, 2, 3 … Files come as the data message that the writer sent.
        ``removed`` are paths relative to the table's location, ``file_schema`` is the Arrow schema (IPC) of the files;
        empty: not told. Raises InvalidArgument, InvalidFile, InvalidSchema, InstantStateError, InstantNotFound,
        LimitExceeded.
        """
        return self._preparation.stage(table, instant, sequence, added, removed, file_schema)

    def commit(self, table: LakeTable, draft: CommitDraft) -> Committed:
        """INFLIGHT -> COMPLETED as a new version. Asked again, it answers the same.

        Raises CommitConflict (the instant is rolled back then), InstantStateError, InstantNotFound, InvalidFile,
        InvalidSchema, LimitExceeded.
        """
        commit = self._preparation.commit(table, draft)
        if isinstance(commit, InstantRecord):
            return Committed.of_instant(commit)
        return cast(Committed, self._batches.submit(table.table_id, CommitJob(commit)))

    def commit_and_open(self, table: LakeTable, draft: CommitDraft, following: OpenJob) -> CommittedAndOpened:
        """``commit`` and then ``open`` of the writer's next instant, in one transaction. Raises as ``commit``."""
        following.check()
        commit = self._preparation.commit(table, draft)
        if isinstance(commit, InstantRecord):  # it was committed before, and answers the same
            commit = Commit(commit.instant)
        return cast(CommittedAndOpened, self._batches.submit(table.table_id, CommitJob(commit, following)))

    def commit_together(self, drafts: Sequence[tuple[LakeTable, CommitDraft]], request_id: str = "") -> list[Committed]:
        """Publishes on several tables (or branches) in one transaction: all or none. Asked again, it answers the same.

        Raises as ``commit``; what refuses one refuses all, and rolls back that one's instant alone. LimitExceeded: the
        commits are too large for one transaction.
        """
        check_request_id(request_id)
        if not 1 <= len(drafts) <= TOGETHER_MAX:
            raise InvalidArgument(f"a transaction has 1 to {TOGETHER_MAX} commits, not {len(drafts)}")
        instants = [(table.table_id, draft.instant) for table, draft in drafts]
        if len(set(instants)) < len(instants):
            raise InvalidArgument("a transaction names each instant once")
        prepared = [self._preparation.commit(table, draft) for table, draft in drafts]
        completed = [commit for commit in prepared if isinstance(commit, InstantRecord)]
        if len(completed) == len(prepared):
            return [Committed.of_instant(record) for record in completed]
        commits = [Commit(commit.instant) if isinstance(commit, InstantRecord) else commit for commit in prepared]
        together = Together(
            [(table.table_id, commit) for (table, _), commit in zip(drafts, commits, strict=True)], request_id
        )
        try:
            states, answers = self._mutations.run(lambda mutation: together.publish(mutation, self.log))
        except CommitConflict as conflict:
            table, draft = drafts[together.refused]
            self._give_up(table, draft.instant, conflict)
            raise
        for state in states:
            remember(self.log, state)
        return answers

    def alter_schema(self, table_id: int, job: AlterJob) -> LakeTable:
        """The table with its new schema, which came with a version of main. Asked again, it answers the same.

        Raises InvalidSchema with every change that is refused and why, FailedPrecondition, LimitExceeded.
        """
        job.check()
        return cast(LakeTable, self._batches.submit(table_id, job))

    def alter_buckets(self, table_id: int, job: BucketsJob) -> LakeTable:
        """The table with its new directory of buckets, which came with a version of main. Asked again, it answers the
        same.

        Raises InvalidArgument, FailedPrecondition.
        """
        job.check()
        return cast(LakeTable, self._batches.submit(table_id, job))

    def restore(
        self, table: LakeTable, version: int, *, branch: str = "", request_id: str = "", owner: str = ""
    ) -> Committed:
        """A new version of a branch (empty: main) with the files of an old one.

        Asked again with the same request id, it answers the same. Raises VersionNotFound, BranchNotFound …
        """

        def body(mutation: Mutation) -> CommittedRecord:
            state = TableState(mutation, table.table_id)
            restored = direct.restore(state, state.branch_named(branch), version, owner, mutation.now_ms)
            return CommittedRecord(
                version=restored.version, instant=restored.instant, committed_ms=restored.committed_ms
            )

        kind = f"Restore of table {table.table_id}"
        return Committed.of_record(self._mutations.once(request_id, kind, CommittedRecord, body).answer)

    def heartbeat(self, table_id: int, instants: Iterable[int]) -> list[int]:
        """Renews them; returns those that are not alive any more."""
        wanted = list(instants)
        if len(wanted) > PAGE_MAX:
            raise LimitExceeded(f"one heartbeat names at most {PAGE_MAX} instants")

        def body(mutation: Mutation) -> list[int]:
            tx, now, lost = mutation.tx, mutation.now_ms, []
            for instant in wanted:
                living = alive.find(tx, table_id, instant)
                if living is None or living.expired(now):
                    lost.append(instant)
                else:
                    renewed = Alive(
                        instant, now + living.timeout_ms, living.timeout_ms, living.inflight, living.operation
                    )
                    alive.put(tx, table_id, renewed)
            return lost

        return self._mutations.run(body)

    def rollback(
        self, table: LakeTable, instant: int, reason: str, conflict: CommitConflict | None = None
    ) -> InstantRecord:
        """REQUESTED, INFLIGHT -> ROLLED_BACK; what was staged is forgotten, the writer's files are deleted.

        ``conflict`` is kept with the instant, as the answer to a commit that is asked for again.
        Again: nothing happens. Raises InstantStateError for a version, InstantNotFound.
        """
        table_id = table.table_id

        def body(mutation: Mutation) -> InstantRecord:
            record = records.instant(mutation.tx, table_id, instant)
            if record.state == pb.COMPLETED:
                raise InstantStateError(
                    f"instant {instant} was committed as version {record.version}; a version cannot be rolled back",
                    instant=str(instant),
                    state="COMPLETED",
                )
            if record.state != pb.ROLLED_BACK:
                if conflict is not None:
                    keep_conflict(record, conflict)
                roll_back(mutation, table.record, record, reason)
            return record

        record = self._mutations.run(body)
        delete_files(table.record.location, instant)
        return record

    def roll_back_expired(self) -> list[tuple[int, int]]:
        """(table id, instant) of all writers whose heartbeat ran out; they are rolled back now."""
        now = self._mutations.clock()
        done, begin = [], alive.FIRST
        while begin:
            page, begin = self._store.read(lambda tx, begin=begin: alive.everywhere(tx, begin))  # type: ignore[misc]
            for table_id, living in page:
                if living.expired(now):
                    location = self._mutations.run(partial(_expire, table_id, living.instant))
                    if location is not None:
                        done.append((table_id, living.instant))
                    if location:
                        delete_files(location, living.instant)
        return done

    # -- readers ------------------------------------------------------------------------------------------------------

    def open_instants(self, begin: bytes = b"") -> tuple[list[tuple[int, Alive]], bytes]:
        """A page of (table id, instant) of all tables that are requested or inflight, and where the next one begins.

        ``begin`` b"": with the first; an answer of b"": it was the last. At most ``alive.PAGE_MAX`` at once.
        """
        return self._store.read(lambda tx: alive.everywhere(tx, begin or alive.FIRST))

    def instant(self, table_id: int, instant: int) -> tuple[InstantRecord, Alive | None]:
        """With its heartbeat, if it is still open. Raises InstantNotFound."""
        return self._store.read(lambda tx: (records.instant(tx, table_id, instant), alive.find(tx, table_id, instant)))

    def instants(
        self,
        table_id: int,
        *,
        after: int = 0,
        before: int = 0,
        states: frozenset[int] = frozenset(),
        limit: int = 100,
        newest_first: bool = False,
    ) -> tuple[list[InstantRecord], int]:
        """Those with ``after < instant < before``, and the one behind which to go on; 0: that was all."""
        return self._store.read(
            lambda tx: pages.instants(
                tx, table_id, after=after, before=before, states=states, limit=limit, newest_first=newest_first
            )
        )

    def versions(
        self,
        table_id: int,
        branch: str,
        *,
        after: int = 0,
        before: int = 0,
        limit: int = 100,
        newest_first: bool = False,
    ) -> tuple[list[VersionRecord], bool]:
        """Those with ``after < version < before``, and whether there are more."""

        def body(tx: ReadTransaction) -> list[VersionRecord]:
            lineage = forks.resolve(tx, table_id, branch)
            latest = records.head(tx, table_id, lineage.key).version
            upto = min(before - 1, latest) if before else latest
            return records.versions(tx, table_id, lineage, after, upto, limit=limit + 1, reverse=newest_first)

        versions = self._store.read(body)
        return versions[:limit], len(versions) > limit

    # -- inside -------------------------------------------------------------------------------------------------------

    def _give_up(self, table: LakeTable, instant: int, conflict: CommitConflict) -> None:
        """Rolls back an instant whose commit was refused, even if the request's deadline has passed.

        The versions that it lost to stay, so it could never succeed, and must not hold off others until it expires.
        """
        with deadline.within(deadline.NEVER):
            self.rollback(table, instant, conflict.message, conflict)


def _expire(table_id: int, instant: int, mutation: Mutation) -> str | None:
    """Rolls back a lost writer. Returns where its files are to be deleted ("": nowhere); None: it is not lost."""
    tx, now_ms = mutation.tx, mutation.now_ms
    living = alive.find(tx, table_id, instant)
    if living is None or not living.expired(now_ms):
        return None
    try:
        table = lake.get_record(tx, table_id, or_dropped=True)
        record = records.instant(tx, table_id, instant)
    except NotFound:
        alive.clear(tx, table_id, instant)
        return None
    roll_back(mutation, table, record, f"its heartbeat ran out ({living.timeout_ms} ms)")
    # Where the user chose the place of a dropped table another one may live by now, with an instant of that name.
    return "" if table.external and table.HasField("dropped") else table.location
