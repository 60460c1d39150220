"""Inserting rows whose key is not there yet: one commit each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from lakemark import Client
from lakemark_spark.clauses import Clause
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.row_changes import By, Changed, RowChange, change_rows


def insert(
    df: DataFrame,
    table: str,
    *,
    keys: str | Sequence[str] | None = None,
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    request_id: str | None = None,
    branch: str = "",
) -> Changed:
    """Adds the rows of ``df`` whose keys ``database.table`` does not have; the others are left out, and counted.

    ``keys`` None: the table's own key (``lakemark.primary-key``). Of the table only the key columns are read,
    where such keys may be. Two writers that insert the same new key exclude each other under every policy. The rest is
    as in ``upsert``; ``commit`` of the answer is None if all keys were there.
    """
    change = RowChange([Clause("insert")], By(df, keys))
    with use_client(server) as client:
        return change_rows(
            client, df.sparkSession, table, change, metadata=metadata, request_id=request_id, branch=branch
        )
