"""Predicates that choose the files of some partitions, as plans take them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark_core.expressions import in_partitions, to_sql
from lakemark_core.types import ColumnValue, Schema


def partitions_predicate(partitions: Sequence[tuple[ColumnValue, ...]], schema: Schema) -> str | None:
    """``in_partitions`` as SQL; None: all files."""
    chosen = in_partitions(partitions, schema)
    return None if chosen is None else to_sql(chosen)
