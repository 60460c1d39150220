"""What changed in a table's partitions, so that a process can bring what it has cached up to date.

Every transaction that changes partitions adds one to a counter, without a conflict, and writes one record of which
partitions it changed, under its time and a random number. A reader that finds exactly as many unseen records as the
counter has moved on since its last look knows all changes; otherwise it reads everything again. Clocks need not agree
for this to be right, only for it to be quick.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final, NamedTuple

from lakemark_proto.store.v1.warehouse_pb2 import PartitionChangeRecord, PartitionKey
from lakemark_server.catalog.warehouse_records import Values
from lakemark_server.kv import ReadTransaction, Transaction, counter
from lakemark_server.store.keyspace import PARTITION_CHANGES

KEPT_MS: Final = 600_000
"""How long a record stays. A reader that looks less often reads everything again."""

NEAR_MS: Final = 6_000
"""How far back unseen records are looked for at first: as long as a transaction lives, if clocks agree."""

OVERLAP_MS: Final = 60_000
"""How far back if some are missing then, since clocks may differ."""

NAMED_MAX: Final = 1_000
KEYS_BYTES_MAX: Final = 50_000


class Position(NamedTuple):
    """Up to where changes are known: their counter, the keys of the latest records, and the time of the look in ms."""

    changes: int
    seen: frozenset[bytes]
    at_ms: int


def note(tx: Transaction, table_id: int, changed: Iterable[Values], now_ms: int) -> None:
    """Writes the record of what a transaction changes, once in each that changes partitions of the table."""
    record = record_of(changed)
    if len(record.partitions) > NAMED_MAX or record.ByteSize() > KEYS_BYTES_MAX:
        record = PartitionChangeRecord(all=True)
    _note(tx, table_id, record, now_ms)


def note_all(tx: Transaction, table_id: int, now_ms: int) -> None:
    """Takes the place of ``note`` where too many partitions changed to name them."""
    _note(tx, table_id, PartitionChangeRecord(all=True), now_ms)


def record_of(changed: Iterable[Values]) -> PartitionChangeRecord:
    """The record that names these partitions."""
    return PartitionChangeRecord(partitions=[PartitionKey(values=values) for values in changed])


def _note(tx: Transaction, table_id: int, record: PartitionChangeRecord, now_ms: int) -> None:
    tx.add(PARTITION_CHANGES.key(table_id, 0), 1)
    tx.clear_range(PARTITION_CHANGES.key(table_id, 1), PARTITION_CHANGES.key(table_id, max(1, now_ms - KEPT_MS)))
    tx.set(PARTITION_CHANGES.key(table_id, now_ms, secrets.randbits(62)), record.SerializeToString())


def count(tx: ReadTransaction, table_id: int) -> int:
    """How many transactions have changed partitions of the table. The read adds no conflict."""
    return counter(tx.get(PARTITION_CHANGES.key(table_id, 0), snapshot=True))


def position(tx: ReadTransaction, table_id: int, now_ms: int) -> Position:
    """The position now, from which ``since`` goes on."""
    return Position(count(tx, table_id), frozenset(_records(tx, table_id, now_ms, OVERLAP_MS)), now_ms)


def since(tx: ReadTransaction, table_id: int, known: Position, now_ms: int) -> tuple[Position, list[Values] | None]:
    """The new position, and which partitions changed; None if everything has to be read again."""
    current = count(tx, table_id)
    if current == known.changes:
        return known, []
    recent: dict[bytes, bytes] = {}
    for back_ms in (NEAR_MS, OVERLAP_MS):
        recent = _records(tx, table_id, min(known.at_ms, now_ms), back_ms)
        unseen = recent.keys() - known.seen
        if len(unseen) == current - known.changes:
            break
    begin = PARTITION_CHANGES.key(table_id, max(1, now_ms - OVERLAP_MS))
    moved = Position(current, frozenset(key for key in known.seen | recent.keys() if key >= begin), now_ms)
    if len(unseen) != current - known.changes:
        return moved, None
    records = [PartitionChangeRecord.FromString(recent[key]) for key in unseen]
    changed = {tuple(partition.values) for record in records for partition in record.partitions}
    if any(record.all for record in records) or len(changed) > NAMED_MAX:
        return moved, None
    return moved, sorted(changed)


def _records(tx: ReadTransaction, table_id: int, at_ms: int, back_ms: int) -> dict[bytes, bytes]:
    begin = PARTITION_CHANGES.key(table_id, max(1, at_ms - back_ms))
    return dict(tx.get_range(begin, PARTITION_CHANGES.range(table_id)[1], snapshot=True))
