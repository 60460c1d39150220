"""The timeline of lake tables: the protocol of instants, from request to completion or rollback."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

import structlog

from lakemark.errors import (
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
from lakemark_server.kv import ReadTransaction, Store, Transaction
from lakemark_server.requests import check_request_id, once
from lakemark_server.snapshot.entries import partition_of
from lakemark_server.timeline import alive, records, staging
from lakemark_server.timeline.alive import Alive
from lakemark_server.timeline.batching import Batcher
from lakemark_server.timeline.change_log import ChangeLog
from lakemark_server.timeline.conflicts import OPERATIONS, RULES, Collision, Operation, Verdict, find_collision
from lakemark_server.timeline.partition_list import PartitionList
from lakemark_server.timeline.publish import (
    CommitJob,
    change_of,
    expired,
    publish,
    refusal,
    require_inflight,
    response_of,
)

HEARTBEAT_TIMEOUT_MS: Final = 120_000
HEARTBEAT_TIMEOUT_MS_MAX: Final = 24 * 3_600_000
OPEN_INSTANTS_MAX: Final = 10_000
METADATA_BYTES_MAX: Final = 20_000
PAGE_MAX: Final = 1_000
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A writer that wants an instant. ``profile`` is None if it stays requested."""

    operation: Operation
    request_id: str = ""
    owner: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    heartbeat_timeout_ms: int = 0
    read_version: int = 0
    profile: pb.WorkProfile | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """What a writer gets: its instant, and the table as it was then."""

    record: InstantRecord
    table: LakeTable


_Job = OpenJob | CommitJob
_Answer = Opened | pb.CommitResponse


