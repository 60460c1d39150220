"""Entries of a statement's files, from their footers. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow.parquet as pq

from lakemark_core.messages.values import partition_to_proto, value_to_proto
from lakemark_core.parquet.footers import FooterStatistics, statistics_of
from lakemark_core.types import ColumnValue, Field, Schema
from lakemark_proto.v1 import types_pb2 as pb


def entry_of(
    path: str,
    footer: tuple[pq.FileMetaData, int],
    schema: Schema,
    partition: tuple[ColumnValue, ...],
    group: str,
    nans: Mapping[int, int] | None = None,
) -> pb.DataFile:
    """A base file's entry. ``footer``: with the file's size; ``nans``: by column id, as far as they were counted."""
    metadata, size = footer
    messages = (_message(known, schema, nans or {}) for known in statistics_of(metadata, schema))
    return pb.DataFile(
        path=path,
        size_bytes=size,
        row_count=metadata.num_rows,
        file_group=group,
        kind=pb.BASE,
        format="parquet",
        partition=partition_to_proto(partition, schema),
        statistics=[message for message in messages if message is not None],
    )


def _message(known: FooterStatistics, schema: Schema, nans: Mapping[int, int]) -> pb.ColumnStatistics | None:
    field: Field | None = schema.find_id(known.column_id)
    if field is None:
        return None
    return pb.ColumnStatistics(
        column_id=known.column_id,
        min=None if known.low is None else value_to_proto(known.low, field.type),
        max=None if known.high is None else value_to_proto(known.high, field.type),
        null_count=known.null_count,
        nan_count=nans.get(known.column_id, known.nan_count),
        min_truncated=known.low_truncated,
        max_truncated=known.high_truncated,
    )
