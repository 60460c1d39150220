"""Warehouse (Hive) tables and partitions as the store holds them, inside a transaction.

The Thrift structs are opaque here. The Metastore protocol makes and reads them, and passes beside them what the service
must know, so nothing in the domain depends on Thrift.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, cast

from lakemark_core import storage
from lakemark_core.errors import CorruptStore, PartitionNotFound, TableNotFound, UnsupportedOperation
from lakemark_core.types import partition_name
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry
from lakemark_proto.store.v1.warehouse_pb2 import HivePartitionRecord, HiveTableRecord
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE
from lakemark_server.catalog import tables
from lakemark_server.kv import KeyValue, ReadTransaction, Transaction, blob
from lakemark_server.store.keyspace import COLUMN_STATISTICS, HIVE_TABLES, PARTITIONS, PENDING_PARTITIONS

Values = tuple[str, ...]
"""A partition's values as texts, in the order of the partition columns; null is the text of the default partition."""

PENDING_HEAD: Final = 0
"""The key element below which a table's batches are; see ``partition_batches``."""

BATCH_DONE: Final = b"\1"
"""The first byte of the value under a batch's key once the batch is done; while it is pending, the byte is another."""

_FIRST_CHUNK = b"\x14"  # the end of the key of a blob's first chunk: 0 in the tuple encoding


@dataclass(frozen=True, slots=True)
class HiveTable:
    """A warehouse table as one transaction saw it."""

    database: DatabaseRecord
    name: str
    entry: TableEntry
    record: HiveTableRecord

    @property
    def table_id(self) -> int:
        return self.entry.table_id

    @property
    def columns(self) -> Sequence[str]:
        """The partition columns."""
        return self.record.partition_columns

    @property
    def label(self) -> str:
        return f"{self.database.name}.{self.name}"

    def partition_name(self, values: Sequence[str]) -> str:
        """``month=1/origin=JFK``."""
        return partition_name(self.record.partition_columns, values)


class Partition(NamedTuple):
    """One partition.

    ``head``, the location and ``tail`` make up its Thrift struct, without the struct's end and the names of its table.
    ``located``: whether the struct has a location. ``relative``: ``location`` is relative to the table's
    ``partition_base``.
    """

    values: Values
    location: str
    relative: bool
    located: bool
    head: bytes
    tail: bytes

    def full_location(self, base: str) -> str:
        return f"{base}/{self.location}" if self.relative else self.location

    @property
    def size_bytes(self) -> int:
        return len(self.head) + len(self.tail) + len(self.location) + sum(map(len, self.values)) + 200


class InBatch(NamedTuple):
    """A partition that a batch changes (``partition_batches``).

    Readers see ``before`` while the batch is pending, and ``after`` once it is done; None: there is no partition.
    """

    values: Values
    batch: int
    before: Partition | None
    after: Partition | None


Stored: TypeAlias = Partition | InBatch


def new_partition(
    table: HiveTable, values: Values, location: str, head: bytes, tail: bytes, *, located: bool
) -> Partition:
    """``location`` is a full URI; if it lies below the table's directory, it is stored relative to that."""
    base = table.record.partition_base + "/"
    relative = located and len(base) > 1 and location.startswith(base) and len(location) > len(base)
    return Partition(values, location[len(base) :] if relative else location, relative, located, head, tail)


def load_table(tx: ReadTransaction, catalog: str, database: str, name: str) -> HiveTable:
    """Raises DatabaseNotFound, TableNotFound, UnsupportedOperation if it is a lake table."""
    owner, entry = tables.get(tx, catalog, database, name)
    return table_of_entry(tx, owner, name.lower(), entry)


def find_record(tx: ReadTransaction, table_id: int) -> HiveTableRecord | None:
    """The definition of the table with this id, or None."""
    stored = blob.get(tx, HIVE_TABLES.space(table_id))
    return None if stored is None else HiveTableRecord.FromString(stored)


def find_records(table_ids: Sequence[int], tx: ReadTransaction) -> list[HiveTableRecord | None]:
    """As ``find_record`` of each."""
    all_stored = blob.get_many(tx, [HIVE_TABLES.space(table_id) for table_id in table_ids])
    return [None if stored is None else HiveTableRecord.FromString(stored) for stored in all_stored]


