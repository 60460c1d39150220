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
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.service import Catalog
from lakemark_server.maintenance.cleaning.cleaner import Cleaner
from lakemark_server.rpc import comparisons, messages
from lakemark_server.rpc.answers import Answers
from lakemark_server.rpc.catalog import page_limit, require_name
from lakemark_server.rpc.declaration import method
from lakemark_server.rpc.errors import detail_of
from lakemark_server.rpc.loop import grpc_loop
from lakemark_server.rpc.quick import Quick
from lakemark_server.snapshots.comparisons import Comparer
from lakemark_server.timeline.batching.jobs import MOVED, CommittedAndOpened, Moved, Opened, OpenJob, check_open
from lakemark_server.timeline.batching.named import TableKey
from lakemark_server.timeline.batching.reading import is_small
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
            "OpenInstant": Quick(lambda request: True, self._open_soon),
            "Commit": Quick(is_small, self._commit_soon),
        }

    def _table(self, name: TableName) -> LakeTable:
        require_name(name)
        return self._catalog.get_lake_table(name.catalog, name.database, name.table)

    @method(Rank.WRITE)
    def OpenInstant(self, request: pb.OpenInstantRequest, context: Context) -> pb.Instant:
        table = self._table(request.table)
        self._timeline.learn(_key(request.table), table.table_id)
        return _opened(self._timeline.open(table.table_id, OpenJob.of(request)))

    async def _open_soon(self, request: pb.OpenInstantRequest) -> pb.Instant | None:
        name = _key(require_name(request.table))
        opened = await self._answers.wait(partial(self._timeline.open_named, name, OpenJob.of(request)), MOVED)
        return None if isinstance(opened, Moved) else _opened(opened)

    @method(Rank.WRITE)
    def StartInstant(self, request: pb.StartInstantRequest, context: Context) -> pb.Instant:
        table = self._table(request.table)
        return _opened(self._timeline.start(table.table_id, request.instant, request.profile))

    @method(Rank.WRITE)
    def StageFiles(self, request: pb.StageFilesRequest, context: Context) -> pb.StageFilesResponse:
        table = self._table(request.table)
        record = self._timeline.stage(table, request)
        return pb.StageFilesResponse(staged_files=record.staged.files, removed_files=record.removed.files)

    @method(Rank.WRITE)
    def Commit(self, request: pb.CommitRequest, context: Context) -> pb.CommitResponse:
        table = self._table(request.table)
        self._timeline.learn(_key(request.table), table.table_id)
        if not request.HasField("next"):
            return self._timeline.commit(table, request)
        following = OpenJob.of(request.next)
        check_open(following)
        answer = self._timeline.commit(table, request)
        try:
            return _with_next(answer, self._timeline.open(table.table_id, following))
        except LakemarkError as error:
            return _with_next(answer, error)

    async def _commit_soon(self, request: pb.CommitRequest) -> pb.CommitResponse | None:
        name = _key(require_name(request.table))
        answer = await self._answers.wait(partial(self._timeline.commit_named, name, request), MOVED)
        if isinstance(answer, CommittedAndOpened):
            return _with_next(answer.response, answer.opened)
        return None if isinstance(answer, Moved) else answer

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
        found, last = self._timeline.instants(
            table.table_id,
            after=request.after_instant,
            before=request.before_instant,
            states=frozenset(request.states),
            limit=page_limit(request.page_size),
            newest_first=request.newest_first,
        )
        shown = [messages.instant(record, table) for record in found]
        return pb.ListInstantsResponse(instants=shown, more=bool(last), last_instant=last)

    @method(Rank.WRITE)
    def CommitTransaction(self, request: pb.CommitTransactionRequest, context: Context) -> pb.CommitTransactionResponse:
        commits = [(self._table(one.table), one) for one in request.commits]
        return pb.CommitTransactionResponse(commits=self._timeline.commit_together(commits, request.request_id))

    @method(Rank.WRITE)
    def Restore(self, request: pb.RestoreRequest, context: Context) -> pb.CommitResponse:
        return self._timeline.restore(self._table(request.table), request)

    @method(Rank.WRITE)
    def CreateSavepoint(self, request: pb.SavepointRequest, context: Context) -> pb.Instant:
        table = self._table(request.table)
        return messages.instant(self._timeline.savepoints.create(table, request), table)

    @method(Rank.WRITE)
    def DropSavepoint(self, request: pb.SavepointRequest, context: Context) -> pb.Instant:
        table = self._table(request.table)
        return messages.instant(self._timeline.savepoints.drop(table, request), table)

    @method(Rank.READ)
    def ListSavepoints(self, request: pb.ListSavepointsRequest, context: Context) -> pb.ListSavepointsResponse:
        found = self._timeline.savepoints.find(self._table(request.table))
        return pb.ListSavepointsResponse(savepoints=map(messages.savepoint, found))

    @method(Rank.WRITE)
    def Clean(self, request: pb.CleanRequest, context: Context) -> pb.CleanResponse:
        return self._cleaner.clean(self._table(request.table), request)

    @method(Rank.READ)
    def ListVersions(self, request: pb.ListVersionsRequest, context: Context) -> pb.ListVersionsResponse:
        table = self._table(request.table)
        found, more = self._timeline.versions(
            table.table_id,
            request.branch,
            after=request.after_version,
            before=request.before_version,
            limit=page_limit(request.page_size),
            newest_first=request.newest_first,
        )
        return pb.ListVersionsResponse(versions=[messages.version(record) for record in found], more=more)

    @method(Rank.READ)
    def CompareVersions(self, request: pb.CompareVersionsRequest, context: Context) -> pb.CompareVersionsResponse:
        return comparisons.compare(self._comparer, self._table(request.table), request)


def _key(name: TableName) -> TableKey:
    return name.catalog, name.database, name.table


def _opened(opened: Opened) -> pb.Instant:
    return messages.opened_instant(opened.record, opened.table)


def _with_next(response: pb.CommitResponse, opened: Opened | LakemarkError) -> pb.CommitResponse:
    if isinstance(opened, LakemarkError):
        response.next_refused.CopyFrom(detail_of(opened))
    else:
        response.next.CopyFrom(_opened(opened))
    return response
