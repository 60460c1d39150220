"""Changes of many partitions in several transactions, which are there all at once or not at all.

Each partition that a batch adds, changes or drops is written with what it was before and with the number of the batch
(``InBatch``). Everybody sees it as it was as long as that batch is *pending*, which is a key of its own; the one small
transaction that says there that the batch is *done* is what changes them all. Afterwards the partitions are written as
they are now, and the key goes.

A batch whose writer failed, or was not heard of for ``STALE_MS``, is taken back: first it is marked, so that its writer
cannot complete it any more, then its partitions become what they were, then the mark goes. Whoever meets such a batch
does that, and so does the sweeper, which also ends what is done and was left in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast

from lakemark_core.errors import StoreConflict
from lakemark_proto.store.v1.warehouse_pb2 import PartitionChangeRecord
from lakemark_server.catalog import partition_changes, warehouse_records
from lakemark_server.catalog.warehouse_records import BATCH_DONE, PENDING_HEAD, HiveTable, InBatch, Values
from lakemark_server.kv import ReadTransaction, Store, Transaction, keys_below, strinc
from lakemark_server.store.keyspace import PENDING_PARTITIONS

STALE_MS: Final = 60_000
"""Longer than a transaction lives, and clocks differ."""

_LIST: Final = PENDING_HEAD + 1
_TAKEN_BACK: Final = b""
_NAMED_MAX: Final = 500  # in one value, and settled in one transaction


def stage(tx: Transaction, table: HiveTable, batch: int, number: int, changes: Sequence[InBatch], now_ms: int) -> None:
    """Writes the batch's part ``number`` (0: the first), of partitions that are in no other pending batch.

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
    """All that the batch changes is so from now on. Raises StoreConflict if it was taken back."""
    _require_pending(tx, table, batch)
    key = PENDING_PARTITIONS.key(table.table_id, PENDING_HEAD, batch)
    tx.set(key, BATCH_DONE + now_ms.to_bytes(8, "big"))
    partition_changes.note_all(tx, table.table_id, now_ms)


def take_back(store: Store, table_id: int, batch: int) -> bool:
    """Nothing of the batch has happened, unless it is done: then True. Can be repeated; others may do the same."""
    head = PENDING_PARTITIONS.key(table_id, PENDING_HEAD, batch)

    def mark(tx: Transaction) -> bytes | None:
        found = tx.get(head)
        if found is not None and not warehouse_records.is_done(found):
            tx.set(head, _TAKEN_BACK)
        return found

    found = store.transact(mark)
    if found is None or warehouse_records.is_done(found):
        return found is not None
    _settle(store, table_id, batch, done=False)
    return False


def settle(store: Store, table: HiveTable, batch: int, *, adds: bool) -> None:
    """Ends a batch that is done. ``adds``: it has only added partitions; they may keep its number."""
    if not adds:
        _settle(store, table.table_id, batch, done=True)
        return

    def forget(tx: Transaction) -> None:
        tx.clear(PENDING_PARTITIONS.key(table.table_id, PENDING_HEAD, batch))
        tx.clear_range(*PENDING_PARTITIONS.range(table.table_id, _LIST, batch))

    store.transact(forget)


def _settle(store: Store, table_id: int, batch: int, *, done: bool) -> None:
    lists = PENDING_PARTITIONS.range(table_id, _LIST, batch)

    def some(tx: Transaction) -> bool:
        found = tx.get_range(*lists, limit=1)
        for key, names in found:
            columns = warehouse_records.partition_columns(tx, table_id)
            wanted = [tuple(one.values) for one in PartitionChangeRecord.FromString(names).partitions]
            for stored in warehouse_records.stored_partitions(tx, table_id, wanted):
                if not isinstance(stored, InBatch) or stored.batch != batch:
                    continue  # it was changed again since
                left = stored.after if done else stored.before
                if left is not None:
                    warehouse_records.put_partition(tx, table_id, left)
                else:
                    warehouse_records.clear_partition(tx, table_id, columns, stored.values, statistics=done)
            tx.clear(key)
        if not found:
            tx.clear(PENDING_PARTITIONS.key(table_id, PENDING_HEAD, batch))
        return bool(found)

    while store.transact(some):
        pass


def finish_abandoned(store: Store, now_ms: int, table_id: int | None = None) -> int:
    """Takes back what nobody will complete, of one table or of all, and settles what is done; how many batches."""
    count = 0
    for one in _tables(store) if table_id is None else (table_id,):
        begin, end = PENDING_PARTITIONS.range(one, PENDING_HEAD)
        heads = store.read(lambda tx, begin=begin, end=end: tx.get_range(begin, end))  # type: ignore[misc]
        for key, head in heads:
            batch = cast(int, PENDING_PARTITIONS.unpack(key)[-1])
            since_ms = int.from_bytes(head[-8:], "big")  # 0: marked as taken back
            if now_ms - since_ms > STALE_MS:
                count += 1
                if take_back(store, one, batch):
                    _settle(store, one, batch, done=True)
    return count


def of_table(store: Store, table_id: int) -> set[int]:
    """The batches that there are."""
    heads = store.read(lambda tx: tx.get_range(*PENDING_PARTITIONS.range(table_id, PENDING_HEAD)))
    return {cast(int, PENDING_PARTITIONS.unpack(key)[-1]) for key, _ in heads}


def named(store: Store, table_id: int) -> set[int]:
    """The batches of which it is written down what they change."""
    return {cast(int, items[0]) for items, _ in keys_below(store, PENDING_PARTITIONS, table_id, _LIST)}


def _tables(store: Store) -> Iterator[int]:
    begin, end = PENDING_PARTITIONS.range()
    while found := store.read(lambda tx, begin=begin: tx.get_range(begin, end, limit=1)):  # type: ignore[misc]
        table_id = cast(int, PENDING_PARTITIONS.unpack(found[0][0])[0])
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