def table_of_entry(tx: ReadTransaction, owner: DatabaseRecord, name: str, entry: TableEntry) -> HiveTable:
    """Raises UnsupportedOperation if it is a lake table."""
    if entry.kind != WAREHOUSE:
        raise UnsupportedOperation(f"{owner.name}.{name} is a lake table, not a warehouse table")
    record = find_record(tx, entry.table_id)
    if record is None:
        raise CorruptStore(f"the definition of table {owner.name}.{name} (id {entry.table_id}) is missing")
    return HiveTable(owner, name, entry, record)


def find_table(tx: ReadTransaction, table_id: int) -> HiveTable | None:
    """The table with this id; None: there is none, or an earlier build wrote it, which noted no names.

    Of its database only the name is known.
    """
    record = find_record(tx, table_id)
    if record is None or not record.name:
        return None
    owner = DatabaseRecord(catalog=record.catalog, name=record.database)
    return HiveTable(owner, record.name, TableEntry(table_id=table_id, kind=WAREHOUSE), record)


def put_table(tx: Transaction, table: HiveTable) -> None:
    """Writes the definition of a table, with the names that it has."""
    named = HiveTableRecord()
    named.CopyFrom(table.record)
    named.catalog, named.database, named.name = table.database.catalog, table.database.name, table.name
    blob.put(tx, HIVE_TABLES.space(table.table_id), named.SerializeToString())


def require_table(tx: ReadTransaction, table: HiveTable) -> None:
    """Raises TableNotFound if the table was dropped. Conflicts with every change of its definition."""
    if tx.get(HIVE_TABLES.space(table.table_id).key(0)) is None:
        raise TableNotFound(f"there is no table {table.label}", table=table.label)


def put_partition(tx: Transaction, table_id: int, partition: Stored) -> None:
    """Writes the partition in place of one with the same values, if there is one."""
    blob.put(tx, PARTITIONS.space(table_id, *partition.values), _serialized(partition))


def put_new_partition(tx: Transaction, table_id: int, partition: Stored) -> None:
    """Writes a partition where there is none with the same values."""
    blob.put_new(tx, PARTITIONS.space(table_id, *partition.values), _serialized(partition))


def _serialized(stored: Stored) -> bytes:
    if isinstance(stored, Partition):
        return HivePartitionRecord(**stored._asdict()).SerializeToString()
    partition = cast(Partition, stored.after or stored.before)
    record = HivePartitionRecord(**partition._asdict(), batch=stored.batch, gone=stored.after is None)
    if stored.before and stored.after:
        record.before.MergeFrom(HivePartitionRecord(**stored.before._asdict()))
    return record.SerializeToString()


def find_partition(tx: ReadTransaction, table_id: int, values: Values) -> Partition | None:
    """The partition with these values, or None."""
    return find_partitions(tx, table_id, [values])[0]


def find_partitions(tx: ReadTransaction, table_id: int, wanted: Sequence[Values]) -> list[Partition | None]:
    """In the order of ``wanted``; None where there is none. One round trip reads all that fit into single values."""
    return _seen(tx, table_id, stored_partitions(tx, table_id, wanted))


def stored_partitions(tx: ReadTransaction, table_id: int, wanted: Sequence[Values]) -> list[Stored | None]:
    """Like ``find_partitions``, but with partitions of batches as they are stored."""
    spaces = [PARTITIONS.space(table_id, *values) for values in wanted]
    rows: list[Stored | None] = []
    for space, first in zip(spaces, tx.get_many([space.key(0) for space in spaces]), strict=True):
        whole = first[2:] if first and first[:2] == b"\0\1" else first and blob.get(tx, space)
        rows.append(None if whole is None else _parse(whole))
    return rows


def pending_batches(tx: ReadTransaction, table_id: int, rows: Sequence[Stored | None]) -> set[int]:
    """The pending ones of the batches that these rows belong to. Reads nothing if there are none, as is usual."""
    batches = sorted({row.batch for row in rows if isinstance(row, InBatch)})
    if not batches:
        return set()
    heads = tx.get_many([PENDING_PARTITIONS.key(table_id, PENDING_HEAD, batch) for batch in batches])
    return {batch for batch, head in zip(batches, heads, strict=True) if head is not None and not is_done(head)}


def is_done(head: bytes) -> bool:
    """Whether this value of a batch's key says that the batch is done."""
    return head[:1] == BATCH_DONE


