"""Partitions of warehouse tables: look up, add, alter, rename, drop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from lakemark.errors import AlreadyExists, InvalidArgument, LakemarkError, PartitionNotFound
from lakemark_server import deadline
from lakemark_server.admission import usage
from lakemark_server.catalog import directories, partition_changes, warehouse_records
from lakemark_server.catalog.partition_sets import PartitionSet, PartitionSets
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, Values
from lakemark_server.keyspace import COLUMN_STATISTICS
from lakemark_server.kv import ReadTransaction, Transaction

BATCH_BYTES_MAX: Final = 4_000_000
"""Of partitions written in one transaction; what a client sends in one request beyond it takes several."""

DIRECT_MAX: Final = 200
"""So many partitions are read by their keys; for more, all partitions of the table are kept in memory."""


class WarehousePartitions:
    """Thread-safe.

    A request writes all of its partitions or none: in one transaction up to ``BATCH_BYTES_MAX`` (some thousands). A
    larger one is checked as a whole first and then written in several: readers may see its first part before the rest,
    and if a later part fails, additions are taken back.
    """

    def __init__(self, catalog: Catalog, sets: PartitionSets) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._sets = sets

    # -- look up ------------------------------------------------------------------------------------------------------

    def get(self, table: HiveTable, values: Values) -> Partition:
        """Raises InvalidArgument for a wrong number of values, PartitionNotFound."""
        check_values(table, values)
        return self._store.read(lambda tx: warehouse_records.get_partition(tx, table, values))

    def all(self, table: HiveTable) -> PartitionSet:
        """In the order of their values."""
        return self._sets.get(table.table_id)

    def named(self, table: HiveTable, wanted: Sequence[Values]) -> list[Partition]:
        """Those of ``wanted`` that there are, in that order."""
        if len(wanted) <= DIRECT_MAX and not self._sets.holds(table.table_id):
            found = self._store.read(lambda tx: warehouse_records.find_partitions(tx, table.table_id, wanted))
            return [row for row in found if row is not None]
        loaded = self._sets.get(table.table_id)
        index = loaded.index()
        return [loaded.rows[index[values]] for values in wanted if values in index]

    def first(self, table: HiveTable, leading: Values, limit: int) -> list[Partition] | None:
        """Up to ``limit`` partitions whose first values these are, read by their keys; None: better take ``all``."""
        if self._sets.holds(table.table_id) or not (leading or 0 < limit <= DIRECT_MAX):
            return None

        def body(tx: ReadTransaction) -> list[Partition]:
            begin, end = warehouse_records.partition_range(table.table_id, leading)
            rows = list(warehouse_records.parse_partitions(tx.get_range(begin, end, limit=max(limit, 0))))
            # Partitions in several pieces may have filled the limit.
            return rows if limit <= 0 or len(rows) == limit else self._all_below(tx, begin, end, limit)

        return self._store.read(body)

    @staticmethod
    def _all_below(tx: ReadTransaction, begin: bytes, end: bytes, limit: int) -> list[Partition]:
        return list(warehouse_records.parse_partitions(tx.get_range(begin, end)))[:limit]

    # -- change -------------------------------------------------------------------------------------------------------

    def add(self, table: HiveTable, new: Sequence[Partition], *, if_not_exists: bool = False) -> list[Partition]:
        """Makes their directories, too; gives those that were added.

        Raises AlreadyExists unless ``if_not_exists``, InvalidArgument for a wrong number of values or a partition that
        is given twice, TableNotFound, Unavailable.
        """
        wanted = self._checked(table, [row.values for row in new])
        present = self._store.read(lambda tx: warehouse_records.existing(tx, table.table_id, wanted))
        missing: list[Partition] = []
        for row, exists in zip(new, present, strict=True):
            if not exists:
                missing.append(row)
            elif not if_not_exists:
                raise _exists(table, row.values)
        base = table.record.partition_base
        locations = [row.full_location(base) for row in missing if row.located]
        return directories.with_directories(locations, lambda: self._add_all(table, missing, if_not_exists))

    def _add_all(self, table: HiveTable, new: Sequence[Partition], if_not_exists: bool) -> list[Partition]:
        added: list[Partition] = []
        try:
            for batch in _batches(new):
                added += self._store.transact(partial(self._add, table, batch, if_not_exists))
        except LakemarkError:
            if added:
                with deadline.within(deadline.NEVER):  # what ends the request must not end this
                    self._store.transact(partial(self._clear, table, [row.values for row in added]))
            raise
        return added

    def _add(self, table: HiveTable, new: Sequence[Partition], if_not_exists: bool, tx: Transaction) -> list[Partition]:
        warehouse_records.require_table(tx, table)
        added: list[Partition] = []
        present = warehouse_records.existing(tx, table.table_id, [row.values for row in new])
        for row, exists in zip(new, present, strict=True):
            if not exists:
                warehouse_records.put_partition(tx, table.table_id, row)
                added.append(row)
            elif not if_not_exists:
                raise _exists(table, row.values)
        self._note(tx, table, [row.values for row in added])
        return added

    def alter(self, table: HiveTable, changes: Mapping[Values, Callable[[Partition], Partition]]) -> None:
        """Replaces partitions by what the functions make of them. Raises PartitionNotFound, InvalidArgument."""
        wanted = self._checked(table, list(changes))
        before = self._store.read(lambda tx: warehouse_records.find_partitions(tx, table.table_id, wanted))
        rows: list[Partition] = []
        for values, row in zip(wanted, before, strict=True):
            if row is None:
                raise _missing(table, values)
            rows.append(row)
        deadline.check()
        with deadline.within(deadline.NEVER):  # what is begun is not left half done
            for batch in _batches(rows):
                self._store.transact(partial(self._alter, table, changes, [row.values for row in batch]))

    def alter_all(self, table: HiveTable, change: Callable[[Partition], Partition]) -> None:
        """The same change to every partition: ``ALTER TABLE … CASCADE``."""
        rows = self.all(table).rows
        deadline.check()
        with deadline.within(deadline.NEVER):
            for batch in _batches(rows):
                self._store.transact(
                    partial(self._alter, table, {row.values: change for row in batch}, [row.values for row in batch])
                )

    def _alter(
        self,
        table: HiveTable,
        changes: Mapping[Values, Callable[[Partition], Partition]],
        wanted: Sequence[Values],
        tx: Transaction,
    ) -> None:
        warehouse_records.require_table(tx, table)
        for values, row in zip(wanted, warehouse_records.find_partitions(tx, table.table_id, wanted), strict=True):
            if row is None:
                raise _missing(table, values)
            warehouse_records.put_partition(tx, table.table_id, changes[values](row))
        self._note(tx, table, wanted)

    def rename(self, table: HiveTable, values: Values, change: Callable[[Partition], Partition]) -> Partition:
        """``change`` gives the partition with its new values; its directory follows a new location of a table that owns
        its data. Raises PartitionNotFound, AlreadyExists for the values or the directory, InvalidArgument.
        """
        old = self.get(table, values)
        new = change(old)
        check_values(table, new.values)
        base = table.record.partition_base
        source, target = old.full_location(base), new.full_location(base)

        def apply() -> Partition:
            return self._store.transact(partial(self._rename, table, old, new))

        if not old.located or source == target:
            return apply()
        if table.record.owns_data:
            return directories.with_moved_directory(source, target, apply)
        return directories.with_directories([target], apply)

    def _rename(self, table: HiveTable, old: Partition, new: Partition, tx: Transaction) -> Partition:
        warehouse_records.require_table(tx, table)
        if warehouse_records.get_partition(tx, table, old.values) != old:
            raise PartitionNotFound(
                f"partition {table.partition_name(old.values)} of {table.label} was changed by another meanwhile"
            )
        if new.values != old.values and warehouse_records.existing(tx, table.table_id, [new.values]) == [True]:
            raise _exists(table, new.values)
        self._clear(table, [old.values], tx)
        warehouse_records.put_partition(tx, table.table_id, new)
        self._note(tx, table, [new.values])
        return new

    def drop(
        self, table: HiveTable, wanted: Sequence[Values], *, delete_data: bool, if_exists: bool
    ) -> list[Partition]:
        """Gives what was dropped. Data are deleted of a table that owns them.

        Raises PartitionNotFound unless ``if_exists``, InvalidArgument.
        """
        checked = self._checked(table, wanted)
        dropped = self._store.transact(partial(self._drop, table, checked, if_exists))
        if delete_data and table.record.owns_data:
            kept = (self._catalog.warehouse, table.database.location, table.record.location)
            for row in dropped:
                location = row.full_location(table.record.partition_base)
                if row.located:
                    directories.delete_unless_shared(location, kept)
                    directories.remove_empty_parents(location, table.record.location)
        return dropped

    def _drop(self, table: HiveTable, wanted: Sequence[Values], if_exists: bool, tx: Transaction) -> list[Partition]:
        warehouse_records.require_table(tx, table)
        dropped: list[Partition] = []
        for values, row in zip(wanted, warehouse_records.find_partitions(tx, table.table_id, wanted), strict=True):
            if row is not None:
                dropped.append(row)
            elif not if_exists:
                raise _missing(table, values)
        self._clear(table, [row.values for row in dropped], tx)
        return dropped

    def _checked(self, table: HiveTable, wanted: Sequence[Values]) -> Sequence[Values]:
        catalog = table.database.catalog
        usage.check_partitions(catalog, len(wanted), self._catalog.quotas.of(catalog))
        seen: set[Values] = set()
        for values in wanted:
            check_values(table, values)
            if values in seen:
                raise InvalidArgument(f"partition {table.partition_name(values)} is given twice in one request")
            seen.add(values)
        return wanted

    def _clear(self, table: HiveTable, gone: Sequence[Values], tx: Transaction) -> None:
        for values in gone:
            warehouse_records.clear_partition(tx, table.table_id, values)
            tx.clear_range(*COLUMN_STATISTICS.range(table.table_id, table.partition_name(values)))
        self._note(tx, table, gone)

    def _note(self, tx: Transaction, table: HiveTable, changed: Sequence[Values]) -> None:
        if changed:
            partition_changes.note(tx, table.table_id, changed, self._catalog.clock())


def check_values(table: HiveTable, values: Values) -> None:
    """Raises InvalidArgument for a wrong number of values."""
    if len(values) != len(table.columns) or not values:
        if not table.columns:
            raise InvalidArgument(f"table {table.label} is not partitioned")
        raise InvalidArgument(
            f"Invalid partition key & values; table {table.label} has the partition columns "
            f"[{', '.join(table.columns)}], the values are [{', '.join(values)}]"
        )


def _batches(rows: Sequence[Partition]) -> Iterator[Sequence[Partition]]:
    """Runs of rows that fit into one transaction; a single row may be larger, and is then the store's to refuse."""
    start, size = 0, 0
    for at, row in enumerate(rows):
        size += row.size_bytes
        if size > BATCH_BYTES_MAX and at > start:
            yield rows[start:at]
            start, size = at, row.size_bytes
    if start < len(rows):
        yield rows[start:]


def _exists(table: HiveTable, values: Values) -> AlreadyExists:
    name = table.partition_name(values)
    return AlreadyExists(f"Partition already exists: {name} of table {table.label}", partition=name)


def _missing(table: HiveTable, values: Values) -> PartitionNotFound:
    name = table.partition_name(values)
    return PartitionNotFound(f"table {table.label} has no partition {name}", partition=name)
