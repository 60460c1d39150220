"""What the facade needs of lake tables, and what it says to those who would write them through it."""

from __future__ import annotations

from typing import Protocol

from lakemark_core.errors import UnsupportedOperation
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.partition_view import PartitionView
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord


class LakeFacet(Protocol):
    """How lake tables look through the Metastore protocol to one kind of engine, for reading only.

    A name with an ``@``, such as ``t@v12`` or that of a hidden table, has no entry in the catalog. The facet alone
    knows what it stands for.
    """

    def get_table(self, database: DatabaseRecord, name: str) -> bytes | None:
        """The serialized Thrift Table; None if there is none of that name."""

    def partitions(self, database: DatabaseRecord, name: str, selection: PartitionFilter) -> PartitionView | None:
        """The table's partitions that the filter selects; None if there is no such table. Values may repeat."""


def is_hidden(name: str) -> bool:
    return "@" in name


def lake_write_error(database: str, table: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"{database}.{table} is a lake table: its rows are written by INSERT INTO {table.partition('@')[0]}__append or "
        f"{table.partition('@')[0]}__overwrite (docs/sql-writes.md), through lakemark_spark or the gRPC API (lakemark "
        "files commit …), not by INSERT into its own name or ALTER TABLE … PARTITION; see docs/lake-tables.md",
        table=f"{database}.{table}",
    )
