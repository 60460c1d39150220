"""Partitions of warehouse tables: look up, add, alter, rename, drop."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from lakemark.errors import AlreadyExists, InvalidArgument, LakemarkError, PartitionNotFound, StoreConflict
from lakemark_server import deadline
from lakemark_server.admission import usage
from lakemark_server.catalog import directories, partition_batches, partition_changes, warehouse_records
from lakemark_server.catalog.partition_sets import PartitionSet, PartitionSets
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, Values
from lakemark_server.keyspace import COLUMN_STATISTICS
from lakemark_server.kv import ReadTransaction, Transaction

BATCH_BYTES_MAX: Final = 900_000
"""Of partitions written in one transaction, with what else it takes to write them; a request may take several."""

_DROPPED_AT_ONCE: Final = 500
_ROW_BYTES: Final = 500  # of a partition's mutations and conflict ranges, without its key and value
_KEY_COPIES: Final = 12  # in the writes and conflict ranges of one partition, at most

DIRECT_MAX: Final = 200
"""So many partitions are read by their keys; for more, all partitions of the table are kept in memory."""


class WarehousePartitions:
    """Thread-safe.

    A request is one transaction up to ``BATCH_BYTES_MAX`` (some hundreds of partitions). A larger one takes several:
    what it adds is there all at once or not at all (``partition_batches``); changes and drops are checked as a whole
    first, and readers may see the first part before the rest, which is missing if the process ends in between.
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
            rows = warehouse_records.partitions_in(tx, table.table_id, begin, end, max(limit, 0))
            if limit <= 0 or len(rows) == limit:
                return rows
            # Partitions in several pieces may have filled the limit, or such that are not there yet.
            return warehouse_records.partitions_in(tx, table.table_id, begin, end)[:limit]

        return self._store.read(body)

    # -- change -------------------------------------------------------------------------------------------------------

    def add(self, table: HiveTable, new: Sequence[Partition], *, if_not_exists: bool = False) -> list[Partition]:
        """Makes their directories, too; gives those that were added.

        Raises AlreadyExists unless ``if_not_exists``, InvalidArgument for a wrong number of values or a partition that
        is given twice, TableNotFound, Unavailable.
        """
        wanted = self._checked(table, [row.values for row in new])
        for batch in self._store.read(lambda tx: partition_batches.abandoned(tx, table.table_id, self._now_ms())):
            partition_batches.take_back(self._store, table.table_id, batch)
        present = self._store.read(lambda tx: warehouse_records.find_partitions(tx, table.table_id, wanted))
        missing: list[Partition] = []
        for row, there in zip(new, present, strict=True):
            if there is None:
                missing.append(row)
            elif not if_not_exists:
                raise _exists(table, row.values)
        base = table.record.partition_base
        locations = [row.full_location(base) for row in missing if row.located]
        return directories.with_directories(locations, lambda: self._add_all(table, missing, if_not_exists))

    def _add_all(self, table: HiveTable, new: Sequence[Partition], if_not_exists: bool) -> list[Partition]:
        parts = list(_parts(new))
        if len(parts) < 2:
            return self._store.transact(partial(self._add, table, new, if_not_exists)) if new else []
        batch = 1 + secrets.randbits(62)
        added: list[Partition] = []
        try:
            for number, part in enumerate(parts):
                added += self._store.transact(partial(self._add_part, table, batch, number, part, if_not_exists))
            self._store.transact(lambda tx: self._complete(table, batch, tx))
        except LakemarkError:
            with deadline.within(deadline.NEVER):  # what ends the request must not end this
                partition_batches.take_back(self._store, table.table_id, batch)
            raise
        return added

    def _add(self, table: HiveTable, new: Sequence[Partition], if_not_exists: bool, tx: Transaction) -> list[Partition]:
        missing = self._missing(table, new, if_not_exists, tx)
        for row in missing:
            warehouse_records.put_new_partition(tx, table.table_id, row)
        self._note(tx, table, [row.values for row in missing])
        return missing

    def _add_part(
        self,
        table: HiveTable,
        batch: int,
        number: int,
        part: Sequence[Partition],
        if_not_exists: bool,
        tx: Transaction,
    ) -> list[Partition]:
        missing = self._missing(table, part, if_not_exists, tx)
        partition_batches.add_part(tx, table, batch, number, missing, self._now_ms())
        return missing

    def _complete(self, table: HiveTable, batch: int, tx: Transaction) -> None:
        warehouse_records.require_table(tx, table)
        partition_batches.complete(tx, table, batch, self._now_ms())

    def _missing(
        self, table: HiveTable, new: Sequence[Partition], if_not_exists: bool, tx: Transaction
    ) -> list[Partition]:
        """Those of ``new`` that there are not. Raises TableNotFound, AlreadyExists, StoreConflict."""
        warehouse_records.require_table(tx, table)
        stored = warehouse_records.stored_partitions(tx, table.table_id, [row.values for row in new])
        pending = warehouse_records.pending_batches(tx, table.table_id, stored)
        missing: list[Partition] = []
        for row, there in zip(new, stored, strict=True):
            if there is None:
                missing.append(row)
            elif there.batch in pending:
                raise _being_added(table, row.values)
            elif not if_not_exists:
                raise _exists(table, row.values)
        return missing

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
            for part in _parts(rows):
                self._store.transact(partial(self._alter, table, changes, [row.values for row in part]))

    def alter_all(self, table: HiveTable, change: Callable[[Partition], Partition]) -> None:
        """The same change to every partition: ``ALTER TABLE … CASCADE``."""
        rows = self.all(table).rows
        deadline.check()
        with deadline.within(deadline.NEVER):
            for part in _parts(rows):
                self._store.transact(
                    partial(self._alter, table, {row.values: change for row in part}, [row.values for row in part])
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
            warehouse_records.put_partition(tx, table.table_id, changes[values](row)._replace(batch=0))
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
        self._clear(table, [old.values], tx)
        self._missing(table, [new], False, tx)
        warehouse_records.put_partition(tx, table.table_id, new._replace(batch=0))
        self._note(tx, table, [new.values])
        return new

    def drop(
        self, table: HiveTable, wanted: Sequence[Values], *, delete_data: bool, if_exists: bool
    ) -> list[Partition]:
        """Gives what was dropped. Data are deleted of a table that owns them.

        Raises PartitionNotFound unless ``if_exists``, InvalidArgument.
        """
        checked = self._checked(table, wanted)
        if len(checked) > _DROPPED_AT_ONCE:
            there = self._store.read(lambda tx: warehouse_records.find_partitions(tx, table.table_id, checked))
            _check_dropped(table, checked, there, if_exists)
        deadline.check()
        dropped: list[Partition] = []
        with deadline.within(deadline.NEVER):  # what is begun is not left half done
            for at in range(0, len(checked), _DROPPED_AT_ONCE):
                some = checked[at : at + _DROPPED_AT_ONCE]
                dropped += self._store.transact(partial(self._drop, table, some, if_exists))
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
        dropped = _check_dropped(
            table, wanted, warehouse_records.find_partitions(tx, table.table_id, wanted), if_exists
        )
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
            partition_changes.note(tx, table.table_id, changed, self._now_ms())

    def _now_ms(self) -> int:
        return self._catalog.clock()


def check_values(table: HiveTable, values: Values) -> None:
    """Raises InvalidArgument for a wrong number of values."""
    if len(values) != len(table.columns) or not values:
        if not table.columns:
            raise InvalidArgument(f"table {table.label} is not partitioned")
        raise InvalidArgument(
            f"Invalid partition key & values; table {table.label} has the partition columns "
            f"[{', '.join(table.columns)}], the values are [{', '.join(values)}]"
        )


def _check_dropped(
    table: HiveTable, wanted: Sequence[Values], found: Sequence[Partition | None], if_exists: bool
) -> list[Partition]:
    """Those that there are. Raises PartitionNotFound unless ``if_exists``."""
    for values, row in zip(wanted, found, strict=True):
        if row is None and not if_exists:
            raise _missing(table, values)
    return [row for row in found if row is not None]


def _parts(rows: Sequence[Partition]) -> Iterator[Sequence[Partition]]:
    """Runs of rows that fit into one transaction; a single row may be larger, and is then the store's to refuse."""
    start, size = 0, 0
    for at, row in enumerate(rows):
        own = row.size_bytes + _ROW_BYTES + _KEY_COPIES * sum(map(len, row.values))
        size += own
        if size > BATCH_BYTES_MAX and at > start:
            yield rows[start:at]
            start, size = at, own
    if start < len(rows):
        yield rows[start:]


def _being_added(table: HiveTable, values: Values) -> StoreConflict:
    name = table.partition_name(values)
    return StoreConflict(f"partition {name} of table {table.label} is being added by another request; try again")


def _exists(table: HiveTable, values: Values) -> AlreadyExists:
    name = table.partition_name(values)
    return AlreadyExists(f"Partition already exists: {name} of table {table.label}", partition=name)


def _missing(table: HiveTable, values: Values) -> PartitionNotFound:
    name = table.partition_name(values)
    return PartitionNotFound(f"table {table.label} has no partition {name}", partition=name)
