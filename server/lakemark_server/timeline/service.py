"""The timeline of lake tables: the protocol of instants, from request to completion or rollback."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, Protocol, cast

import pyarrow as pa

from lakemark_core.errors import CommitConflict, InstantStateError, InvalidArgument, LimitExceeded, NotFound
from lakemark_proto.store.v1.store_pb2 import InstantRecord, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1 import types_pb2
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import deadline
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.file_index.pages.blocks import LIST_FILES_MAX
from lakemark_server.kv import ReadTransaction, Store, Transaction
from lakemark_server.store.mutations import Mutations
from lakemark_server.store.requests import check_request_id, transact_once
from lakemark_server.timeline import records
from lakemark_server.timeline.batching.batcher import Answered, Batcher
from lakemark_server.timeline.batching.batches import Answer, Batches, Job, remember, size_of
from lakemark_server.timeline.batching.jobs import CommittedAndOpened, Moved, Opened, OpenJob, StartJob, check_open
from lakemark_server.timeline.batching.named import NamedJob, TableKey, TableNames
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.instants import alive, pages, staging
from lakemark_server.timeline.instants.alive import Alive
from lakemark_server.timeline.lineage import Lineage
from lakemark_server.timeline.publication import direct
from lakemark_server.timeline.publication.publish import CommitJob, check_metadata, response_of
from lakemark_server.timeline.publication.rollback import delete_files, keep_conflict, roll_back
from lakemark_server.timeline.publication.schema_change import AlterJob
from lakemark_server.timeline.publication.table_state import TableState
from lakemark_server.timeline.publication.together import Together
from lakemark_server.timeline.references import References
from lakemark_server.timeline.savepoints import Savepoints

PAGE_MAX: Final = 1_000
TOGETHER_MAX: Final = 100


class VersionFiles(Protocol):
    """The files of versions, which commits that take some out have to look up."""

    def find_files(self, table: LakeTable, lineage: Lineage, version: int, paths: Sequence[str]) -> pa.RecordBatch:
        """The fixed columns of these live files, in the order of the paths. Raises InvalidFile."""
        ...


class Timeline:
    """Thread-safe; holds no state that another process would need."""

    def __init__(
        self, store: Store, files: VersionFiles, clock: ClockMs = now_ms, quotas: Quotas | None = None
    ) -> None:
        self._store = store
        self._quotas = quotas or Quotas(store)
        self._clock = clock
        self._mutations = Mutations(store, clock)
        self._files = files
        self.log = ChangeLog()
        self.references = References(self._mutations, self.log)
        self.savepoints = Savepoints(self._mutations)
        self._reading = threading.Lock()
        self._names = TableNames()
        self._batches: Batcher[int, Job, Answer] = Batcher(
            Batches(store, clock, self.log, self._quotas, self._names).run, size_of
        )

    # -- writers ------------------------------------------------------------------------------------------------------

    def open(self, table_id: int, job: OpenJob) -> Opened:
        """A new instant, REQUESTED or (with a profile) INFLIGHT. Raises CommitConflict if it would collide at once."""
        check_open(job)
        return cast(Opened, self._batches.submit(table_id, job))

    def open_named(self, name: TableKey, job: OpenJob, answered: Answered[Opened | Moved]) -> bool:
        """``open`` without a thread that waits; ``answered`` gets what it would return or raise, or MOVED.

        False, and nothing is done: the name was never looked up. Raises InvalidArgument, LimitExceeded.
        """
        check_open(job)
        return self._hand_in(NamedJob(name, job), cast("Answered[Answer]", answered))

    def commit_named(
        self,
        name: TableKey,
        request: pb.CommitRequest,
        answered: Answered[pb.CommitResponse | CommittedAndOpened | Moved],
    ) -> bool:
        """Likewise ``commit``, for a request that is small (``batching.reading.is_small``), and may have a ``next``."""
        if request.HasField("next"):
            check_open(OpenJob.of(request.next))
        check_request_id(request.request_id)
        check_metadata(request.metadata)
        return self._hand_in(NamedJob(name, request), cast("Answered[Answer]", answered))

    def _hand_in(self, job: NamedJob, answered: Answered[Answer]) -> bool:
        table_id = self._names.last_id(job.name)
        if table_id is None:
            return False
        self._batches.hand_in(table_id, job, answered)
        return True

    def learn(self, name: TableKey, table_id: int) -> None:
        """So that ``open_named`` and ``commit_named`` know where to queue."""
        self._names.learn(name, table_id)

    def start(self, table_id: int, instant: int, profile: pb.WorkProfile) -> Opened:
        """REQUESTED -> INFLIGHT, unless the work would collide with a commit or with another live writer."""
        return cast(Opened, self._batches.submit(table_id, StartJob(instant, profile)))

    def stage(self, table: LakeTable, request: pb.StageFilesRequest) -> InstantRecord:
        """Writes entries under the instant, which it returns with the totals so far.

        Raises InvalidArgument, InvalidFile, InvalidSchema, InstantStateError, InstantNotFound, LimitExceeded.
        """
        if not 1 <= request.sequence < staging.COMMIT_SEQUENCE:
            raise InvalidArgument("sequence must be 1 for the first request that stages files, then 2, 3 …")
        table = self._as_written(table, request.instant)
        if request.file_schema:
            staging.check_file_schema(request.file_schema, table)
        entries = staging.NO_ENTRIES
        if request.HasField("added"):
            entries = staging.read_entries(request.added, table, request.instant)
        if request.removed.paths:
            record, _ = self.instant(table.table_id, request.instant)
            entries = self._with_removed(entries, table, record, request.removed.paths)
        return staging.stage(self._mutations, table, request.instant, entries, request.sequence, self._quotas)

    def commit(self, table: LakeTable, request: pb.CommitRequest) -> pb.CommitResponse:
        """INFLIGHT -> COMPLETED as a new version. Asked again, it answers the same.

        Raises CommitConflict (the instant is rolled back then), InstantStateError, InstantNotFound, InvalidFile,
        InvalidSchema, LimitExceeded.
        """
        job = self._prepared(table, request)
        if isinstance(job, InstantRecord):
            return response_of(job)
        return cast(pb.CommitResponse, self._batches.submit(table.table_id, job))

    def commit_together(
        self, commits: Sequence[tuple[LakeTable, pb.CommitRequest]], request_id: str = ""
    ) -> list[pb.CommitResponse]:
        """Publishes on several tables (or branches) in one transaction: all or none. Asked again, it answers the same.

        Raises as ``commit``; what refuses one refuses all, and rolls back that one's instant alone. LimitExceeded: the
        commits are too large for one transaction.
        """
        check_request_id(request_id)
        if not 1 <= len(commits) <= TOGETHER_MAX:
            raise InvalidArgument(f"a transaction has 1 to {TOGETHER_MAX} commits, not {len(commits)}")
        instants = [(table.table_id, request.instant) for table, request in commits]
        if len(set(instants)) < len(instants):
            raise InvalidArgument("a transaction names each instant once")
        prepared = [self._prepared(table, request) for table, request in commits]
        if all(isinstance(job, InstantRecord) for job in prepared):
            return [response_of(cast(InstantRecord, job)) for job in prepared]
        jobs = [CommitJob(job.instant) if isinstance(job, InstantRecord) else job for job in prepared]
        together = Together([(table.table_id, job) for (table, _), job in zip(commits, jobs, strict=True)], request_id)
        try:
            states, answers = self._store.transact(lambda tx: together.publish(tx, self._clock(), self.log))
        except CommitConflict as conflict:
            table, request = commits[together.refused]
            self._give_up(table, request.instant, conflict)
            raise
        for state in states:
            remember(self.log, state)
        return answers

    def _prepared(self, table: LakeTable, request: pb.CommitRequest) -> CommitJob | InstantRecord:
        """What is left to publish once everything is staged that does not fit into the version's own record; the
        instant itself if it was committed before."""
        check_request_id(request.request_id)
        check_metadata(request.metadata)
        table = self._as_written(table, request.instant, request.schema_id)
        if request.file_schema:
            staging.check_file_schema(request.file_schema, table)
        instant, entries = request.instant, staging.NO_ENTRIES
        if request.HasField("added"):
            entries = self._read_entries(request.added, table, instant)
        if request.removed.paths or not entries.inline:
            record, _ = self.instant(table.table_id, instant)
            if record.state == pb.COMPLETED:
                return record
            entries = self._with_removed(entries, table, record, request.removed.paths)
            if not entries.inline:
                staging.stage(self._mutations, table, instant, entries, staging.COMMIT_SEQUENCE, self._quotas)
                entries = staging.NO_ENTRIES
        return CommitJob(instant, request.schema_id, dict(request.metadata), entries)

    def _with_removed(
        self, entries: staging.Entries, table: LakeTable, record: InstantRecord, paths: Sequence[str]
    ) -> staging.Entries:
        """Looks the files up in the version that the writer has read. Raises InvalidFile for those it does not have."""
        if not paths:
            return entries
        lineage = self._store.read(lambda tx: forks.lineage(tx, table.table_id, record.branch))
        return staging.with_removed(entries, self._files.find_files(table, lineage, record.read_version, paths))

    def alter_schema(self, table_id: int, job: AlterJob) -> LakeTable:
        """The table with its new schema, which came with a version of main. Asked again, it answers the same.

        Raises InvalidSchema with every change that is refused and why, FailedPrecondition, LimitExceeded.
        """
        check_request_id(job.request_id)
        return cast(LakeTable, self._batches.submit(table_id, job))

    def restore(self, table: LakeTable, request: pb.RestoreRequest, owner: str = "") -> pb.CommitResponse:
        """A new version of a branch with the files of an old one. Raises VersionNotFound, BranchNotFound …"""

        def body(tx: Transaction, now: int) -> pb.CommitResponse:
            state = TableState(tx, table.table_id)
            version = direct.restore(state, state.branch_named(request.branch), request.version, owner, now)
            return pb.CommitResponse(
                version=version.version, instant=version.instant, committed_ms=version.committed_ms
            )

        kind = f"Restore of table {table.table_id}"
        return transact_once(self._store, self._clock, request.request_id, kind, pb.CommitResponse, body)

    def heartbeat(self, table_id: int, instants: Iterable[int]) -> list[int]:
        """Renews them; returns those that are not alive any more."""
        wanted = list(instants)
        if len(wanted) > PAGE_MAX:
            raise LimitExceeded(f"one heartbeat names at most {PAGE_MAX} instants")

        def body(tx: Transaction) -> list[int]:
            now, lost = self._clock(), []
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

        return self._store.transact(body)

    def rollback(
        self, table: LakeTable, instant: int, reason: str, conflict: CommitConflict | None = None
    ) -> InstantRecord:
        """REQUESTED, INFLIGHT -> ROLLED_BACK; what was staged is forgotten, the writer's files are deleted.

        ``conflict`` is kept with the instant, as the answer to a commit that is asked for again.
        Again: nothing happens. Raises InstantStateError for a version, InstantNotFound.
        """
        table_id = table.table_id

        def body(tx: Transaction) -> InstantRecord:
            record = records.instant(tx, table_id, instant)
            if record.state == pb.COMPLETED:
                raise InstantStateError(
                    f"instant {instant} was committed as version {record.version}; a version cannot be rolled back",
                    instant=str(instant),
                    state="COMPLETED",
                )
            if record.state != pb.ROLLED_BACK:
                if conflict is not None:
                    keep_conflict(record, conflict)
                roll_back(tx, table.record.catalog, table_id, record, reason, self._clock())
            return record

        record = self._store.transact(body)
        delete_files(table.record.location, instant)
        return record

    def roll_back_expired(self) -> list[tuple[int, int]]:
        """(table id, instant) of all writers whose heartbeat ran out; they are rolled back now."""
        now = self._clock()
        done, begin = [], alive.FIRST
        while begin:
            page, begin = self._store.read(lambda tx, begin=begin: alive.everywhere(tx, begin))  # type: ignore[misc]
            for table_id, living in page:
                if living.expired(now):
                    expire = partial(_expire, table_id=table_id, instant=living.instant, now=now)
                    location = self._store.transact(expire)
                    if location:
                        delete_files(location, living.instant)
                        done.append((table_id, living.instant))
        return done

    # -- readers ------------------------------------------------------------------------------------------------------

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

        found = self._store.read(body)
        return found[:limit], len(found) > limit

    # -- inside -------------------------------------------------------------------------------------------------------

    def _give_up(self, table: LakeTable, instant: int, conflict: CommitConflict) -> None:
        """The versions that it lost to stay: it could never succeed, and must not hold off others until it expires.
        However late it is: the answer to its commit depends on it."""
        with deadline.within(deadline.NEVER):
            self.rollback(table, instant, conflict.message, conflict)

    def _as_written(self, table: LakeTable, instant: int, schema_id: int = 0) -> LakeTable:
        """With the schema that the instant's files were written with, which need not be the latest."""
        if table.schema.schema_id == 1:  # there never was another one
            return table
        return self._store.read(lambda tx: staging.written_with(tx, table, instant, schema_id))

    def _read_entries(self, files: types_pb2.DataFiles, table: LakeTable, instant: int) -> staging.Entries:
        """Few files: one request at a time. Each of the many calls into Arrow gives up the interpreter's lock, and
        threads that do so at once spend more time on getting it back than on their work."""
        if files.WhichOneof("form") == "list" and len(files.list.files) <= LIST_FILES_MAX:
            with self._reading:
                return staging.read_entries(files, table, instant)
        return staging.read_entries(files, table, instant)


def _expire(tx: Transaction, *, table_id: int, instant: int, now: int) -> str:
    """Rolls back a writer that is lost; returns the table's location, or "" if it lives or its table is gone."""
    living = alive.find(tx, table_id, instant)
    if living is None or not living.expired(now):
        return ""
    try:
        table = lake.get_record(tx, table_id, or_dropped=True)
        record = records.instant(tx, table_id, instant)
    except NotFound:
        alive.clear(tx, table_id, instant)
        return ""
    roll_back(tx, table.catalog, table_id, record, f"its heartbeat ran out ({living.timeout_ms} ms)", now)
    return table.location
