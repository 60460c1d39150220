"""Columns of file entries as protobuf messages, for clients without Arrow."""

from __future__ import annotations

import pyarrow as pa

from lakemark_core.messages.values import partition_to_proto, value_to_proto
from lakemark_core.types import Schema, is_floating, values_of_partition
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.file_index.entries.columns import MAX_CUT, MIN_CUT, TRUNCATED, is_cut, statistics_ids
from lakemark_server.file_index.planning.aggregates import ColumnBounds


def to_messages(page: pa.RecordBatch, schema: Schema) -> list[pb.DataFile]:
    """One message for each row of a plan's page."""
    ids = sorted(statistics_ids(page.schema.names))
    partitions: dict[str, list[pb.Value]] = {}
    messages = []
    for row in page.to_pylist():
        name = row["partition"]
        if name not in partitions:
            partitions[name] = partition_message(name, schema)
        message = pb.DataFile(
            path=row["path"],
            size_bytes=row["size_bytes"],
            row_count=row["row_count"],
            file_group=row["file_group"],
            kind=row["kind"],
            format=row["format"],
            partition=partitions[name],
            statistics=[_statistics(row, column_id, schema) for column_id in ids],
            base_instant=row["base_instant"],
            added_version=row["added_version"],
            matches_entirely=row["matches_entirely"],
            schema_id=row["schema_id"],
            removed_version=row.get("removed_version", 0),
        )
        if row["bucket"] is not None:
            message.bucket = row["bucket"]
        messages.append(message)
    return messages


def partition_message(name: str, schema: Schema) -> list[pb.Value]:
    """The values in a partition's name."""
    return partition_to_proto(values_of_partition(name, schema), schema)


def _statistics(row: dict[str, object], column_id: int, schema: Schema) -> pb.ColumnStatistics:
    message = pb.ColumnStatistics(column_id=column_id)
    field = schema.find_id(column_id)
    for kind, bound in (("min", message.min), ("max", message.max)):
        value = row.get(f"{kind}.{column_id}")
        if value is not None and field is not None:
            bound.CopyFrom(value_to_proto(value, field.type))  # type: ignore[arg-type]
    if field is not None and is_cut(field):
        cut = row.get(f"{TRUNCATED}.{column_id}")
        cut = cut if isinstance(cut, int) else MIN_CUT | MAX_CUT  # not known: assume that both were truncated
        message.min_truncated = message.HasField("min") and bool(cut & MIN_CUT)
        message.max_truncated = message.HasField("max") and bool(cut & MAX_CUT)
    for kind in ("null_count", "nan_count"):
        count = row.get(f"{kind}.{column_id}")
        if isinstance(count, int):
            setattr(message, kind, count)
    return message


def bounds_message(bounds: ColumnBounds) -> pb.ColumnStatistics:
    """The bounds of one column in a group of files."""
    message = pb.ColumnStatistics(column_id=bounds.field.id, min_truncated=bounds.cut, max_truncated=bounds.cut)
    if bounds.min is not None:
        message.min.CopyFrom(value_to_proto(bounds.min, bounds.field.type))
    if bounds.max is not None:
        message.max.CopyFrom(value_to_proto(bounds.max, bounds.field.type))
    if bounds.null_count is not None:
        message.null_count = bounds.null_count
    if bounds.nan_count is not None and is_floating(bounds.field.type):
        message.nan_count = bounds.nan_count
    return message
