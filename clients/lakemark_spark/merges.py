"""Base rows and deltas merged by Spark's own operators."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from lakemark_core.merge_sql import LogSize, deletes_sql, merged_sql
from lakemark_core.table_kind import TableKind
from lakemark_core.types import Schema
from lakemark_spark.queries import query

_BASE: Final = "\x00base"
_LOG: Final = "\x00log"


def merge(base: DataFrame, log: DataFrame, schema: Schema, kind: TableKind, size: LogSize) -> DataFrame:
    """The rows that ``base`` becomes by the rows of deltas ``log``, which is of this size.

    A filter belongs on top: the rows below are not yet those of the table.
    """
    return query(merged_sql(_BASE, _LOG, schema, kind, size), base=base, log=log)


def deletes(log: DataFrame, schema: Schema, kind: TableKind) -> DataFrame:
    """The deletes among the newest changes of keys in the rows of deltas ``log``, as such rows."""
    return query(deletes_sql(_LOG, schema, kind), log=log)
