"""Data files as protobuf messages, and the choice between messages and Arrow columns for a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import pyarrow as pa

from lakemark.arguments import check
from lakemark.files.columns import arrow_stream, files_to_arrow
from lakemark.files.model import ColumnStatistics, DataFile, kind_number
from lakemark_core.errors import InvalidArgument, InvalidFile
from lakemark_core.messages.values import partition_from_proto, partition_to_proto, value_from_proto, value_to_proto
from lakemark_core.types import ColumnValue, Field, Schema
from lakemark_proto.v1 import types_pb2 as pb

MESSAGES_MAX: Final = 64
"""Up to so many files travel as messages, which the service keeps as they are; more travel as columns."""


def files_message(files: Sequence[DataFile], schema: Schema) -> pb.DataFiles:
    """The files as a request carries them. Raises InvalidFile for a value that is not one of its column's type."""
    try:
        if len(files) > MESSAGES_MAX:
            return pb.DataFiles(arrow=arrow_stream(files_to_arrow(files, schema)))
        return pb.DataFiles(list=pb.DataFileList(files=[file_to_message(file, schema) for file in files]))
    except (TypeError, ValueError, AttributeError, ArithmeticError, pa.ArrowException) as error:
        raise _what_is_wrong(files, error) from error


def _what_is_wrong(files: Sequence[DataFile], error: Exception) -> InvalidFile:
    """The error that names the wrong field. It looks at every field, which would cost too much in each commit."""
    for file in files:
        try:
            check(file, DataFile, "file")
        except InvalidArgument as misfit:
            return InvalidFile(f"file {file.path!r}: {misfit.message}", path=str(file.path))
    return InvalidFile(f"the files cannot be told to the service: {error}")


def file_to_message(file: DataFile, schema: Schema) -> pb.DataFile:
    """The message of one file. Raises InvalidFile, which names the file."""
    try:
        message = pb.DataFile(
            path=file.path,
            size_bytes=file.size_bytes,
            row_count=file.row_count,
            file_group=file.file_group,
            kind=cast("pb.SliceKind.ValueType", kind_number(file)),
            format=file.format,
            partition=partition_to_proto(file.partition, schema),
            statistics=[_statistics_to_message(one, schema) for one in file.statistics],
            base_instant=file.base_instant,
            bucket=file.bucket,
        )
    except InvalidArgument as error:
        raise InvalidFile(f"file {file.path!r}: {error.message}", path=file.path) from error
    return message


def file_from_message(message: pb.DataFile, schema: Schema) -> DataFile:
    """The file that a response describes, without statistics of columns that the schema no longer has."""
    return DataFile(
        path=message.path,
        size_bytes=message.size_bytes,
        row_count=message.row_count,
        partition=partition_from_proto(message.partition, schema),
        statistics=tuple(
            statistics_from_message(one, field)
            for one in message.statistics
            if (field := schema.find_id(one.column_id)) is not None
        ),
        file_group=message.file_group,
        kind="delta" if message.kind == pb.DELTA else "base",
        format=message.format or "parquet",
        base_instant=message.base_instant,
        bucket=message.bucket if message.HasField("bucket") else None,
        added_version=message.added_version,
        matches_entirely=message.matches_entirely,
        schema_id=message.schema_id,
        removed_version=message.removed_version,
    )


def _statistics_to_message(statistics: ColumnStatistics, schema: Schema) -> pb.ColumnStatistics:
    field = schema.find_id(statistics.column_id)
    if field is None:
        raise InvalidFile(f"statistics on column id {statistics.column_id}, which the table does not have")

    def bound(value: ColumnValue) -> pb.Value | None:
        return None if value is None else value_to_proto(value, field.type)

    return pb.ColumnStatistics(
        column_id=statistics.column_id,
        min=bound(statistics.min),
        max=bound(statistics.max),
        null_count=statistics.null_count,
        nan_count=statistics.nan_count,
        min_truncated=statistics.min_truncated,
        max_truncated=statistics.max_truncated,
    )


def statistics_from_message(message: pb.ColumnStatistics, field: Field) -> ColumnStatistics:
    """Statistics of a response. Raises InvalidArgument for a bound that is not a value of the column's type."""
    return ColumnStatistics(
        message.column_id,
        value_from_proto(message.min, field.type) if message.HasField("min") else None,
        value_from_proto(message.max, field.type) if message.HasField("max") else None,
        message.null_count if message.HasField("null_count") else None,
        message.nan_count if message.HasField("nan_count") else None,
        message.min_truncated,
        message.max_truncated,
    )
