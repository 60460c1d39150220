"""A door as a Thrift table: of Hive's parquet format, without partitions, at a directory of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakemark_core.types import Schema
from lakemark_hms.lake.tables import hive_columns, parquet_storage, parquet_table
from lakemark_server.catalog.lake import LakeTable
from lakemark_thrift.ttypes import Table

ENDING_CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "alter_table": ("tbl_name", "new_tbl"),
    "alter_table_with_environment_context": ("tbl_name", "new_tbl"),
    "alter_table_with_cascade": ("tbl_name", "new_tbl"),
    "alter_table_req": ("req.tableName", "req.table"),
}
"""The calls that may end a statement (``ends_a_statement``), and where they have the name of the table, and what it is
changed to."""

ROWS: Final = "spark.sql.statistics.numRows"
_SIZE: Final = "spark.sql.statistics.totalSize"
_WRITTEN: Final = {
    # Spark hands these to Hadoop with a statement, above the settings of its session.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    # Instants in the names of partitions are in UTC, whatever the session's zone.
    "timeZone": "UTC",
}


def door_table(table: LakeTable, name: str, schema: Schema, location: str) -> Table:
    """The door ``name`` as it is given to one look-up. ``location``: of its directory, as engines read it.

    ``schema``: the columns that its rows have.

    It is said to have a row, so that Spark takes its statistics off when a statement has ended: for a table without
    partitions that is the only call by which it can be known. A datasource table would be cached by its name.
    """
    storage = parquet_storage(hive_columns(schema.data_columns), location)
    if storage.serdeInfo is not None:
        storage.serdeInfo.parameters = {**(storage.serdeInfo.parameters or {}), **_WRITTEN}
    more = {
        "comment": "rows that are inserted here become a commit of the lake table; there is nothing to select",
        _SIZE: "1",
        ROWS: "1",
    }
    return parquet_table(table, name, storage, schema.data_columns, schema.partition_fields, more)


def ends_a_statement(sent: Table) -> bool:
    """Whether a change of a door is the one that Spark asks for after a statement: to take the statistics off."""
    return ROWS not in (sent.parameters or {})


def calls_that_it_stands_for(sent: Table, *, partitioned: bool) -> int:
    """Spark calls twice for a statement that adds partitions, and once, with the size, if it is to measure it
    (spark.sql.statistics.size.autoUpdate.enabled). Without partitions it calls once, either way."""
    return 2 if partitioned and _SIZE in (sent.parameters or {}) else 1
