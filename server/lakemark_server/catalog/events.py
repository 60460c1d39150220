"""Events of databases, tables, partitions and functions: what a mutation tells of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_proto.store.v1.warehouse_pb2 import ConstraintRecord
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.catalog_pb2 import Table
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.catalog import definitions
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, Values

WHOLE_BYTES_MAX: Final = 1_000_000
"""Of partitions that one event tells as a whole. Of more it tells values and locations."""

LISTED_BYTES_MAX: Final = 1_000_000
"""Of values and locations that one event tells. Of more partitions it tells only how many they are."""

ALTERED_ONE_BY_ONE_MAX: Final = 500
"""Up to so many altered or truncated partitions have an event each, as in Hive."""


class NewConstraint(NamedTuple):
    """A constraint to add. ``parent``: the table that a foreign key refers to."""

    record: ConstraintRecord
    parent: HiveTable | None = None


class PartitionChange(NamedTuple):
    """A partition before and after a change. ``before`` is None if it is added, ``after`` if it is dropped."""

    values: Values
    before: Partition | None
    after: Partition | None


def of_database(
    kind: pb.EventKind.ValueType,
    before: DatabaseRecord | None = None,
    after: DatabaseRecord | None = None,
    request_id: str = "",
) -> Event:
    """``before``: unless it was created; ``after``: unless it was dropped."""
    known = after or before or DatabaseRecord()
    return Event(
        kind=kind,
        catalog=known.catalog,
        database=known.name,
        request_id=request_id,
        database_change=pb.DatabaseChange(
            before=None if before is None else definitions.database(before),
            after=None if after is None else definitions.database(after),
            hive_before=b"" if before is None else before.hive,
            hive_after=b"" if after is None else after.hive,
        ),
    )


def of_lake_table(
    kind: pb.EventKind.ValueType,
    before: Table | None = None,
    after: Table | None = None,
    *,
    files_kept: bool = False,
    request_id: str = "",
) -> Event:
    """Its place in the log is the catalog of the table after the change."""
    return _of_table(kind, pb.TableChange(before=before, after=after, files_kept=files_kept), request_id)


def of_warehouse_table(
    kind: pb.EventKind.ValueType,
    before: HiveTable | None = None,
    after: HiveTable | None = None,
    *,
    files_kept: bool = False,
) -> Event:
    """``before``: unless it was created; ``after``: unless it was dropped."""
    return _of_table(
        kind,
        pb.TableChange(
            before=None if before is None else definitions.warehouse_table(before),
            after=None if after is None else definitions.warehouse_table(after),
            hive_before=b"" if before is None else before.record.hive,
            hive_after=b"" if after is None else after.record.hive,
            files_kept=files_kept,
        ),
    )


def _of_table(kind: pb.EventKind.ValueType, change: pb.TableChange, request_id: str = "") -> Event:
    known = change.after if change.HasField("after") else change.before
    return Event(
        kind=kind,
        catalog=known.name.catalog,
        database=known.name.database,
        table=known.name.table,
        table_id=known.table_id,
        request_id=request_id,
        table_change=change,
    )


def of_partitions(table: HiveTable, changes: Sequence[PartitionChange]) -> Iterator[Event]:
    """One event for all that are added, one for all that are dropped, and one for each that is altered."""
    added = [change for change in changes if change.before is None]
    altered = [change for change in changes if change.before and change.after]
    dropped = [change for change in changes if change.after is None]
    if added:
        yield _partitions(pb.PARTITIONS_ADDED, table, added)
    yield from _one_by_one(pb.PARTITIONS_ALTERED, table, altered)
    if dropped:
        yield _partitions(pb.PARTITIONS_DROPPED, table, dropped)


def of_truncated_partitions(table: HiveTable, partitions: Sequence[Partition]) -> Iterator[Event]:
    """One event for each, as in Hive, up to ``ALTERED_ONE_BY_ONE_MAX``."""
    changes = [PartitionChange(partition.values, partition, partition) for partition in partitions]
    yield from _one_by_one(pb.PARTITIONS_TRUNCATED, table, changes)


def _one_by_one(kind: pb.EventKind.ValueType, table: HiveTable, changes: Sequence[PartitionChange]) -> Iterator[Event]:
    if len(changes) <= ALTERED_ONE_BY_ONE_MAX:
        yield from (_partitions(kind, table, [change]) for change in changes)
    else:
        yield _partitions(kind, table, changes)


def _partitions(kind: pb.EventKind.ValueType, table: HiveTable, changes: Sequence[PartitionChange]) -> Event:
    states = [state for change in changes for state in (change.before, change.after) if state]
    listed = sum(len(state.location) + sum(map(len, state.values)) for state in states) <= LISTED_BYTES_MAX
    whole = sum(state.size_bytes for state in states) <= WHOLE_BYTES_MAX
    base = table.record.partition_base
    return _in_table(
        kind,
        table,
        partitions_change=pb.PartitionsChange(
            columns=table.columns,
            count=len(changes),
            partitions=[_partition(change, base, whole) for change in changes] if listed else (),
        ),
    )


def _partition(change: PartitionChange, base: str, whole: bool) -> pb.PartitionChange:
    before, after = change.before, change.after
    values = after.values if after else change.values
    return pb.PartitionChange(
        values=values,
        values_before=before.values if before and before.values != values else (),
        before=_state(before, base, whole) if before else None,
        after=_state(after, base, whole) if after else None,
    )


def _state(partition: Partition, base: str, whole: bool) -> pb.PartitionState:
    return pb.PartitionState(
        location=partition.full_location(base) if partition.located else "",
        located=partition.located,
        head=partition.head if whole else b"",
        tail=partition.tail if whole else b"",
    )


def of_statistics(
    table: HiveTable, partition: str, columns: Sequence[str], hive: Sequence[bytes] = (), *, deleted: bool = False
) -> Event:
    """``columns`` are empty if all of them are deleted."""
    change = pb.StatisticsChange(partition=partition, columns=columns, deleted=deleted, hive=hive)
    return _in_table(pb.STATISTICS_CHANGED, table, statistics_change=change)


def of_constraints(table: HiveTable, added: Sequence[NewConstraint]) -> Iterator[Event]:
    """One event for all of a type, as in Hive, in the order in which Hive tells them."""
    for kind in ConstraintRecord.Kind.values():
        of_kind = [one for one in added if one.record.kind == kind]
        if of_kind:
            told = [
                pb.Constraint(
                    type=ConstraintRecord.Kind.Name(kind),
                    name=record.name,
                    columns=record.columns,
                    parent_columns=record.parent_columns,
                    parent_table_id=record.parent_id,
                    hive=record.hive,
                    parent_database=parent.database.name if parent else "",
                    parent_table=parent.name if parent else "",
                )
                for record, parent in of_kind
            ]
            yield _in_table(pb.CONSTRAINTS_ADDED, table, constraints_change=pb.ConstraintsChange(constraints=told))


def of_dropped_constraints(table: HiveTable, gone: Sequence[ConstraintRecord], *, with_parent: bool = False) -> Event:
    """``table``: that had them. ``with_parent``: they are foreign keys, whose parent is dropped."""
    told = [pb.Constraint(type=ConstraintRecord.Kind.Name(one.kind), name=one.name) for one in gone]
    change = pb.ConstraintsChange(constraints=told, with_parent=with_parent)
    return _in_table(pb.CONSTRAINT_DROPPED, table, constraints_change=change)


def of_note(table: HiveTable, note: pb.ClientNote, request_id: str) -> Event:
    """``note``: what a client reported of the table."""
    return _in_table(pb.CLIENT_NOTED, table, note=note, request_id=request_id)


def _in_table(
    kind: pb.EventKind.ValueType,
    table: HiveTable,
    partitions_change: pb.PartitionsChange | None = None,
    statistics_change: pb.StatisticsChange | None = None,
    constraints_change: pb.ConstraintsChange | None = None,
    note: pb.ClientNote | None = None,
    request_id: str = "",
) -> Event:
    return Event(
        kind=kind,
        catalog=table.database.catalog,
        database=table.database.name,
        table=table.name,
        table_id=table.table_id,
        request_id=request_id,
        partitions_change=partitions_change,
        statistics_change=statistics_change,
        constraints_change=constraints_change,
        note=note,
    )


def of_function(
    kind: pb.EventKind.ValueType, catalog: str, database: str, before: tuple[str, bytes], after: tuple[str, bytes]
) -> Event:
    """``before`` and ``after`` are a name and a Thrift struct; empty if there is none."""
    return Event(
        kind=kind,
        catalog=catalog,
        database=database,
        function_change=pb.FunctionChange(
            name_before=before[0], hive_before=before[1], name_after=after[0], hive_after=after[1]
        ),
    )
