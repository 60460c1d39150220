"""Updating rows of lake tables, by predicate or by join: one commit each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from lakemark import Client
from lakemark_core.errors import InvalidArgument
from lakemark_spark.clauses import Clause, Expression
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.row_changes import By, Changed, RowChange, change_rows
from lakemark_spark.sources import JoinBy


def update(
    spark: SparkSession,
    table: str,
    set: Mapping[str, Expression],  # noqa: A002 - as in SQL, and in the builders that people know
    where: str | None = None,
    *,
    source: DataFrame | None = None,
    on: str | Sequence[str] | None = None,
    join: JoinBy = "auto",
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    request_id: str | None = None,
    branch: str = "",
) -> Changed:
    """Sets columns of the rows for which ``where`` (Spark SQL) is true, in one commit.

    ``set``: for each column an expression (Spark SQL or a Column) of the row as it was: ``{"fare": "fare * 1.1"}``.
    Values are cast as Spark's INSERT casts them. The key of a table cannot be set; a row whose partition columns are
    set moves, and values may not come from ``rand()`` or the like then.

    ``source``: rows are updated by those of a DataFrame that have the same values in the columns ``on`` (None: the
    table's key). Then ``t`` is the table and ``s`` the source in ``set`` and ``where``, as in ``{"fare": "t.fare +
    s.more"}``. The source has a key once, and rows that match none change nothing. ``join``: "broadcast" sends the
    source to all executors, "shuffle" sorts both sides, "auto" leaves it to Spark.

    In a table that is merged on read the rows are written as deltas; in all others files with such rows are written
    again. Under the table's policy it is an upsert in the partitions of all files that could hold such rows; where
    upserts pass by each other (``row``, ``column``) it excludes other changes of the file groups that it changes. The
    rest is as in ``delete``.
    """
    if source is None and on is not None:
        raise InvalidArgument(f"on={on!r} names columns of a source, and there is none: give source=, or leave it out")
    if source is None:
        change = RowChange([Clause("update", None, set)], where=where)
    else:
        change = RowChange([Clause("update", where, set)], By(source, on, join))
    with use_client(server) as client:
        return change_rows(client, spark, table, change, metadata=metadata, request_id=request_id, branch=branch)
