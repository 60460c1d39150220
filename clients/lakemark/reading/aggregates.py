"""Counts, sizes and bounds from metadata alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakemark.client.calls import Calls
from lakemark.client.names import parse_table_name
from lakemark.files import ColumnStatistics
from lakemark.files.messages import statistics_from_message
from lakemark_core.messages.predicates import predicate_to_proto
from lakemark_core.messages.types import schema_from_proto
from lakemark_core.messages.values import partition_from_proto
from lakemark_core.types import ColumnValue, Schema
from lakemark_proto.v1 import snapshot_pb2 as pb
from lakemark_proto.v1.snapshot_pb2_grpc import SnapshotServiceStub


@dataclass(frozen=True, slots=True)
class Group:
    """The planned files of one partition (``name``: ``month=1``), or all of them (``name`` "").

    ``columns`` has bounds and counts of the columns that were asked for, by the names that they were asked by.
    """

    name: str
    partition: tuple[ColumnValue, ...]
    files: int
    rows: int
    bytes: int
    columns: Mapping[str, ColumnStatistics]


@dataclass(frozen=True, slots=True)
class Aggregates:
    """Of one version. ``exact``: the rows themselves would give the same; else counts are at most and bounds bound."""

    version: int
    exact: bool
    groups: list[Group]


def aggregate(
    calls: Calls,
    table: str,
    predicate: str | None,
    reference: pb.SnapshotReference,
    columns: Sequence[str],
    *,
    by_partition: bool,
) -> Aggregates:
    """Raises as ``Client.aggregate``."""
    request = pb.AggregateRequest(
        table=parse_table_name(table), at=reference, columns=columns, by_partition=by_partition
    )
    if predicate is not None:
        request.predicate.CopyFrom(predicate_to_proto(predicate))
    answer = calls(SnapshotServiceStub(calls.channel).Aggregate, request)
    schema = schema_from_proto(answer.schema)
    groups = [_group(one, columns, schema, by_partition=by_partition) for one in answer.groups]
    return Aggregates(answer.version, answer.exact, groups)


def _group(message: pb.AggregateResponse.Group, columns: Sequence[str], schema: Schema, *, by_partition: bool) -> Group:
    return Group(
        message.name,
        partition_from_proto(message.partition, schema) if by_partition else (),
        message.files,
        message.rows,
        message.bytes,
        {
            name: statistics_from_message(one, schema.field(name))
            for name, one in zip(columns, message.columns, strict=True)
        },
    )
