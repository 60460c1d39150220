"""TimelineService over the timeline domain."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import grpc

from lakemark_core.errors import LakemarkError
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceServicer
from lakemark_proto.v1.types_pb2 import TableName
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.clean_schedule import Retention
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.service import Catalog
from lakemark_server.context import caller
from lakemark_server.maintenance.cleaning.cleaner import Cleaner
from lakemark_server.rpc import comparisons, messages
from lakemark_server.rpc.answers import Answers
from lakemark_server.rpc.catalog import page_limit, require_name
from lakemark_server.rpc.declaration import method
from lakemark_server.rpc.errors import detail_of
from lakemark_server.rpc.loop import grpc_loop
from lakemark_server.rpc.quick import Quick
from lakemark_server.snapshots.comparisons import Comparer
from lakemark_server.timeline.jobs.commit import SmallCommitJob
from lakemark_server.timeline.jobs.job import CommittedAndOpened, Opened, Retry, TableKey
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import NO_METADATA, CommitDraft, Committed
from lakemark_server.timeline.service import Timeline

Context = grpc.ServicerContext


class TimelineServicer(TimelineServiceServicer):
    def __init__(self, catalog: Catalog, timeline: Timeline, comparer: Comparer, cleaner: Cleaner) -> None:
        self._catalog = catalog
        self._timeline = timeline
        self._comparer = comparer
        self._cleaner = cleaner
        self._answers = Answers(grpc_loop())
        self.quick: Mapping[str, Quick] = {
            "OpenInstant": Quick(lambda request: request, self._open_soon),
            "Commit": Quick(_small_commit, self._commit_soon),
        }

    def _table(self, name: TableName) -> LakeTable:
        require_name(name)
        return self._catalog.get_lake_table(name.catalog, name.database, name.table)

    @method(Rank.WRITE)
    def OpenInstant(self, request: pb.OpenInstantRequest, context: Context) -> pb.Instant:
        table = self._table(request.table)
        self._timeline.learn(_key(request.table), table.table_id)
        return _opened(self._timeline.open(table.table_id, _open_job(request)))

    async def _open_soon(self, request: pb.OpenInstantRequest) -> pb.Instant | None:
        name = _key(require_name(request.table))
        ask = partial(self._timeline.open_named, name, _open_job(request))
        opened = await self._answers.wait(ask, Retry.UNKNOWN_NAME)
        return None if isinstance(opened, Retry) else _opened(opened)

    @method(Rank.WRITE)
    def StartInstant(self, request: pb.StartInstantRequest, context: Context) -> pb.Instant:
        table = self._table(request.table)
        return _opened(self._timeline.start(table.table_id, request.instant, request.profile))

    @method(Rank.WRITE)
    def StageFiles(self, request: pb.StageFilesRequest, context: Context) -> pb.StageFilesResponse:
        table = self._table(request.table)
        record = self._timeline.stage(
            table,
            request.instant,
            request.sequence,
            added=request.added if request.HasField("added") else None,
            removed=request.removed.paths,
            file_schema=request.file_schema,
        )
        return pb.StageFilesResponse(staged_files=record.staged.files, removed_files=record.removed.files)

    @method(Rank.WRITE)
    def Commit(self, request: pb.CommitRequest, context: Context) -> pb.CommitResponse:
        table = self._table(request.table)
        self._timeline.learn(_key(request.table), table.table_id)
        draft = _draft(request)
        if not request.HasField("next"):
            return _committed(self._timeline.commit(table, draft))
        return _committed_and_opened(self._timeline.commit_and_open(table, draft, _open_job(request.next)))

    async def _commit_soon(self, commit: tuple[TableName, SmallCommitJob]) -> pb.CommitResponse | None:
        table, job = commit
        ask = partial(self._timeline.commit_named, _key(require_name(table)), job)
        answer = await self._answers.wait(ask, Retry.UNKNOWN_NAME)
        if isinstance(answer, Retry):
            return None
        return _committed(answer) if isinstance(answer, Committed) else _committed_and_opened(answer)

    @method(Rank.VITAL)
    def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        table = self._table(request.table)
        return pb.HeartbeatResponse(lost=self._timeline.heartbeat(table.table_id, request.instants))

    @method(Rank.WRITE)
    def RollbackInstant(self, request: pb.RollbackInstantRequest, context: Context) -> pb.Instant:
        table = self._table(request.table)
        return messages.instant(self._timeline.rollback(table, request.instant, request.reason), table)

    @method(Rank.READ)
    def GetInstant(self, request: pb.GetInstantRequest, context: Context) -> pb.Instant:
        table = self._table(request.table)
        record, living = self._timeline.instant(table.table_id, request.instant)
        return messages.instant(record, table, living)

    @method(Rank.READ)
    def ListInstants(self, request: pb.ListInstantsRequest, context: Context) -> pb.ListInstantsResponse:
        table = self._table(request.table)
        records, last = self._timeline.instants(
            table.table_id,
            after=request.after_instant,
            before=request.before_instant,
            states=frozenset(request.states),
            limit=page_limit(request.page_size),
            newest_first=request.newest_first,
        )
        shown = [messages.instant(record, table) for record in records]
        return pb.ListInstantsResponse(instants=shown, more=bool(last), last_instant=last)

    @method(Rank.WRITE)
    def CommitTransaction(self, request: pb.CommitTransactionRequest, context: Context) -> pb.CommitTransactionResponse:
        drafts = [(self._table(one.table), _draft(one)) for one in request.commits]
        committed = self._timeline.commit_together(drafts, request.request_id)
        return pb.CommitTransactionResponse(commits=map(_committed, committed))

    @method(Rank.WRITE)
    def Restore(self, request: pb.RestoreRequest, context: Context) -> pb.CommitResponse:
        restored = self._timeline.restore(
            self._table(request.table), request.version, branch=request.branch, request_id=request.request_id
        )
        return _committed(restored)

    @method(Rank.WRITE)
    def CreateSavepoint(self, request: pb.SavepointRequest, context: Context) -> pb.Instant:
        table = self._table(request.table)
        record = self._timeline.savepoints.create(
            table, request.version, branch=request.branch, comment=request.comment, request_id=request.request_id
        )
        return messages.instant(record, table)

    @method(Rank.WRITE)
    def DropSavepoint(self, request: pb.SavepointRequest, context: Context) -> pb.Instant:
        table = self._table(request.table)
        record = self._timeline.savepoints.drop(
            table, request.version, branch=request.branch, request_id=request.request_id
        )
        return messages.instant(record, table)

    @method(Rank.READ)
    def ListSavepoints(self, request: pb.ListSavepointsRequest, context: Context) -> pb.ListSavepointsResponse:
        savepoints = self._timeline.savepoints.find(self._table(request.table))
        return pb.ListSavepointsResponse(savepoints=map(messages.savepoint, savepoints))

    @method(Rank.WRITE)
    def Clean(self, request: pb.CleanRequest, context: Context) -> pb.CleanResponse:
        cleaned = self._cleaner.clean(
            self._table(request.table),
            Retention(request.retain_versions, request.retain_ms),
            branch=request.branch,
            dry_run=request.dry_run,
        )
        return pb.CleanResponse(
            earliest_version=cleaned.earliest_version,
            expired_versions=cleaned.expired_versions,
            files=cleaned.files,
            bytes=cleaned.bytes,
            instant=cleaned.instant,
            kept_versions=cleaned.kept_versions,
        )

    @method(Rank.READ)
    def ListVersions(self, request: pb.ListVersionsRequest, context: Context) -> pb.ListVersionsResponse:
        table = self._table(request.table)
        records, more = self._timeline.versions(
            table.table_id,
            request.branch,
            after=request.after_version,
            before=request.before_version,
            limit=page_limit(request.page_size),
            newest_first=request.newest_first,
        )
        return pb.ListVersionsResponse(versions=[messages.version(record) for record in records], more=more)

    @method(Rank.READ)
    def CompareVersions(self, request: pb.CompareVersionsRequest, context: Context) -> pb.CompareVersionsResponse:
        return comparisons.compare(self._comparer, self._table(request.table), request)


def _key(name: TableName) -> TableKey:
    return name.catalog, name.database, name.table


def _open_job(request: pb.OpenInstantRequest) -> OpenJob:
    starts = request.start or request.HasField("profile")
    return OpenJob(
        operation=request.operation,
        branch=request.branch,
        request_id=request.request_id,
        owner=request.owner,
        metadata=_metadata(request.metadata),
        heartbeat_timeout_ms=request.heartbeat_timeout_ms,
        read_version=request.read_version or None,
        profile=request.profile if starts else None,
    )


def _metadata(metadata: Mapping[str, str]) -> Mapping[str, str]:
    return dict(metadata) if metadata else NO_METADATA


def _draft(request: pb.CommitRequest) -> CommitDraft:
    # By position and with few looks into the message: this is done for each commit on the event loop.
    return CommitDraft(
        request.instant,
        request.added if request.HasField("added") else None,
        request.removed.paths if request.HasField("removed") else (),
        request.file_schema,
        request.schema_id,
        _metadata(request.metadata),
        request.request_id,
        caller.name(),
    )


def _small_commit(request: pb.CommitRequest) -> tuple[TableName, SmallCommitJob] | None:
    """None if it takes a thread of its own."""
    following = _open_job(request.next) if request.HasField("next") else None
    job = SmallCommitJob.of(_draft(request), following)
    return None if job is None else (request.table, job)


def _opened(opened: Opened) -> pb.Instant:
    return messages.opened_instant(opened.record, opened.table)


def _committed(committed: Committed) -> pb.CommitResponse:
    return pb.CommitResponse(
        version=committed.version,
        instant=committed.instant,
        committed_ms=committed.committed_ms,
        rebased_over=committed.rebased_over,
    )


def _committed_and_opened(answer: CommittedAndOpened) -> pb.CommitResponse:
    response = _committed(answer.committed)
    if isinstance(answer.opened, LakemarkError):
        response.next_refused.CopyFrom(detail_of(answer.opened))
    else:
        response.next.CopyFrom(_opened(answer.opened))
    return response
