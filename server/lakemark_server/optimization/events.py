"""Events of optimization: what a mutation tells."""

from __future__ import annotations

from lakemark_proto.store.v1.optimization_pb2 import PartitionHistory
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import events_pb2
from lakemark_proto.v1 import optimization_pb2 as pb


def of_stop(table: LakeTableRecord, task: pb.OptimizationTask, history: PartitionHistory) -> events_pb2.Event:
    """A partition is left alone after several failures in a row: somebody has to look at it."""
    return events_pb2.Event(
        kind=events_pb2.OPTIMIZATION_STOPPED,
        catalog=table.catalog,
        database=table.database,
        table=table.name,
        table_id=table.table_id,
        optimization=events_pb2.OptimizationDetail(
            partition=task.partition,
            kind=pb.OptimizationKind.Name(task.kind).lower(),
            failures=history.failures,
            last_error=history.last_error,
            group=task.group,
        ),
    )
