"""Changes of many partitions in several transactions, which become visible all at once or not at all.

Each partition that a batch adds, changes or drops is written together with its state before and with the number of the
batch (``InBatch``). Readers see the state before as long as the batch is *pending*, which is noted under a key of its
own. One small transaction that writes *done* under that key makes all changes visible. Afterwards the partitions are
written as they are now (the batch is *settled*), and the key is cleared.

A batch whose writer failed, or was silent for ``STALE_MS``, is taken back: it is marked, so that its writer can no
longer complete it, its partitions are written as they were, and the mark is cleared. A request that meets such a batch
does this, and so does the sweeper, which also settles batches that are done and were left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast

from lakemark_core.errors import StoreConflict
from lakemark_proto.store.v1.warehouse_pb2 import PartitionChangeRecord
from lakemark_server.catalog import partition_changes, partition_places, warehouse_records
from lakemark_server.catalog.warehouse_records import BATCH_DONE, PENDING_HEAD, HiveTable, InBatch, Values
from lakemark_server.kv import ReadTransaction, Store, Transaction, keys_below, strinc
from lakemark_server.store.keyspace import PENDING_PARTITIONS

STALE_MS: Final = 60_000
"""Longer than a transaction lives, even if clocks differ."""

_LIST: Final = PENDING_HEAD + 1
_TAKEN_BACK: Final = b""
_NAMED_MAX: Final = 500  # partitions named in one value, which one transaction settles


def stage(tx: Transaction, table: HiveTable, batch: int, number: int, changes: Sequence[InBatch], now_ms: int) -> None:
    """Writes part ``number`` of the batch, counted from 0. Its partitions must be in no other pending batch.

    Raises StoreConflict if the batch was taken back.
    """
    if number:
        _require_pending(tx, table, batch)
    tx.set(PENDING_PARTITIONS.key(table.table_id, PENDING_HEAD, batch), now_ms.to_bytes(8, "big"))
    for change in changes:
        put = warehouse_records.put_partition if change.before else warehouse_records.put_new_partition
        put(tx, table.table_id, change)
    for at, names in enumerate(_lists([change.values for change in changes])):
        tx.set(PENDING_PARTITIONS.key(table.table_id, _LIST, batch, number, at), names.SerializeToString())


def complete(tx: Transaction, table: HiveTable, batch: int, now_ms: int) -> None:
    """Makes all changes of the batch visible. Raises StoreConflict if it was taken back."""
    _require_pending(tx, table, batch)
    key = PENDING_PARTITIONS.key(table.table_id, PENDING_HEAD, batch)
    tx.set(key, BATCH_DONE + now_ms.to_bytes(8, "big"))
    partition_changes.note_all(tx, table.table_id, now_ms)


def take_back(store: Store, table_id: int, batch: int) -> bool:
    """Undoes the batch and returns False; returns True if it is done. Several may do this, at once or again."""
    head = PENDING_PARTITIONS.key(table_id, PENDING_HEAD, batch)

    def mark(tx: Transaction) -> bytes | None:
        state = tx.get(head)
        if state is not None and not warehouse_records.is_done(state):
            tx.set(head, _TAKEN_BACK)
        return state

    state = store.transact(mark)
    if state is None or warehouse_records.is_done(state):
        return state is not None
    _settle(store, table_id, batch, done=False)
    return False


def settle(store: Store, table: HiveTable, batch: int, *, adds: bool) -> None:
    """Writes the partitions of a batch that is done as they are now.

    ``adds``: it has only added partitions. These may keep the number of the batch, so none needs to be written.
    """
    if not adds:
        _settle(store, table.table_id, batch, done=True)
        return

    def forget(tx: Transaction) -> None:
        tx.clear(PENDING_PARTITIONS.key(table.table_id, PENDING_HEAD, batch))
        tx.clear_range(*PENDING_PARTITIONS.range(table.table_id, _LIST, batch))

    store.transact(forget)


def _settle(store: Store, table_id: int, batch: int, *, done: bool) -> None:
    lists = PENDING_PARTITIONS.range(table_id, _LIST, batch)

    def settle_some(tx: Transaction) -> bool:
        pairs = tx.get_range(*lists, limit=1)
        for key, names in pairs:
            columns = warehouse_records.partition_columns(tx, table_id)
            wanted = [tuple(named.values) for named in PartitionChangeRecord.FromString(names).partitions]
            for stored in warehouse_records.stored_partitions(tx, table_id, wanted):
                if not isinstance(stored, InBatch) or stored.batch != batch:
                    continue  # it was changed again since
                left, gone = (stored.after, stored.before) if done else (stored.before, stored.after)
                if gone is not None:
                    partition_places.leave(tx, table_id, columns, gone, left)
                if left is not None:
                    warehouse_records.put_partition(tx, table_id, left)
                else:
                    warehouse_records.clear_partition(tx, table_id, columns, stored.values, statistics=done)
            tx.clear(key)
        if not pairs:
            tx.clear(PENDING_PARTITIONS.key(table_id, PENDING_HEAD, batch))
        return bool(pairs)

    while store.transact(settle_some):
        pass


def finish_abandoned(store: Store, now_ms: int, table_id: int | None = None) -> int:
    """Takes back batches that nobody will complete and settles those that are done, of one table or (None) of all.

    Returns how many there were.
    """
    count = 0
    for table in _tables(store) if table_id is None else (table_id,):
        begin, end = PENDING_PARTITIONS.range(table, PENDING_HEAD)
        heads = store.read(lambda tx, begin=begin, end=end: tx.get_range(begin, end))  # type: ignore[misc]
        for key, head in heads:
            batch = cast(int, PENDING_PARTITIONS.unpack(key)[-1])
            since_ms = int.from_bytes(head[-8:], "big")  # 0: marked as taken back
            if now_ms - since_ms > STALE_MS:
                count += 1
                if take_back(store, table, batch):
                    _settle(store, table, batch, done=True)
    return count


def of_table(store: Store, table_id: int) -> set[int]:
    """The numbers of the table's batches."""
    heads = store.read(lambda tx: tx.get_range(*PENDING_PARTITIONS.range(table_id, PENDING_HEAD)))
    return {cast(int, PENDING_PARTITIONS.unpack(key)[-1]) for key, _ in heads}


