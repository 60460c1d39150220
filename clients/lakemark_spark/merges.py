"""Base rows and deltas merged by Spark's own operators."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from lakemark_core.merge_sql import merged_sql
from lakemark_core.table_kind import TableKind
from lakemark_core.types import Schema

_BASE: Final = "\x00base"
_LOG: Final = "\x00log"


def merge(base: DataFrame, log: DataFrame, schema: Schema, kind: TableKind) -> DataFrame:
    """The rows that ``base`` becomes by the rows of deltas ``log``.

    A filter belongs on top: the rows below are not yet those of the table.
    """
    text = merged_sql(_BASE, _LOG, schema, kind)
    # Braces in the names of columns would be taken for places to fill in.
    text = text.replace("{", "{{").replace("}", "}}").replace(_BASE, "{base}").replace(_LOG, "{log}")
    return base.sparkSession.sql(text, base=base, log=log)