class Timeline:
    """Thread-safe; holds no state that another process would need."""

    def __init__(self, store: Store, clock: ClockMs = now_ms) -> None:
        self._store = store
        self._clock = clock
        self._log = ChangeLog()
        self._batches: Batcher[tuple[int, str], _Job, _Answer] = Batcher(self._run)

    # -- writers ------------------------------------------------------------------------------------------------------

    def open(self, table_id: int, branch: str, job: OpenJob) -> Opened:
        """A new instant, REQUESTED or (with a profile) INFLIGHT. Raises CommitConflict if it would collide at once."""
        _check_branch(branch)
        _check_open(job)
        return cast(Opened, self._batches.submit((table_id, MAIN), job))

    def start(self, table_id: int, instant: int, profile: pb.WorkProfile) -> Opened:
        """REQUESTED -> INFLIGHT, unless the work would collide with a commit or with another live writer."""

        def body(tx: Transaction) -> Opened:
            table = lake.load(tx, table_id)
            record = records.instant(tx, table_id, instant)
            if record.state != pb.INFLIGHT:  # asked for again: nothing to do
                if record.state != pb.REQUESTED:
                    require_inflight(record)
                now = self._clock()
                living = alive.find(tx, table_id, instant)
                if living is None or living.expired(now):
                    raise expired(record)
                self._start(tx, table, record, profile, now)
            return Opened(record, table)

        return self._store.transact(body)

    def stage(
        self, table: LakeTable, instant: int, files: types_pb2.DataFiles, file_schema: bytes, sequence: int
    ) -> int:
        """Writes entries under the instant; returns how many files are staged in all."""
        if not 1 <= sequence < staging.COMMIT_SEQUENCE:
            raise InvalidArgument("sequence must be 1 for the first request that stages files, then 2, 3 …")
        entries = staging.read_entries(files, file_schema, table, instant)
        return staging.stage(self._store, table, instant, entries, sequence).files

    def commit(self, table: LakeTable, request: pb.CommitRequest) -> pb.CommitResponse:
        """INFLIGHT -> COMPLETED as a new version. Asked again, it answers the same.

        Raises CommitConflict, InstantStateError, InstantNotFound, InvalidFile, InvalidSchema, LimitExceeded.
        """
        instant = request.instant
        check_request_id(request.request_id)
        _check_metadata(request.metadata)
        job = CommitJob(instant, request.schema_id, dict(request.metadata))
        if request.HasField("added"):
            entries = staging.read_entries(request.added, request.file_schema, table, instant)
            if entries.inline:
                block = entries.blocks[0] if entries.blocks else b""
                job = CommitJob(instant, request.schema_id, job.metadata, block, entries.totals, entries.partitions)
                self._check_inline(table.table_id, instant, entries)
            else:
                record, _ = self.instant(table.table_id, instant)
                if record.state == pb.COMPLETED:
                    return response_of(record)
                staging.stage(self._store, table, instant, entries, staging.COMMIT_SEQUENCE)
        return cast(pb.CommitResponse, self._batches.submit((table.table_id, MAIN), job))

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

    def rollback(self, table: LakeTable, instant: int, reason: str) -> InstantRecord:
        """REQUESTED, INFLIGHT -> ROLLED_BACK; what was staged is forgotten, the writer's files are deleted.

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
            return records.versions(tx, table_id, MAIN, after, upto, limit=limit + 1, reverse=newest_first)

        found = self._store.read(body)
        return found[:limit], len(found) > limit

    # -- inside -------------------------------------------------------------------------------------------------------

    def _run(self, key: tuple[int, str], jobs: list[_Job]) -> list[_Answer | LakemarkError]:
        table_id, branch = key
        commits = [job for job in jobs if isinstance(job, CommitJob)]

        def body(tx: Transaction) -> Callable[[], list[_Answer | LakemarkError]]:
            now = self._clock()
            opened = [self._open(tx, table_id, job, now) for job in jobs if isinstance(job, OpenJob)]
            published, fresh = publish(tx, table_id, branch, commits, now, self._log) if commits else ([], [])

            def answers() -> list[_Answer | LakemarkError]:
                self._log.add(table_id, branch, fresh)
                of_commits, of_opens = iter(published), iter(opened)
                return [next(of_commits) if isinstance(job, CommitJob) else next(of_opens) for job in jobs]

            return answers

        return self._store.transact(body)()

    def _open(self, tx: Transaction, table_id: int, job: OpenJob, now: int) -> Opened | LakemarkError:
        try:
            if not job.request_id:
                return self._opened(tx, table_id, job, now)
            created: list[Opened] = []

            def create() -> InstantRecord:
                created.append(self._opened(tx, table_id, job, now))
                return created[0].record

            record = once(tx, job.request_id, f"OpenInstant of table {table_id}", now, InstantRecord, create)
            if created:
                return created[0]
            # It may have moved on since; the writer that asks again wants to know where it stands.
            return Opened(records.instant(tx, table_id, record.instant), lake.load(tx, table_id))
        except LakemarkError as error:
            return error

    def _opened(self, tx: Transaction, table_id: int, job: OpenJob, now: int) -> Opened:
        table = lake.load(tx, table_id)
        latest = records.head(tx, table_id, MAIN).version
        if job.read_version > latest:
            raise InvalidArgument(
                f"read_version {job.read_version} does not exist; {table.name} is at version {latest}"
            )
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
            metadata=dict(job.metadata),
        )
        if isinstance(job.profile, pb.WorkProfile):
            self._check_start(tx, table, record, job.profile, now)
            record.state = pb.INFLIGHT
        record.instant = records.next_instant(tx, table_id, now)
        records.put_instant(tx, table_id, record)
        living = Alive(record.instant, now + timeout, timeout, record.state == pb.INFLIGHT, job.operation)
        alive.put(tx, table_id, living)
        return Opened(record, table)

    def _start(
        self, tx: Transaction, table: LakeTable, record: InstantRecord, profile: pb.WorkProfile, now: int
    ) -> None:
        self._check_start(tx, table, record, profile, now)
        record.state = pb.INFLIGHT
        records.put_instant(tx, table.table_id, record)
        timeout = record.heartbeat_timeout_ms
        alive.put(tx, table.table_id, Alive(record.instant, now + timeout, timeout, True, record.operation))

    def _check_start(
        self, tx: Transaction, table: LakeTable, record: InstantRecord, profile: pb.WorkProfile, now: int
    ) -> None:
        """Early conflict detection: against what was committed since the read version, and against live writers."""
        _apply_profile(record, profile, table)
        mine = change_of(record)
        head = records.head(tx, table.table_id, record.branch)
        done = self._log.between(tx, table.table_id, record.branch, record.read_version, head.version, ())
        collision = find_collision(table.policy, mine, done) or self._live_collision(tx, table, record, now)
        if collision:
            raise refusal(table.name, collision, record.read_version)

    def _live_collision(self, tx: Transaction, table: LakeTable, record: InstantRecord, now: int) -> Collision | None:
        mine, rules = change_of(record), RULES[table.policy]
        living = alive.of_table(tx, table.table_id)
        if len(living) >= OPEN_INSTANTS_MAX:
            raise LimitExceeded(
                f"{table.name} has {len(living)} open instants; at most {OPEN_INSTANTS_MAX} are allowed"
            )
        rivals = [
            one.instant
            for one in living
            if one.inflight
            and not one.expired(now)
            and one.instant != record.instant
            and rules[mine.operation, one.operation] is not Verdict.NEVER
        ]
        stored = tx.get_many([INSTANTS.key(table.table_id, instant) for instant in rivals], snapshot=True)
        others = [change_of(InstantRecord.FromString(value)) for value in stored if value is not None]
        return find_collision(table.policy, mine, others)

    def _check_inline(self, table_id: int, instant: int, entries: staging.Entries) -> None:
        """Only a writer that staged before can bring a directory twice, and only it adds to what is staged."""

        def body(tx: ReadTransaction) -> None:
            record = records.instant(tx, table_id, instant)
            if record.state == pb.INFLIGHT:
                staging.check_new_slices(tx, table_id, record, entries.slices)

        self._store.read(body)


def _check_branch(branch: str) -> None:
    if branch not in ("", MAIN):
        raise Unimplemented(f"branch {branch!r}: this release has only the branch 'main'")


def _check_open(job: OpenJob) -> None:
    if job.operation not in OPERATIONS:
        name = pb.Operation.Name(job.operation)
        if job.operation == pb.OPERATION_UNSPECIFIED:
            raise InvalidArgument("operation is missing: say APPEND, OVERWRITE_PARTITIONS or OVERWRITE_TABLE")
        raise Unimplemented(
            f"operation {name} is not available yet; use APPEND, OVERWRITE_PARTITIONS or OVERWRITE_TABLE"
        )
    if not 0 <= job.heartbeat_timeout_ms <= HEARTBEAT_TIMEOUT_MS_MAX:
        raise InvalidArgument(f"heartbeat_timeout_ms must lie between 0 and {HEARTBEAT_TIMEOUT_MS_MAX}")
    if job.read_version < 0:
        raise InvalidArgument(f"read_version {job.read_version} is negative")
    check_request_id(job.request_id)
    _check_metadata(job.metadata)
    if len(job.owner) > 200:
        raise InvalidArgument("owner has more than 200 characters")


def _check_metadata(metadata: Mapping[str, str]) -> None:
    size = sum(len(key) + len(value) for key, value in metadata.items())
    if size > METADATA_BYTES_MAX:
        raise LimitExceeded(f"the metadata of an instant has {size} characters; at most {METADATA_BYTES_MAX} are kept")


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
