"""What the facade needs of lake tables, and what it says to those who would write them through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakemark_core.errors import UnsupportedOperation
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.partition_view import PartitionView, Values
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord


class LakeFacet(Protocol):
    """How lake tables look through the Metastore protocol to one kind of engine, for reading only.

    A name with an ``@``, such as ``t@v12`` or that of a hidden table, has no entry in the catalog. The facet alone
    knows what it stands for.
    """

    @property
    def table_type(self) -> str:
        """Hive's word for what a lake table looks like."""

    @property
    def alterable(self) -> bool:
        """Whether ALTER statements of such engines can say what becomes of a lake table."""

    def get_table(self, database: DatabaseRecord, name: str) -> bytes | None:
        """The serialized Thrift Table; None if there is none of that name."""

    def partitions(self, database: DatabaseRecord, name: str, selection: PartitionFilter) -> PartitionView | None:
        """The table's partitions that the filter selects; None if there is no such table. Values may repeat."""

    def replaced(self, database: DatabaseRecord, name: str, wanted: Sequence[Values]) -> PartitionView | None:
        """Those of the wanted partitions that the latest version no longer has, but one that can still be read has.

        A client that has listed names asks for them later, and is to read what it has listed. None if the name stands
        for one version anyway.
        """


def is_hidden(name: str) -> bool:
    return "@" in name


def lake_write_error(database: str, table: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"{database}.{table} is a lake table: its rows are written by INSERT INTO {table.partition('@')[0]}__append or "
        f"{table.partition('@')[0]}__overwrite (docs/sql-writes.md), through lakemark_spark or the gRPC API (lakemark "
        "files commit …), not by INSERT into its own name or ALTER TABLE … PARTITION; see docs/lake-tables.md",
        table=f"{database}.{table}",
    )
