"""The timeline of lake tables: the protocol of instants, from request to completion or rollback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, cast

import structlog

from lakemark.errors import (
    CommitConflict,
    InstantStateError,
    InvalidArgument,
    LakemarkError,
    LimitExceeded,
    NotFound,
    Unimplemented,
)
from lakemark_proto.store.v1.store_pb2 import InstantRecord, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1 import types_pb2
from lakemark_server.catalog import lake, storage
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.clock import ClockMs, now_ms
from lakemark_server.keyspace import INSTANTS, MAIN
from lakemark_server.kv import ReadTransaction, Store, Transaction, TransactionTooLarge
from lakemark_server.requests import check_request_id, once
from lakemark_server.snapshot.blocks import LIST_FILES_MAX
from lakemark_server.snapshot.entries import partition_of
from lakemark_server.timeline import alive, records, staging
from lakemark_server.timeline.alive import Alive
from lakemark_server.timeline.batching import Batcher
from lakemark_server.timeline.change_log import ChangeLog
from lakemark_server.timeline.conflicts import RULES, Change, Collision, Verdict, find_collision
from lakemark_server.timeline.jobs import Opened, OpenJob, StartJob, check_open
from lakemark_server.timeline.lineage import OF_MAIN, Lineage
from lakemark_server.timeline.partition_list import PartitionList
from lakemark_server.timeline.publish import (
    CommitJob,
    change_of,
    check_metadata,
    publish,
    refusal,
    response_of,
)
from lakemark_server.timeline.states import expired, require_inflight
from lakemark_server.timeline.table_state import TableState

HEARTBEAT_TIMEOUT_MS: Final = 120_000
OPEN_INSTANTS_MAX: Final = 10_000
PAGE_MAX: Final = 1_000
_log = structlog.get_logger(__name__)


_Job = OpenJob | StartJob | CommitJob
_Answer = Opened | pb.CommitResponse


class Timeline:
    """Thread-safe; holds no state that another process would need."""

    def __init__(self, store: Store, clock: ClockMs = now_ms) -> None:
        self._store = store
        self._clock = clock
        self._log = ChangeLog()
        self._reading = threading.Lock()
        self._batches: Batcher[tuple[int, str], _Job, _Answer] = Batcher(self._run)

    # -- writers ------------------------------------------------------------------------------------------------------

    def open(self, table_id: int, branch: str, job: OpenJob) -> Opened:
        """A new instant, REQUESTED or (with a profile) INFLIGHT. Raises CommitConflict if it would collide at once."""
        _check_branch(branch)
        check_open(job)
        return cast(Opened, self._batches.submit((table_id, MAIN), job))

    def start(self, table_id: int, instant: int, profile: pb.WorkProfile) -> Opened:
        """REQUESTED -> INFLIGHT, unless the work would collide with a commit or with another live writer."""
        return cast(Opened, self._batches.submit((table_id, MAIN), StartJob(instant, profile)))

    def stage(
        self, table: LakeTable, instant: int, files: types_pb2.DataFiles, file_schema: bytes, sequence: int
    ) -> int:
        """Writes entries under the instant; returns how many files are staged in all."""
        if not 1 <= sequence < staging.COMMIT_SEQUENCE:
            raise InvalidArgument("sequence must be 1 for the first request that stages files, then 2, 3 …")
        if file_schema:
            staging.check_file_schema(file_schema, table)
        entries = staging.read_entries(files, table, instant)
        return staging.stage(self._store, table, instant, entries, sequence).files

    def commit(self, table: LakeTable, request: pb.CommitRequest) -> pb.CommitResponse:
        """INFLIGHT -> COMPLETED as a new version. Asked again, it answers the same.

        Raises CommitConflict (the instant is rolled back then), InstantStateError, InstantNotFound, InvalidFile,
        InvalidSchema, LimitExceeded.
        """
        instant = request.instant
        check_request_id(request.request_id)
        check_metadata(request.metadata)
        if request.file_schema:
            staging.check_file_schema(request.file_schema, table)
        job = CommitJob(instant, request.schema_id, dict(request.metadata))
        if request.HasField("added"):
            entries = self._read_entries(request.added, table, instant)
            if entries.inline:
                job = CommitJob(instant, request.schema_id, job.metadata, entries)
            else:
                record, _ = self.instant(table.table_id, instant)
                if record.state == pb.COMPLETED:
                    return response_of(record)
                staging.stage(self._store, table, instant, entries, staging.COMMIT_SEQUENCE)
        try:
            return cast(pb.CommitResponse, self._batches.submit((table.table_id, MAIN), job))
        except CommitConflict as conflict:
            # The versions that it lost to stay: it could never succeed, and must not hold off others until it expires.
            self.rollback(table, instant, conflict.message, conflict)
            raise

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
                    record.conflict.code, record.conflict.message = conflict.code, conflict.message
                    record.conflict.details.update({key: value[:1_000] for key, value in conflict.details.items()})
                _roll_back(tx, table_id, record, reason, self._clock())
            return record

        record = self._store.transact(body)
        _delete_files(table.record.location, instant)
        return record

    def roll_back_expired(self) -> list[tuple[int, int]]:
        """(table id, instant) of all writers whose heartbeat ran out; they are rolled back now."""
        now = self._clock()
        found = [(table_id, one) for table_id, one in self._store.read(alive.everywhere) if one.expired(now)]
        done = []
        for table_id, living in found:
            location = self._store.transact(partial(_expire, table_id=table_id, instant=living.instant, now=now))
            if location:
                _delete_files(location, living.instant)
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
    ) -> tuple[list[InstantRecord], bool]:
        """Those with ``after < instant < before``, and whether there are more."""

        def body(tx: ReadTransaction) -> tuple[list[InstantRecord], bool]:
            begin = INSTANTS.key(table_id, after + 1)
            end = INSTANTS.key(table_id, before) if before else INSTANTS.range(table_id)[1]
            found: list[InstantRecord] = []
            while begin < end:
                page = tx.get_range(begin, end, limit=PAGE_MAX, reverse=newest_first)
                for _, value in page:
                    record = InstantRecord.FromString(value)
                    if not states or record.state in states:
                        found.append(record)
                        if len(found) > limit:
                            return found[:limit], True
                if len(page) < PAGE_MAX:
                    break
                begin, end = (begin, page[-1][0]) if newest_first else (page[-1][0] + b"\x00", end)
            return found, False

        return self._store.read(body)

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
        _check_branch(branch)

        def body(tx: ReadTransaction) -> list[VersionRecord]:
            upto = before - 1 if before else records.head(tx, table_id, MAIN).version
            return records.versions(tx, table_id, OF_MAIN, after, upto, limit=limit + 1, reverse=newest_first)

        found = self._store.read(body)
        return found[:limit], len(found) > limit

    # -- inside -------------------------------------------------------------------------------------------------------

    def _read_entries(self, files: types_pb2.DataFiles, table: LakeTable, instant: int) -> staging.Entries:
        """Few files: one request at a time. Each of the many calls into Arrow gives up the interpreter's lock, and
        threads that do so at once spend more time on getting it back than on their work."""
        if files.WhichOneof("form") == "list" and len(files.list.files) <= LIST_FILES_MAX:
            with self._reading:
                return staging.read_entries(files, table, instant)
        return staging.read_entries(files, table, instant)

    def _run(self, key: tuple[int, str], jobs: list[_Job]) -> list[_Answer | LakemarkError]:
        table_id, branch = key
        commits = [job for job in jobs if isinstance(job, CommitJob)]

        def body(tx: Transaction) -> Callable[[], list[_Answer | LakemarkError]]:
            now = self._clock()
            state = TableState(tx, table_id, branch)
            opened = [self._begin(state, job, now) for job in jobs if not isinstance(job, CommitJob)]
            published, fresh = publish(state, commits, now, self._log) if commits else ([], [])

            def answers() -> list[_Answer | LakemarkError]:
                self._log.add(table_id, branch, fresh)
                of_commits, of_opens = iter(published), iter(opened)
                return [next(of_commits) if isinstance(job, CommitJob) else next(of_opens) for job in jobs]

            return answers

        try:
            return self._store.transact(body)()
        except TransactionTooLarge:
            if len(jobs) == 1:
                raise
            half = len(jobs) // 2
            return self._run(key, jobs[:half]) + self._run(key, jobs[half:])

    def _begin(self, state: TableState, job: OpenJob | StartJob, now: int) -> Opened | LakemarkError:
        try:
            if isinstance(job, StartJob):
                return self._started(state, job, now)
            return self._opened_once(state, job, now)
        except LakemarkError as error:
            return error

    def _opened_once(self, state: TableState, job: OpenJob, now: int) -> Opened:
        if not job.request_id:
            return self._opened(state, job, now)
        created: list[Opened] = []

        def create() -> InstantRecord:
            created.append(self._opened(state, job, now))
            return created[0].record

        kind = f"OpenInstant of table {state.table_id}"
        record = once(state.tx, job.request_id, kind, now, InstantRecord, create)
        if created:
            return created[0]
        # It may have moved on since; the writer that asks again wants to know where it stands.
        return Opened(records.instant(state.tx, state.table_id, record.instant), state.table)

    def _opened(self, state: TableState, job: OpenJob, now: int) -> Opened:
        table, latest = state.table, state.head.version
        if job.read_version > latest:
            raise InvalidArgument(
                f"read_version {job.read_version} does not exist; {table.name} is at version {latest}"
            )
        if len(state.writers) >= OPEN_INSTANTS_MAX:
            raise LimitExceeded(f"{table.name} has {OPEN_INSTANTS_MAX} open instants; no more are allowed")
        timeout = job.heartbeat_timeout_ms or HEARTBEAT_TIMEOUT_MS
        record = InstantRecord(
            branch=MAIN,
            operation=job.operation,
            state=pb.REQUESTED,
            read_version=job.read_version or latest,
            heartbeat_timeout_ms=timeout,
            opened_ms=now,
            schema_id=table.record.schema_id,
            owner=job.owner,
            metadata=job.metadata,
        )
        if job.profile is not None:
            self._check_start(state, record, job.profile, now)
            record.state = pb.INFLIGHT
        record.instant = records.next_instant(state.tx, state.table_id, now)
        records.put_instant(state.tx, state.table_id, record)
        state.put_writer(Alive(record.instant, now + timeout, timeout, record.state == pb.INFLIGHT, job.operation))
        return Opened(record, table)

    def _started(self, state: TableState, job: StartJob, now: int) -> Opened:
        record = records.instant(state.tx, state.table_id, job.instant)
        if record.state != pb.INFLIGHT:  # asked for again: nothing to do
            if record.state != pb.REQUESTED:
                require_inflight(record)
            living = alive.find(state.tx, state.table_id, job.instant)
            if living is None or living.expired(now):
                raise expired(record)
            self._check_start(state, record, job.profile, now)
            record.state = pb.INFLIGHT
            records.put_instant(state.tx, state.table_id, record)
            timeout = record.heartbeat_timeout_ms
            state.put_writer(Alive(record.instant, now + timeout, timeout, True, record.operation))
        return Opened(record, state.table)

    def _check_start(self, state: TableState, record: InstantRecord, profile: pb.WorkProfile, now: int) -> None:
        """Early conflict detection: against what was committed since the read version, and against live writers."""
        records.guard_starts(state.tx, state.table_id)
        table = state.table
        _apply_profile(record, profile, table)
        mine = change_of(record)
        done = self._log.between(
            state.tx, state.table_id, state.branch, record.read_version, state.head.version, fresh=()
        )
        collision = find_collision(table.policy, mine, done) or _live_collision(state, record, mine, now)
        if collision:
            raise refusal(table.name, collision, record.read_version)


def _live_collision(state: TableState, record: InstantRecord, mine: Change, now: int) -> Collision | None:
    policy = state.table.policy
    rivals = [
        one.instant
        for one in state.writers.values()
        if RULES[policy][mine.operation, one.operation] is not Verdict.NEVER
        and one.inflight
        and not one.expired(now)
        and one.instant != record.instant
    ]
    stored = state.tx.get_many([INSTANTS.key(state.table_id, instant) for instant in rivals], snapshot=True)
    others = [change_of(InstantRecord.FromString(value)) for value in stored if value is not None]
    return find_collision(policy, mine, others)


def _check_branch(branch: str) -> None:
    if branch not in ("", MAIN):
        raise Unimplemented(f"branch {branch!r}: this release has only the branch 'main'")


def _apply_profile(record: InstantRecord, profile: pb.WorkProfile, table: LakeTable) -> None:
    names = {partition_of(partition.values, table.schema) for partition in profile.partitions}
    everything = profile.whole_table or record.operation == pb.OVERWRITE_TABLE
    if profile.whole_table and record.operation == pb.OVERWRITE_PARTITIONS:
        raise InvalidArgument(
            "an overwrite of partitions names its partitions; to replace everything use OVERWRITE_TABLE"
        )
    if not table.schema.partition_columns and record.operation == pb.OVERWRITE_PARTITIONS:
        raise InvalidArgument(f"{table.name} has no partition columns; use OVERWRITE_TABLE")
    PartitionList(record.operation, names, everything).write_to(record)


def _roll_back(tx: Transaction, table_id: int, record: InstantRecord, reason: str, now: int) -> None:
    record.state = pb.ROLLED_BACK
    record.completed_ms = now
    record.rolled_back_reason = reason[:1_000]
    records.put_instant(tx, table_id, record)
    alive.clear(tx, table_id, record.instant)
    staging.discard(tx, table_id, record.instant)


def _expire(tx: Transaction, *, table_id: int, instant: int, now: int) -> str:
    """Rolls back a writer that is lost; returns the table's location, or "" if it lives or its table is gone."""
    living = alive.find(tx, table_id, instant)
    if living is None or not living.expired(now):
        return ""
    try:
        table = lake.get_record(tx, table_id)
        record = records.instant(tx, table_id, instant)
    except NotFound:
        alive.clear(tx, table_id, instant)
        return ""
    _roll_back(tx, table_id, record, f"its heartbeat ran out ({living.timeout_ms} ms)", now)
    return table.location


def _delete_files(location: str, instant: int) -> None:
    """The writer may be alive against all odds and write on: nobody will ever look into its directory."""
    try:
        storage.delete_directory(storage.child(location, str(instant)))
    except LakemarkError as error:
        _log.warning("files of a rolled back instant were left behind", instant=instant, reason=error.message)
