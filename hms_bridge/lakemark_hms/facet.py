"""What the facade needs of lake tables, and what it says to those who would write them through it."""

from __future__ import annotations

from typing import Protocol

from lakemark_core.errors import UnsupportedOperation
from lakemark_hms.partition_view import PartitionView
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry


class LakeFacet(Protocol):
    """How lake tables look through the Metastore protocol to one kind of engine. Reading only.

    ``entry`` is that of the lake table with exactly this name; None for a name with an ``@``, such as ``t@v12`` or a
    hidden table, of which the facet alone knows what it stands for.
    """

    def get_table(self, database: DatabaseRecord, name: str, entry: TableEntry | None) -> bytes | None:
        """The serialized Thrift Table; None if there is none of that name."""

    def partitions(
        self, database: DatabaseRecord, name: str, entry: TableEntry | None, filter_text: str
    ) -> PartitionView | None:
        """Its partitions, all that the filter selects at least ("": all). Values need not be unique."""


def is_hidden(name: str) -> bool:
    return "@" in name


def lake_write_error(database: str, table: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"{database}.{table} is a lake table: its rows are written through lakemark_spark or the gRPC API "
        "(lakemark files commit …), not by INSERT or ALTER TABLE … PARTITION; see docs/lake-tables.md",
        table=f"{database}.{table}",
    )