def named(store: Store, table_id: int) -> set[int]:
    """The numbers of those batches of the table for which there is a list of the partitions that they change."""
    return {cast(int, items[0]) for items, _ in keys_below(store, PENDING_PARTITIONS, table_id, _LIST)}


def _tables(store: Store) -> Iterator[int]:
    begin, end = PENDING_PARTITIONS.range()
    while first := store.read(lambda tx, begin=begin: tx.get_range(begin, end, limit=1)):  # type: ignore[misc]
        table_id = cast(int, PENDING_PARTITIONS.unpack(first[0][0])[0])
        yield table_id
        begin = strinc(PENDING_PARTITIONS.key(table_id))


def _require_pending(tx: ReadTransaction, table: HiveTable, batch: int) -> None:
    head = tx.get(PENDING_PARTITIONS.key(table.table_id, PENDING_HEAD, batch))
    if not head or warehouse_records.is_done(head):
        raise StoreConflict(f"partitions of {table.label} took too long to change, and were taken back; try again")


def _lists(changed: Sequence[Values]) -> Iterator[PartitionChangeRecord]:
    names: list[Values] = []
    size = 0
    for values in changed:
        own = sum(map(len, values)) * 4 + 10
        if names and (size + own > partition_changes.KEYS_BYTES_MAX or len(names) == _NAMED_MAX):
            yield partition_changes.record_of(names)
            names, size = [], 0
        names.append(values)
        size += own
    if names:
        yield partition_changes.record_of(names)
