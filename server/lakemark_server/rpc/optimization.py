"""OptimizationService and OptimizerService over the optimization domain."""

from __future__ import annotations

from typing import Final

import grpc

from lakemark_core.errors import InvalidArgument
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1.optimization_pb2_grpc import OptimizationServiceServicer, OptimizerServiceServicer
from lakemark_proto.v1.types_pb2 import TableName
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.names import catalog_name
from lakemark_server.catalog.service import Catalog
from lakemark_server.optimization.records import TaskId
from lakemark_server.optimization.service import PARTITIONS_TOLD, Optimization
from lakemark_server.optimization.tasks import Tasks
from lakemark_server.rpc.catalog import page_limit, require_name
from lakemark_server.rpc.declaration import method
from lakemark_server.rpc.pages import decode_token, encode_token

RUNS_A_PAGE: Final = 100
Context = grpc.ServicerContext


class OptimizationServicer(OptimizationServiceServicer):
    def __init__(self, catalog: Catalog, optimization: Optimization) -> None:
        self._catalog, self._optimization = catalog, optimization

    def _table(self, name: TableName) -> LakeTable:
        require_name(name)
        return self._catalog.get_lake_table(name.catalog, name.database, name.table)

    @method(Rank.READ)
    def ExplainOptimization(self, request: pb.ExplainOptimizationRequest, context: Context) -> pb.TableOptimization:
        if request.limit < 0:
            raise InvalidArgument(f"limit is {request.limit}: it must be 0 (the service's choice) or more")
        limit = min(request.limit or PARTITIONS_TOLD, PARTITIONS_TOLD)
        return self._optimization.explain(
            self._table(request.table),
            request.partition or None,
            limit,
            properties=request.properties,
            by_expiry=request.expiries,
        )

    @method(Rank.READ)
    def ListOptimizations(self, request: pb.ListOptimizationsRequest, context: Context) -> pb.ListOptimizationsResponse:
        (after,) = decode_token(request.page_token, int) if request.page_token else (0,)
        limit = page_limit(request.page_size)
        catalog = catalog_name(request.catalog)
        tables, following, leader = self._optimization.tables(catalog, after, limit, request.group, request.states)
        token = "" if following is None else encode_token(following)
        return pb.ListOptimizationsResponse(tables=tables, next_page_token=token, leader=leader)

    @method(Rank.WRITE)
    def RequestOptimization(self, request: pb.RequestOptimizationRequest, context: Context) -> pb.TableOptimization:
        table = self._table(request.table)
        return self._optimization.request(table, request.partition, request.kind, request.request_id)

    @method(Rank.VITAL)
    def PauseOptimization(self, request: pb.PauseOptimizationRequest, context: Context) -> pb.TableOptimization:
        return self._optimization.pause(self._table(request.table), request.reason, request.request_id)

    @method(Rank.VITAL)
    def ResumeOptimization(self, request: pb.ResumeOptimizationRequest, context: Context) -> pb.TableOptimization:
        return self._optimization.resume(self._table(request.table), request.request_id)

    @method(Rank.WRITE)
    def HoldOptimization(self, request: pb.HoldOptimizationRequest, context: Context) -> pb.OptimizationHold:
        table = self._table(request.table)
        return self._optimization.hold(
            table, request.partition, request.duration_ms, request.reason, request.request_id
        )

    @method(Rank.WRITE)
    def ReleaseOptimization(
        self, request: pb.ReleaseOptimizationRequest, context: Context
    ) -> pb.ReleaseOptimizationResponse:
        released = self._optimization.release(self._table(request.table), request.partition, request.request_id)
        return pb.ReleaseOptimizationResponse(released=released)

    @method(Rank.READ)
    def ListOptimizationRuns(
        self, request: pb.ListOptimizationRunsRequest, context: Context
    ) -> pb.ListOptimizationRunsResponse:
        table = self._table(request.table) if request.HasField("table") else None
        before: tuple[int, ...] | None = None
        if request.page_token:
            before = tuple(decode_token(request.page_token, *[int] * (3 if table is None else 2)))
        page = self._optimization.runs(table, before, page_limit(request.page_size, default=RUNS_A_PAGE))
        token = "" if page.following is None else encode_token(*page.following)
        return pb.ListOptimizationRunsResponse(runs=page.runs, next_page_token=token)

    @method(Rank.VITAL)
    def ListOptimizerGroups(
        self, request: pb.ListOptimizerGroupsRequest, context: Context
    ) -> pb.ListOptimizerGroupsResponse:
        groups, leader = self._optimization.groups()
        return pb.ListOptimizerGroupsResponse(groups=groups, leader=leader)

    @method(Rank.VITAL)
    def SetOptimizerGroup(self, request: pb.SetOptimizerGroupRequest, context: Context) -> pb.OptimizerGroup:
        return self._optimization.set_group(
            request.name,
            request.order,
            request.quota_ms if request.HasField("quota_ms") else None,
            request.paused if request.HasField("paused") else None,
            request.request_id,
        )


class OptimizerServicer(OptimizerServiceServicer):
    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    @method(Rank.WRITE)
    def RegisterWorker(self, request: pb.RegisterWorkerRequest, context: Context) -> pb.OptimizerWorker:
        wanted = pb.OptimizerWorker(
            group=request.group,
            host=request.host,
            slots=request.slots,
            executors=request.executors,
            release=request.release,
        )
        return self._tasks.register(wanted, request.protocol, request.request_id)

    @method(Rank.WRITE)
    def TakeTask(self, request: pb.TakeTaskRequest, context: Context) -> pb.TakeTaskResponse:
        return pb.TakeTaskResponse(task=self._tasks.take(request.group, request.worker_id))

    @method(Rank.VITAL)
    def AcknowledgeTask(self, request: pb.WorkerTaskRequest, context: Context) -> pb.OptimizationTask:
        return self._tasks.acknowledge(request.worker_id, TaskId(request.table_id, request.instant))

    @method(Rank.VITAL)
    def WorkerHeartbeat(self, request: pb.WorkerHeartbeatRequest, context: Context) -> pb.WorkerHeartbeatResponse:
        names = [TaskId(task.table_id, task.instant) for task in request.tasks]
        cancelled = self._tasks.heartbeat(request.group, request.worker_id, names)
        task = pb.WorkerHeartbeatRequest.Task
        return pb.WorkerHeartbeatResponse(
            cancelled=[task(table_id=name.table_id, instant=name.instant) for name in cancelled]
        )

    @method(Rank.WRITE)
    def CompleteTask(self, request: pb.CompleteTaskRequest, context: Context) -> pb.OptimizationTask:
        name = TaskId(request.table_id, request.instant)
        return self._tasks.complete(request.worker_id, name, request.outcome, request.message, request.executor)

    @method(Rank.VITAL)
    def LeaveGroup(self, request: pb.LeaveGroupRequest, context: Context) -> pb.LeaveGroupResponse:
        return pb.LeaveGroupResponse(tasks=self._tasks.leave(request.group, request.worker_id))
