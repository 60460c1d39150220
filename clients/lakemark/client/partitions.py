"""Partitions as users name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, TypeAlias

from lakemark.arguments import Called
from lakemark_core.errors import InvalidArgument
from lakemark_core.messages.values import partition_to_proto
from lakemark_core.types import ColumnValue, Schema, in_column_order, is_textual, partition_field_value
from lakemark_proto.v1 import timeline_pb2 as pb

Partition: TypeAlias = Annotated[
    Mapping[str, ColumnValue] | Sequence[ColumnValue] | str | bytes,
    Called("a partition, such as {'month': 1} or [1]"),
]
"""``{"month": 1, "origin": "JFK"}`` or the values in the order of the partition columns."""


def partition_values(partition: Partition, schema: Schema) -> tuple[ColumnValue, ...]:
    """The values in the schema's order; texts are parsed as the column's type. Raises InvalidArgument."""
    fields = schema.partition_fields
    names = ", ".join(field.name for field in fields) or "none"
    if isinstance(partition, Mapping):
        given = in_column_order(partition, schema.partition_columns)
        if given is None:
            raise InvalidArgument(f"partition {dict(partition)} must name exactly the partition columns: {names}")
        values: Sequence[ColumnValue] = given
    else:
        values = [partition] if isinstance(partition, str | bytes) else list(partition)
        if len(values) != len(fields):
            raise InvalidArgument(f"partition {values} must have a value for each of the partition columns: {names}")
    return tuple(
        partition_field_value(value, field) if isinstance(value, str) and not is_textual(field.type) else value
        for value, field in zip(values, fields, strict=True)
    )


def work_profile(
    partitions: Iterable[Partition] | None,
    schema: Schema,
    *,
    whole_table: bool = False,
    file_groups: Iterable[str] = (),
    columns: Iterable[str] = (),
) -> pb.WorkProfile:
    """What a writer is going to change.

    ``partitions`` is None if that is not told; ``whole_table`` stands for all of them, those to come included. Without
    ``columns`` whole rows are changed.

    Raises InvalidArgument for columns that the schema does not have.
    """
    named = [
        pb.WorkProfile.Partition(values=partition_to_proto(partition_values(partition, schema), schema))
        for partition in partitions or ()
    ]
    ids = {column.name.lower(): column.id for column in schema.columns}
    unknown = [name for name in columns if name.lower() not in ids]
    if unknown:
        raise InvalidArgument(f"columns that the table does not have: {', '.join(unknown)}")
    return pb.WorkProfile(
        partitions=named,
        whole_table=whole_table,
        file_groups=file_groups,
        columns=sorted(ids[name.lower()] for name in columns),
    )
