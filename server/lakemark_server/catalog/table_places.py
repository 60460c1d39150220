"""The places that a warehouse table holds."""

from __future__ import annotations

from typing import Final

from lakemark_proto.store.v1.store_pb2 import Holder
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_server.ownership import Holding, places

BASE: Final = b"base"
"""The part, in the registry, of the directory that relative partitions start from if it is another one."""


def holding_of(table: HiveTable) -> Holding:
    """What the table holds: its directory, which it must have."""
    record = table.record
    return places.holding(record.location, Holder.WAREHOUSE_TABLE, table.table_id, table.label, owns=record.owns_data)


def base_of(table: HiveTable) -> Holding | None:
    """The directory that relative partitions start from if it is another one, which the table reads."""
    base = table.record.partition_base
    if not base or base == table.record.location:
        return None
    return places.holding(base, Holder.WAREHOUSE_TABLE, table.table_id, table.label, owns=False, part=BASE)