def _seen(tx: ReadTransaction, table_id: int, rows: Sequence[Stored | None]) -> list[Partition | None]:
    pending = pending_batches(tx, table_id, rows)
    return [row if not isinstance(row, InBatch) else row.before if row.batch in pending else row.after for row in rows]


def partitions_in(tx: ReadTransaction, table_id: int, begin: bytes, end: bytes, limit: int = 0) -> list[Partition]:
    """The partitions in a range of keys, which must not begin or end within one.

    ``limit``: of pairs read (0: none); a partition that is cut off by it is left out.
    """
    return _there(tx, table_id, list(_parsed(tx.get_range(begin, end, limit=limit))))


def partitions_page(
    table_id: int, begin: bytes, end: bytes, limit: int, tx: ReadTransaction
) -> tuple[list[Partition], bytes | None]:
    """The partitions that are whole within ``limit`` pairs, and where to read on if there may be more.

    The read adds no conflict.
    """
    rows, following = stored_page(table_id, begin, end, limit, tx)
    return _there(tx, table_id, rows), following


def stored_page(
    table_id: int, begin: bytes, end: bytes, limit: int, tx: ReadTransaction
) -> tuple[list[Stored], bytes | None]:
    """Like ``partitions_page``, but with partitions of batches as they are stored."""
    pairs = tx.get_range(begin, end, limit=limit, snapshot=True)
    rows = list(_parsed(pairs))
    # A partition of which the page has only a part is read again as a whole.
    following = partition_range(table_id, rows[-1].values)[1] if len(pairs) == limit else None
    return rows, following


def _there(tx: ReadTransaction, table_id: int, rows: list[Stored]) -> list[Partition]:
    return [row for row in _seen(tx, table_id, rows) if row is not None]


def get_partition(tx: ReadTransaction, table: HiveTable, values: Values) -> Partition:
    """Raises PartitionNotFound."""
    partition = find_partition(tx, table.table_id, values)
    if partition is None:
        raise PartitionNotFound(f"table {table.label} has no partition {table.partition_name(values)}")
    return partition


def clear_partition(
    tx: Transaction, table_id: int, columns: Sequence[str], values: Values, *, statistics: bool = True
) -> None:
    """Removes a partition, and with ``statistics`` also those of its columns."""
    blob.clear(tx, PARTITIONS.space(table_id, *values))
    if statistics:
        tx.clear_range(*COLUMN_STATISTICS.range(table_id, partition_name(columns, values)))


def partition_columns(tx: ReadTransaction, table_id: int) -> Sequence[str]:
    """The names of the partition columns, which never change. Raises CorruptStore."""
    stored = blob.get(tx, HIVE_TABLES.space(table_id), snapshot=True)
    if stored is None:
        raise CorruptStore(f"table id {table_id} has partitions and no definition")
    return HiveTableRecord.FromString(stored).partition_columns


def partition_range(table_id: int, leading: Values) -> tuple[bytes, bytes]:
    """The range of keys of the partitions whose values begin with ``leading``."""
    return PARTITIONS.range(table_id, *leading)


def _parsed(pairs: Sequence[KeyValue]) -> Iterator[Stored]:
    chunks: list[bytes] = []
    for key, value in pairs:
        if key.endswith(_FIRST_CHUNK) and not chunks and value[:2] == b"\0\1":
            yield _parse(value[2:])
            continue
        chunks.append(value)
        if len(chunks) == int.from_bytes(chunks[0][:2], "big"):
            yield _parse(b"".join((chunks[0][2:], *chunks[1:])))
            chunks = []


def _parse(stored: bytes) -> Stored:
    record = HivePartitionRecord.FromString(stored)
    partition = _partition(record)
    if not record.batch:
        return partition
    if record.gone:
        return InBatch(partition.values, record.batch, partition, None)
    before = _partition(record.before) if record.HasField("before") else None
    return InBatch(partition.values, record.batch, before, partition)


def _partition(record: HivePartitionRecord) -> Partition:
    return Partition(tuple(record.values), record.location, record.relative, record.located, record.head, record.tail)


def inside(location: str, directory: str) -> bool:
    """Whether ``location`` is ``directory`` or lies below it."""
    return storage.lies_in(location, directory)


def parents_between(location: str, directory: str) -> Iterator[str]:
    """The directories above ``location`` and below ``directory``, the innermost first."""
    parent = posixpath.dirname(location)
    while parent != directory and inside(parent, directory):
        yield parent
        parent = posixpath.dirname(parent)
