"""The invariants of a warehouse table's partitions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from lakemark_core.errors import CorruptStore
from lakemark_server.catalog import partition_batches, warehouse_records
from lakemark_server.catalog.warehouse_records import InBatch, Stored
from lakemark_server.kv import Store

_PAGE: Final = 2_000


def check_table(store: Store, table_id: int, name: str) -> list[str]:
    """Partitions can be read, and every batch that they refer to exists."""
    before = partition_batches.of_table(store, table_id)
    try:
        batches = {
            stored.batch
            for stored in _stored(store, table_id)
            if isinstance(stored, InBatch) and (stored.before is not None or stored.after is None)
        }
    except (CorruptStore, ValueError) as error:
        return [f"{name}: its partitions cannot be read: {error}"]
    batches |= partition_batches.named(store, table_id)
    known = before | partition_batches.of_table(store, table_id)
    return [f"{name}: partitions are in batch {batch}, which there is not" for batch in sorted(batches - known)]


def _stored(store: Store, table_id: int) -> Iterator[Stored]:
    begin: bytes | None
    begin, end = warehouse_records.partition_range(table_id, ())
    while begin is not None:
        page, begin = store.read(partial(warehouse_records.stored_page, table_id, begin, end, _PAGE))
        yield from page
