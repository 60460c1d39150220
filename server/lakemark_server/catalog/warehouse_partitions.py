"""Partitions of warehouse tables: look up, add, alter, rename, drop."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import structlog

from lakemark_core import storage
from lakemark_core.errors import (
    AlreadyExists,
    InvalidPartition,
    LakemarkError,
    LimitExceeded,
    PartitionNotFound,
    StoreConflict,
)
from lakemark_proto.store.v1.store_pb2 import ClosedRecord, Holder
from lakemark_server.admission import usage
from lakemark_server.catalog import (
    directories,
    events,
    partition_batches,
    partition_changes,
    partition_places,
    warehouse_records,
)
from lakemark_server.catalog.events import PartitionChange
from lakemark_server.catalog.partition_sets import PartitionSet, PartitionSets
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.table_places import base_of
from lakemark_server.catalog.warehouse_records import HiveTable, InBatch, Partition, Values, new_partition
from lakemark_server.context import caller, deadline
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.ownership import places
from lakemark_server.store.mutations import Mutation

BATCH_BYTES_MAX: Final = 900_000
"""Of the partitions written in one transaction, including conflict ranges; a request may take several transactions."""

_ROW_BYTES: Final = 500  # of a partition's mutations and conflict ranges, without its key and value
_KEY_COPIES: Final = 12  # in the writes and conflict ranges of one partition, at most
_PLACE_BYTES: Final = 500  # of the notes that a partition has a directory outside of its table's, without the location
_PLACE_COPIES: Final = 15  # of the location in those notes and their conflict ranges, at most
_DROPPED_UNREAD: Final = BATCH_BYTES_MAX // 8  # drops above that look first where their partitions have their files

DIRECT_MAX: Final = 200
"""Up to this many partitions are read by their keys. For more, all partitions of the table are kept in memory."""

_NAMES_TOLD_MAX: Final = 3
_READS: Final = "the partition reads its directory, which it does not own"
_DELETED_AT_ONCE: Final = 500

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class WarehousePartitions:
    """Thread-safe.

    A request of up to ``BATCH_BYTES_MAX`` (some hundreds of partitions) is one transaction. A larger one is a batch of
    several transactions, whose changes become visible all at once or not at all (``partition_batches``).
    """

    def __init__(self, catalog: Catalog, sets: PartitionSets) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._mutations = catalog.mutations
        self._ownership = catalog.ownership
        self._sets = sets

    # -- look up ------------------------------------------------------------------------------------------------------

    def get(self, table: HiveTable, values: Values) -> Partition:
        """Raises InvalidPartition for a wrong number of values, PartitionNotFound."""
        check_values(table, values)
        return self._store.read(lambda tx: warehouse_records.get_partition(tx, table, values))

    def all(self, table: HiveTable) -> PartitionSet:
        """All partitions of the table, in the order of their values."""
        return self._sets.get(table.table_id)

    def all_or_pages(self, table: HiveTable, make: Callable[[Sequence[Partition]], T]) -> PartitionSet | list[T]:
        """As ``all``; of a table too large to be kept in memory, what ``make`` gives of some thousands at a time."""
        kept = self._sets.get_if_kept(table.table_id)
        return self._sets.pages(table.table_id, make) if kept is None else kept

    def named(self, table: HiveTable, wanted: Sequence[Values]) -> list[Partition]:
        """The partitions of ``wanted`` that exist, in that order."""
        if len(wanted) <= DIRECT_MAX and not self._sets.holds(table.table_id):
            rows = self._store.read(lambda tx: warehouse_records.find_partitions(tx, table.table_id, wanted))
            return [row for row in rows if row is not None]
        loaded = self._sets.get(table.table_id)
        index = loaded.index()
        return [loaded.rows[index[values]] for values in wanted if values in index]

    def first(self, table: HiveTable, leading: Values, limit: int) -> list[Partition] | None:
        """Up to ``limit`` partitions whose values begin with ``leading``; None if ``all`` is the cheaper way."""
        if self._sets.holds(table.table_id) or not (leading or 0 < limit <= DIRECT_MAX):
            return None

        def body(tx: ReadTransaction) -> list[Partition]:
            begin, end = warehouse_records.partition_range(table.table_id, leading)
            rows = warehouse_records.partitions_in(tx, table.table_id, begin, end, max(limit, 0))
            if limit <= 0 or len(rows) == limit:
                return rows
            # The limit counts pairs: partitions in several pieces, or of pending batches, may have used it up.
            return warehouse_records.partitions_in(tx, table.table_id, begin, end)[:limit]

        return self._store.read(body)

    # -- change -------------------------------------------------------------------------------------------------------

    def add(self, table: HiveTable, new: Sequence[Partition], *, if_not_exists: bool = False) -> list[Partition]:
        """Adds partitions and makes their directories. Returns those that were added.

        Raises AlreadyExists unless ``if_not_exists``, InvalidPartition for a wrong number of values or a partition that
        is given twice, TableNotFound, Unavailable.
        """
        wanted = self._checked(table, [row.values for row in new])
        present = self._store.read(lambda tx: warehouse_records.find_partitions(tx, table.table_id, wanted))
        missing = _missing_of(table, new, present, if_not_exists)

        def decide(tx: Transaction, part: Sequence[Partition]) -> list[PartitionChange]:
            current = self._current(tx, table, [row.values for row in part])
            return [PartitionChange(row.values, None, row) for row in _missing_of(table, part, current, if_not_exists)]

        def apply() -> list[Partition]:
            changes = self._apply(table, list(_parts(missing, _bytes_of)), decide, adds=True)
            return [change.after for change in changes if change.after]

        base = table.record.partition_base
        return directories.with_directories([row.full_location(base) for row in missing if row.located], apply)

    def alter(self, table: HiveTable, changes: Mapping[Values, Callable[[Partition], Partition]]) -> None:
        """Replaces each partition by what its function makes of it. Raises PartitionNotFound, InvalidPartition."""
        wanted = sorted(self._checked(table, list(changes)))
        before = self._store.read(lambda tx: warehouse_records.find_partitions(tx, table.table_id, wanted))
        self._alter(table, _there(table, wanted, before), changes)

    def alter_all(
        self,
        table: HiveTable,
        change: Callable[[Partition], Partition],
        also: Callable[[Mutation], object],
        also_bytes: int,
    ) -> None:
        """Changes every partition, and runs ``also``, which writes about ``also_bytes``: all at once or nothing.

        Raises what ``also`` raises, and PartitionNotFound if a partition was dropped meanwhile.
        """
        rows = self.all(table).rows
        self._alter(table, rows, {row.values: change for row in rows}, also, also_bytes)

    def _alter(
        self,
        table: HiveTable,
        rows: Sequence[Partition],
        changes: Mapping[Values, Callable[[Partition], Partition]],
        also: Callable[[Mutation], object] | None = None,
        also_bytes: int = 0,
    ) -> None:
        planned = [PartitionChange(row.values, row, changes[row.values](row)) for row in rows]

        def decide(tx: Transaction, part: Sequence[PartitionChange]) -> list[PartitionChange]:
            wanted = [change.values for change in part]
            current = _there(table, wanted, self._current(tx, table, wanted))
            return [
                change if change.before == row else PartitionChange(row.values, row, changes[row.values](row))
                for change, row in zip(part, current, strict=True)
            ]

        written = also_bytes + sum(map(_bytes_of_after, planned))
        parts = list(_parts(planned, _bytes_of_both)) if written > BATCH_BYTES_MAX and planned else [planned]
        self._apply(table, parts, decide, also=also)

    def rename(self, table: HiveTable, values: Values, change: Callable[[Partition], Partition]) -> Partition:
        """Replaces a partition by what ``change`` makes of it, with other values.

        If the location changes and the table owns its data, the directory is moved. Raises PartitionNotFound,
        AlreadyExists for the values or the directory, InvalidPartition.
        """
        old = self.get(table, values)
        new = change(old)
        check_values(table, new.values)
        base = table.record.partition_base
        source, target = old.full_location(base), new.full_location(base)

        def apply(closed: Sequence[ClosedRecord] = ()) -> Partition:
            return self._mutations.run(partial(self._rename, table, old, new, closed))

        if not old.located or source == target:
            return apply()
        if table.record.owns_data:
            move = ClosedRecord(
                since_ms=self._mutations.clock(),
                why=ClosedRecord.MOVED,
                location=source,
                target=target,
                table_id=table.table_id,
                values=values,
            )

            def keeps(tx: Transaction) -> str:
                return self.what_keeps(tx, table, [old])

            return directories.with_moved_directories(self._store, [move], keeps, apply)
        return directories.with_directories([target], apply)

    def _rename(
        self, table: HiveTable, old: Partition, new: Partition, closed: Sequence[ClosedRecord], mutation: Mutation
    ) -> Partition:
        tx = mutation.tx
        warehouse_records.require_table(tx, table)
        if self._current(tx, table, [old.values]) != [old]:
            raise PartitionNotFound(
                f"partition {table.partition_name(old.values)} of {table.label} was changed by another meanwhile"
            )
        self._write(mutation, table, [PartitionChange(old.values, old, None)])
        _missing_of(table, [new], self._current(tx, table, [new.values]), False)
        self._write(mutation, table, [PartitionChange(new.values, None, new)], closed)
        _tell(mutation, table, [PartitionChange(new.values, old, new)])
        return new

    def exchange(self, source: HiveTable, target: HiveTable, rows: Sequence[Partition]) -> list[Partition]:
        """Moves partitions from one table to another, all or none. Returns them as they are there.

        They must have directories of their names. Where both tables own their data, these are moved to the default
        places below ``target``; else files stay where they are and ``target`` reads them.

        Raises PartitionNotFound, AlreadyExists for a partition or a directory, FailedPrecondition if others have files
        in a directory, InvalidPartition, LocationTaken, LimitExceeded, Unavailable.
        """
        base = source.record.partition_base
        size = sum(_bytes_of(row) for row in rows) * 2
        if size > BATCH_BYTES_MAX:
            raise LimitExceeded(
                f"{len(rows)} partitions of {source.label} are too many to be exchanged at once ({size} bytes; at "
                f"most {BATCH_BYTES_MAX}); name more values in each exchange"
            )
        for row in rows:
            _require_own_directory(source, row)
        moves = source.record.owns_data and target.record.owns_data
        new = []
        for row in rows:
            location = row.full_location(base)
            if moves:
                location = storage.join(target.record.location, target.partition_name(row.values))
            new.append(new_partition(target, row.values, location, row.head, row.tail, located=True))

        def keeps(tx: Transaction) -> str:
            # Before anything is moved: an empty directory of a partition that is there would give way.
            _missing_of(target, new, self._current(tx, target, [row.values for row in new]), False)
            return self.what_keeps(tx, source, rows)

        def apply(closed: Sequence[ClosedRecord] = ()) -> list[Partition]:
            self._mutations.run(partial(self._exchange, source, target, rows, new, closed))
            return new

        if not moves:
            return apply()
        records = [
            ClosedRecord(
                since_ms=self._mutations.clock(),
                why=ClosedRecord.MOVED,
                location=row.full_location(base),
                target=there.full_location(target.record.partition_base),
                table_id=source.table_id,
                values=row.values,
            )
            for row, there in zip(rows, new, strict=True)
        ]
        answer = directories.with_moved_directories(self._store, records, keeps, apply)
        for record in records:
            directories.remove_empty_parents(record.location, source.record.location)
        return answer

    def _exchange(
        self,
        source: HiveTable,
        target: HiveTable,
        rows: Sequence[Partition],
        new: Sequence[Partition],
        closed: Sequence[ClosedRecord],
        mutation: Mutation,
    ) -> None:
        tx = mutation.tx
        wanted = [row.values for row in rows]
        for table in (source, target):
            warehouse_records.require_table(tx, table)
        if self._current(tx, source, wanted) != list(rows):
            raise PartitionNotFound(f"partitions of {source.label} were changed by others meanwhile")
        _missing_of(target, new, self._current(tx, target, wanted), False)
        gone = [PartitionChange(row.values, row, None) for row in rows]
        added = [PartitionChange(row.values, None, row) for row in new]
        self._write(mutation, source, gone)
        self._write(mutation, target, added, closed)
        _tell(mutation, target, added)
        _tell(mutation, source, gone)

    def drop(
        self, table: HiveTable, wanted: Sequence[Values], *, delete_data: bool, if_exists: bool
    ) -> list[Partition]:
        """Drops partitions and returns them. With ``delete_data``, deletes the data of a table that owns them.

        Raises PartitionNotFound unless ``if_exists``, InvalidPartition.
        """

        def decide(tx: Transaction, part: Sequence[Values]) -> list[PartitionChange]:
            current = self._current(tx, table, part)
            there = [row for row in current if row] if if_exists else _there(table, part, current)
            return [PartitionChange(row.values, row, None) for row in there]

        checked = sorted(self._checked(table, wanted))
        parts: list[Sequence[Values]] = [checked] if checked else []
        if sum(map(_bytes_of_key, checked)) > min(BATCH_BYTES_MAX, _DROPPED_UNREAD):
            current = self._store.read(lambda tx: warehouse_records.find_partitions(tx, table.table_id, checked))
            rows = [row for row in current if row] if if_exists else _there(table, checked, current)
            parts = [[row.values for row in part] for part in _parts(rows, _bytes_of)]
        readers = self._store.read(lambda tx: self._readers(tx, table, checked))
        deadline.check()
        with deadline.within(deadline.NEVER):  # data are deleted by whoever dropped them
            changes = self._apply(table, parts, decide)
        gone = {change.values: change.before for change in changes}
        dropped = [row for row in map(gone.get, wanted) if row]
        deletes = delete_data and table.record.owns_data
        if dropped:
            some = [table.partition_name(row.values) for row in dropped[:_NAMES_TOLD_MAX]]
            _log.info(
                "dropped partitions",
                table=table.label,
                partitions=len(dropped),
                first=some,
                files="deleted" if deletes else "kept",
                by=caller.current(),
            )
        if deletes:
            located = [row for row in dropped if row.located and row.values not in readers]
            with deadline.within(deadline.NEVER):
                for start in range(0, len(located), _DELETED_AT_ONCE):
                    try:
                        self._delete_files(table, located[start : start + _DELETED_AT_ONCE])
                    except LakemarkError as error:  # they are dropped: what is left are files, which nobody reads
                        _log.warning("dropped partitions have left their files", reason=error.message)
        return dropped

    def what_keeps(self, tx: ReadTransaction, table: HiveTable, rows: Sequence[Partition]) -> str:
        """Why the directory of one of the partitions must not be emptied, as the end of a sentence; "": all may be."""
        reasons = partition_places.what_keeps(tx, self._ownership, table, rows)
        readers = self._readers(tx, table, [row.values for row in rows])
        for row in rows:
            reason = reasons.get(row.values) or (_READS if row.values in readers else "")
            if reason or (reason := self._why_not_owned(tx, table, row)):
                return reason
        return ""

    def _readers(self, tx: ReadTransaction, table: HiveTable, wanted: Sequence[Values]) -> set[Values]:
        """Those of the partitions that have their directory noted and do not own it."""
        if not places.has_any(tx, Holder.PARTITION, table.table_id):
            return set()
        noted = {
            values: places.held(tx, Holder.PARTITION, table.table_id, partition_places.part_of(values))
            for values in wanted
        }
        return {values for values, holdings in noted.items() if any(not holding.owns for holding in holdings)}

    def _why_not_owned(self, tx: ReadTransaction, table: HiveTable, row: Partition) -> str:
        """Why a partition of a table that owns its data does not own its directory; "": it does."""
        holding = base_of(table) if row.relative else partition_places.holding(table, row)
        if holding is None:
            return ""
        return self._ownership.why_not_owned(tx, replace(holding, owns=True), table.database.database_id)

    def _delete_files(self, table: HiveTable, dropped: Sequence[Partition]) -> None:
        """Deletes directories of dropped partitions. One stays in which others have files, or the partition again."""
        base = table.record.partition_base

        def begin(mutation: Mutation) -> list[ClosedRecord]:
            now = warehouse_records.find_partitions(mutation.tx, table.table_id, [row.values for row in dropped])
            kept = partition_places.what_keeps(mutation.tx, self._ownership, table, dropped)
            closed = []
            for row, again in zip(dropped, now, strict=True):
                reason = "the partition was added again" if again else kept.get(row.values, "")
                reason = reason or self._why_not_owned(mutation.tx, table, row)
                if reason:
                    _log.warning("a dropped partition has left its files", location=row.location, reason=reason)
                    continue
                location = row.full_location(base)
                closed.append(directories.begin_deletion(mutation.tx, location, mutation.now_ms, aside=False))
            return closed

        closed = self._mutations.run(begin)
        directories.delete_in_place(self._store, closed)
        for record in closed:
            directories.remove_empty_parents(record.location, table.record.location)

    def tell_truncated(self, table: HiveTable, partitions: Sequence[Partition]) -> None:
        """Tells that the files of these partitions were deleted, as far as they are still there.

        Raises TableNotFound.
        """

        def body(mutation: Mutation, part: Sequence[Partition]) -> None:
            warehouse_records.require_table(mutation.tx, table)
            values = [row.values for row in part]
            current = warehouse_records.find_partitions(mutation.tx, table.table_id, values)
            for event in events.of_truncated_partitions(table, [row for row in current if row]):
                mutation.tell(event)

        for part in _parts(partitions, _bytes_of):
            self._mutations.run(partial(body, part=part))

    # -- one transaction, or several ----------------------------------------------------------------------------------

    def _apply(
        self,
        table: HiveTable,
        parts: Sequence[T],
        decide: Callable[[Transaction, T], list[PartitionChange]],
        *,
        adds: bool = False,
        also: Callable[[Mutation], object] | None = None,
    ) -> list[PartitionChange]:
        """Makes the changes that ``decide`` returns for each part, all at once or none. Returns them.

        Each part fits into one transaction. ``also`` runs in the transaction that makes the changes visible.
        """
        if len(parts) < 2:
            return [
                change
                for part in parts
                for change in self._mutate(table, partial(self._at_once, table, decide, also, part))
            ]
        batch = 1 + secrets.randbits(62)
        changes: list[PartitionChange] = []
        try:
            for number, part in enumerate(parts):
                changes += self._mutate(table, partial(self._stage, table, batch, number, decide, part))
            self._mutations.run(partial(self._complete, table, batch, changes, also))
        except LakemarkError:
            with deadline.within(deadline.NEVER):  # the end of the request must not keep the batch from ending
                if not partition_batches.take_back(self._store, table.table_id, batch):
                    raise
        with deadline.within(deadline.NEVER):
            try:
                partition_batches.settle(self._store, table, batch, adds=adds)
            except LakemarkError as error:
                _log.warning("a batch of partitions is settled later", table=table.label, reason=error.message)
        return changes

    def _at_once(
        self,
        table: HiveTable,
        decide: Callable[[Transaction, T], list[PartitionChange]],
        also: Callable[[Mutation], object] | None,
        part: T,
        mutation: Mutation,
    ) -> list[PartitionChange]:
        warehouse_records.require_table(mutation.tx, table)
        changes = decide(mutation.tx, part)
        self._write(mutation, table, changes)
        if also:
            also(mutation)
        else:
            _tell(mutation, table, changes)
        return changes

    def _stage(
        self,
        table: HiveTable,
        batch: int,
        number: int,
        decide: Callable[[Transaction, T], list[PartitionChange]],
        part: T,
        mutation: Mutation,
    ) -> list[PartitionChange]:
        warehouse_records.require_table(mutation.tx, table)
        changes = decide(mutation.tx, part)
        new = [
            change.after
            for change in changes
            if change.after and not partition_places.stays_in_place(change.before, change.after)
        ]
        partition_places.take(mutation.tx, self._ownership, table, new, keeping=True)
        staged = [InBatch(change.values, batch, change.before, change.after) for change in changes]
        partition_batches.stage(mutation.tx, table, batch, number, staged, mutation.now_ms)
        return changes

    def _complete(
        self,
        table: HiveTable,
        batch: int,
        changes: Sequence[PartitionChange],
        also: Callable[[Mutation], object] | None,
        mutation: Mutation,
    ) -> None:
        warehouse_records.require_table(mutation.tx, table)
        if also:
            also(mutation)
        else:
            _tell(mutation, table, changes)
        partition_batches.complete(mutation.tx, table, batch, mutation.now_ms)

    def _mutate(self, table: HiveTable, body: Callable[[Mutation], T]) -> T:
        """Runs the mutation, again if batches that their writers have abandoned stood in its way."""
        try:
            return self._mutations.run(body)
        except _InOtherBatchError:
            if not partition_batches.finish_abandoned(self._store, self._catalog.clock(), table.table_id):
                raise
        return self._mutations.run(body)

    def _current(self, tx: Transaction, table: HiveTable, wanted: Sequence[Values]) -> list[Partition | None]:
        """The partitions as they are; None where there is none.

        Raises StoreConflict if a pending batch of another request changes one of them.
        """
        stored = warehouse_records.stored_partitions(tx, table.table_id, wanted)
        pending = warehouse_records.pending_batches(tx, table.table_id, stored)
        current: list[Partition | None] = []
        for row in stored:
            if not isinstance(row, InBatch):
                current.append(row)
                continue
            if row.batch in pending:
                name = table.partition_name(row.values)
                raise _InOtherBatchError(
                    f"partition {name} of table {table.label} is being changed by another request; try again"
                )
            if row.after is None:
                warehouse_records.clear_partition(tx, table.table_id, table.columns, row.values)
            if row.before is not None:
                partition_places.leave(tx, table.table_id, table.columns, row.before, row.after)
            current.append(row.after)
        return current

    def _write(
        self,
        mutation: Mutation,
        table: HiveTable,
        changes: Sequence[PartitionChange],
        closed: Sequence[ClosedRecord] = (),
    ) -> None:
        tx = mutation.tx
        for change in changes:
            if change.before is not None:
                partition_places.leave(tx, table.table_id, table.columns, change.before, change.after)
        new = [
            change.after
            for change in changes
            if change.after and not partition_places.stays_in_place(change.before, change.after)
        ]
        partition_places.take(tx, self._ownership, table, new, closed=closed)
        for change in changes:
            if change.after is None:
                warehouse_records.clear_partition(tx, table.table_id, table.columns, change.values)
            elif change.before is None:
                warehouse_records.put_new_partition(tx, table.table_id, change.after)
            else:
                warehouse_records.put_partition(tx, table.table_id, change.after)
        if changes:
            partition_changes.note(tx, table.table_id, [change.values for change in changes], mutation.now_ms)

    def _checked(self, table: HiveTable, wanted: Sequence[Values]) -> Sequence[Values]:
        catalog = table.database.catalog
        usage.check_partitions(catalog, len(wanted), self._catalog.quotas.of(catalog))
        seen: set[Values] = set()
        for values in wanted:
            check_values(table, values)
            if values in seen:
                raise InvalidPartition(f"partition {table.partition_name(values)} is given twice in one request")
            seen.add(values)
        return wanted


def _tell(mutation: Mutation, table: HiveTable, changes: Sequence[PartitionChange]) -> None:
    """A change of all partitions that comes with a change of their table is told as that of the table, as in Hive."""
    for event in events.of_partitions(table, changes):
        mutation.tell(event)


def check_values(table: HiveTable, values: Values) -> None:
    """Raises InvalidPartition for a wrong number of values."""
    if len(values) != len(table.columns) or not values:
        if not table.columns:
            raise InvalidPartition(f"table {table.label} is not partitioned")
        raise InvalidPartition(
            f"Invalid partition key & values; table {table.label} has the partition columns "
            f"[{', '.join(table.columns)}], the values are [{', '.join(values)}]"
        )


def _missing_of(
    table: HiveTable, new: Sequence[Partition], current: Sequence[Partition | None], if_not_exists: bool
) -> list[Partition]:
    """The partitions of ``new`` that do not exist. Raises AlreadyExists unless ``if_not_exists``."""
    for row, there in zip(new, current, strict=True):
        if there is not None and not if_not_exists:
            name = table.partition_name(row.values)
            raise AlreadyExists(f"Partition already exists: {name} of table {table.label}", partition=name)
    return [row for row, there in zip(new, current, strict=True) if there is None]


def _there(table: HiveTable, wanted: Sequence[Values], current: Sequence[Partition | None]) -> list[Partition]:
    """The partitions of ``wanted``, all of which must exist. Raises PartitionNotFound."""
    rows = []
    for values, row in zip(wanted, current, strict=True):
        if row is None:
            name = table.partition_name(values)
            raise PartitionNotFound(f"table {table.label} has no partition {name}", partition=name)
        rows.append(row)
    return rows


def _require_own_directory(table: HiveTable, row: Partition) -> None:
    """Raises InvalidPartition unless the partition has the directory of its name, and it is there."""
    name, where = table.partition_name(row.values), row.full_location(table.record.partition_base)
    if not row.located or not storage.is_same_place(where, storage.join(table.record.location, name)):
        raise InvalidPartition(
            f"partition {name} of {table.label} has another directory than that of its name, {where}"
        )
    if storage.keeps_directories(where) and not storage.is_directory(where):
        raise InvalidPartition(f"partition {name} of {table.label} has no directory: {where} is missing")


def _parts(items: Sequence[T], bytes_of: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Runs of items that fit into one transaction. A single item may be too large; the store refuses it then."""
    start, size = 0, 0
    for at, item in enumerate(items):
        own = bytes_of(item)
        size += own
        if size > BATCH_BYTES_MAX and at > start:
            yield items[start:at]
            start, size = at, own
    if start < len(items):
        yield items[start:]


def _bytes_of_key(values: Values) -> int:
    return _ROW_BYTES + _KEY_COPIES * sum(map(len, values))


def _bytes_of(row: Partition) -> int:
    return row.size_bytes + _bytes_of_key(row.values) + _bytes_of_place(row)


def _bytes_of_place(row: Partition) -> int:
    """Of a directory outside of the table's, which holds a place of its own: the notes, and who is near."""
    return _PLACE_BYTES + _PLACE_COPIES * len(row.location) if row.located and not row.relative else 0


def _bytes_of_after(change: PartitionChange) -> int:
    """Of a change that is written without the state before."""
    places = 0
    if not partition_places.stays_in_place(change.before, change.after):
        places = sum(_bytes_of_place(row) for row in (change.before, change.after) if row)
    size = change.after.size_bytes if change.after else 0
    return size + _bytes_of_key(change.values) + places


def _bytes_of_both(change: PartitionChange) -> int:
    return _bytes_of_after(change) + (change.before.size_bytes if change.before else 0)


class _InOtherBatchError(StoreConflict):
    """A partition is part of a pending batch of another request."""
