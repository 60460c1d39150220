"""Predicates that choose the files of some partitions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakemark_core.expressions.tree import ColumnRef, Compare, Expr, IsNull, Literal, all_of, any_of
from lakemark_core.types import ColumnValue, Field, Schema

PARTITIONS_ASKED_MAX: Final = 256
"""The files of so many partitions are asked for by name, else those of all."""


def in_partitions(partitions: Sequence[tuple[ColumnValue, ...]], schema: Schema) -> Expr | None:
    """What chooses the files of these partitions; None: all files, because there are too many, or no partitions."""
    if not schema.partition_columns or not 0 < len(partitions) <= PARTITIONS_ASKED_MAX:
        return None
    return any_of(
        all_of(_is(field, value) for field, value in zip(schema.partition_fields, values, strict=True))
        for values in partitions
    )


def _is(field: Field, value: ColumnValue) -> Expr:
    column = ColumnRef((field.name,))
    return IsNull(column) if value is None else Compare("=", column, Literal(value, field.type))
