"""Warehouse (Hive) tables and partitions as the store holds them, inside a transaction.

The Thrift structs are opaque here: whoever speaks the Metastore protocol makes and reads them, and says beside them
what the service must know. Nothing in the domain depends on Thrift.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lakemark.errors import CorruptStore, PartitionNotFound, TableNotFound, UnsupportedOperation
from lakemark.types import partition_name
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry
from lakemark_proto.store.v1.warehouse_pb2 import HivePartitionRecord, HiveTableRecord
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE
from lakemark_server.catalog import tables
from lakemark_server.keyspace import HIVE_TABLES, PARTITIONS
from lakemark_server.kv import KeyValue, ReadTransaction, Transaction, blob

Values = tuple[str, ...]
"""Of one partition: texts in the order of the partition columns, null as the text of the default partition."""

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
    """One partition: ``head``, location and ``tail`` are its Thrift struct without its end and without the names of
    its table, ``located`` whether there is a location between them. ``location`` may be relative to the table's
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


def new_partition(
    table: HiveTable, values: Values, location: str, head: bytes, tail: bytes, *, located: bool
) -> Partition:
    """``location`` is a full URI; below the table's directory it is kept relative to it."""
    base = table.record.partition_base + "/"
    relative = located and len(base) > 1 and location.startswith(base) and len(location) > len(base)
    return Partition(values, location[len(base) :] if relative else location, relative, located, head, tail)


def load_table(tx: ReadTransaction, catalog: str, database: str, name: str) -> HiveTable:
    """Raises DatabaseNotFound, TableNotFound, UnsupportedOperation if it is a lake table."""
    owner, entry = tables.get(tx, catalog, database, name)
    return table_of_entry(tx, owner, name.lower(), entry)


def table_of_entry(tx: ReadTransaction, owner: DatabaseRecord, name: str, entry: TableEntry) -> HiveTable:
    """Raises UnsupportedOperation if it is a lake table."""
    if entry.kind != WAREHOUSE:
        raise UnsupportedOperation(f"{owner.name}.{name} is a lake table, not a warehouse table")
    stored = blob.get(tx, HIVE_TABLES.space(entry.table_id))
    if stored is None:
        raise CorruptStore(f"the definition of table {owner.name}.{name} (id {entry.table_id}) is missing")
    return HiveTable(owner, name, entry, HiveTableRecord.FromString(stored))


def put_table(tx: Transaction, table_id: int, record: HiveTableRecord) -> None:
    blob.put(tx, HIVE_TABLES.space(table_id), record.SerializeToString())


def require_table(tx: ReadTransaction, table: HiveTable) -> None:
    """Raises TableNotFound if the table was dropped. Conflicts with every change of its definition."""
    if tx.get(HIVE_TABLES.space(table.table_id).key(0)) is None:
        raise TableNotFound(f"there is no table {table.label}", table=table.label)


def put_partition(tx: Transaction, table_id: int, partition: Partition) -> None:
    record = HivePartitionRecord(**partition._asdict())
    blob.put(tx, PARTITIONS.space(table_id, *partition.values), record.SerializeToString())


def find_partition(tx: ReadTransaction, table_id: int, values: Values) -> Partition | None:
    stored = blob.get(tx, PARTITIONS.space(table_id, *values))
    return None if stored is None else _parse(stored)


def find_partitions(tx: ReadTransaction, table_id: int, wanted: Sequence[Values]) -> list[Partition | None]:
    """In the order of ``wanted``, with one round trip for those that fit into one value."""
    keys = [PARTITIONS.space(table_id, *values).key(0) for values in wanted]
    found: list[Partition | None] = []
    for values, stored in zip(wanted, tx.get_many(keys), strict=True):
        if stored is not None and stored[:2] == b"\0\1":
            found.append(_parse(stored[2:]))
        else:
            found.append(None if stored is None else find_partition(tx, table_id, values))
    return found


def existing(tx: ReadTransaction, table_id: int, wanted: Sequence[Values]) -> list[bool]:
    """Which of the partitions there are."""
    keys = [PARTITIONS.space(table_id, *values).key(0) for values in wanted]
    return [stored is not None for stored in tx.get_many(keys)]


def get_partition(tx: ReadTransaction, table: HiveTable, values: Values) -> Partition:
    """Raises PartitionNotFound."""
    found = find_partition(tx, table.table_id, values)
    if found is None:
        raise PartitionNotFound(f"table {table.label} has no partition {table.partition_name(values)}")
    return found


def clear_partition(tx: Transaction, table_id: int, values: Values) -> None:
    blob.clear(tx, PARTITIONS.space(table_id, *values))


def partition_range(table_id: int, leading: Values) -> tuple[bytes, bytes]:
    """The keys of the partitions whose first values these are."""
    return PARTITIONS.range(table_id, *leading)


def parse_partitions(pairs: Sequence[KeyValue]) -> Iterator[Partition]:
    """The partitions in a range of keys that ends at the end of one."""
    chunks: list[bytes] = []
    for key, value in pairs:
        if key.endswith(_FIRST_CHUNK) and not chunks and value[:2] == b"\0\1":
            yield _parse(value[2:])
            continue
        chunks.append(value)
        if len(chunks) == int.from_bytes(chunks[0][:2], "big"):
            yield _parse(b"".join((chunks[0][2:], *chunks[1:])))
            chunks = []


def _parse(stored: bytes) -> Partition:
    record = HivePartitionRecord.FromString(stored)
    return Partition(tuple(record.values), record.location, record.relative, record.located, record.head, record.tail)


def inside(location: str, directory: str) -> bool:
    """Whether ``location`` is ``directory`` or lies below it."""
    return bool(directory) and (location == directory or location.startswith(directory + "/"))


def parents_between(location: str, directory: str) -> Iterator[str]:
    """The directories above ``location``, up to and without ``directory``."""
    parent = posixpath.dirname(location)
    while parent != directory and inside(parent, directory):
        yield parent
        parent = posixpath.dirname(parent)
