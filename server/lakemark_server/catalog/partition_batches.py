"""Partitions that are added in several transactions, and are there all at once or not at all.

Each carries the number of its batch, and is not there for anybody as long as that batch is *pending*, which is a key of
its own; clearing this key is what adds them. A batch whose writer failed, or was not heard of for ``STALE_MS``, is
taken back: first it is marked, so that its writer cannot complete it any more, then its partitions go, then the mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast

from lakemark.errors import StoreConflict
from lakemark_proto.store.v1.warehouse_pb2 import PartitionChangeRecord
from lakemark_server.catalog import partition_changes, warehouse_records
from lakemark_server.catalog.warehouse_records import PENDING_HEAD, HiveTable, Partition, Values
from lakemark_server.keyspace import PENDING_PARTITIONS
from lakemark_server.kv import ReadTransaction, Store, Transaction

STALE_MS: Final = 60_000
"""Longer than a transaction lives, and clocks differ."""

_LIST: Final = PENDING_HEAD + 1
_TAKEN_BACK: Final = b""
_NAMED_MAX: Final = 500  # in one value, and taken back in one transaction


def add_part(
    tx: Transaction, table: HiveTable, batch: int, number: int, rows: Sequence[Partition], now_ms: int
) -> None:
    """Adds partitions that there are not to the batch, as its part ``number`` (0: the first)."""
    if number:
        _require_pending(tx, table, batch)
    tx.set(PENDING_PARTITIONS.key(table.table_id, PENDING_HEAD, batch), now_ms.to_bytes(8, "big"))
    for row in rows:
        warehouse_records.put_new_partition(tx, table.table_id, row._replace(batch=batch))
    for at, names in enumerate(_lists([row.values for row in rows])):
        tx.set(PENDING_PARTITIONS.key(table.table_id, _LIST, batch, number, at), names.SerializeToString())


def complete(tx: Transaction, table: HiveTable, batch: int, now_ms: int) -> None:
    """All of its partitions are there now. Raises StoreConflict if it was taken back."""
    _require_pending(tx, table, batch)
    tx.clear(PENDING_PARTITIONS.key(table.table_id, PENDING_HEAD, batch))
    tx.clear_range(*PENDING_PARTITIONS.range(table.table_id, _LIST, batch))
    partition_changes.note_all(tx, table.table_id, now_ms)


def take_back(store: Store, table_id: int, batch: int) -> None:
    """Nothing of the batch is there any more, unless it was completed. Can be repeated; others may do the same."""
    head = PENDING_PARTITIONS.key(table_id, PENDING_HEAD, batch)
    lists = PENDING_PARTITIONS.range(table_id, _LIST, batch)

    def mark(tx: Transaction) -> bool:
        pending = tx.get(head) is not None
        if pending:
            tx.set(head, _TAKEN_BACK)
        return pending

    def clear_some(tx: Transaction) -> bool:
        found = tx.get_range(*lists, limit=1)
        for key, names in found:
            for one in PartitionChangeRecord.FromString(names).partitions:
                warehouse_records.clear_partition(tx, table_id, tuple(one.values))
            tx.clear(key)
        if not found:
            tx.clear(head)
        return bool(found)

    if store.transact(mark):
        while store.transact(clear_some):
            pass


def abandoned(tx: ReadTransaction, table_id: int, now_ms: int) -> list[int]:
    """The batches of the table that nobody will complete."""
    return [
        cast(int, PENDING_PARTITIONS.unpack(key)[-1])
        for key, since in tx.get_range(*PENDING_PARTITIONS.range(table_id, PENDING_HEAD), snapshot=True)
        if since == _TAKEN_BACK or now_ms - int.from_bytes(since, "big") > STALE_MS
    ]


def _require_pending(tx: ReadTransaction, table: HiveTable, batch: int) -> None:
    if not tx.get(PENDING_PARTITIONS.key(table.table_id, PENDING_HEAD, batch)):
        raise StoreConflict(f"partitions of {table.label} took too long to add, and were taken back; try again")


def _lists(added: Sequence[Values]) -> Iterator[PartitionChangeRecord]:
    names: list[Values] = []
    size = 0
    for values in added:
        own = sum(map(len, values)) * 4 + 10
        if names and (size + own > partition_changes.KEYS_BYTES_MAX or len(names) == _NAMED_MAX):
            yield partition_changes.record_of(names)
            names, size = [], 0
        names.append(values)
        size += own
    if names:
        yield partition_changes.record_of(names)
