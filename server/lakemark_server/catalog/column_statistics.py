"""Statistics of columns, of tables and partitions: Thrift structs that engines write and read, kept without reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from lakemark_server.catalog import events, warehouse_records
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_server.kv import ReadTransaction
from lakemark_server.store.keyspace import COLUMN_STATISTICS
from lakemark_server.store.mutations import Mutation, Mutations

COLUMNS_AT_ONCE: Final = 1_000

OF_TABLE = ""
"""The place of statistics of a whole table."""


class ColumnStatistics:
    """Thread-safe. A place is a partition's name (``month=1/origin=JFK``) or ``OF_TABLE``."""

    def __init__(self, mutations: Mutations) -> None:
        self._mutations = mutations
        self._store = mutations.store

    def put(self, table: HiveTable, place: str, columns: Mapping[str, bytes]) -> None:
        """Adds or replaces statistics of these columns, ``COLUMNS_AT_ONCE`` in each transaction.

        Raises TableNotFound, LimitExceeded.
        """

        def body(some: Sequence[tuple[str, bytes]], mutation: Mutation) -> None:
            warehouse_records.require_table(mutation.tx, table)
            for column, struct in some:
                mutation.tx.set(COLUMN_STATISTICS.key(table.table_id, place, column), struct)
            mutation.tell(events.of_statistics(table, place, *zip(*some, strict=True)))

        pairs = [(column.lower(), struct) for column, struct in columns.items()]
        for at in range(0, len(pairs), COLUMNS_AT_ONCE):
            self._mutations.run(partial(body, pairs[at : at + COLUMNS_AT_ONCE]))

    def get(self, table: HiveTable, places: Sequence[str], columns: Sequence[str]) -> dict[str, list[bytes]]:
        """By place, the statistics of the columns that have any, in their order. Places without any are left out."""
        lowered = [column.lower() for column in columns]

        def body(tx: ReadTransaction) -> dict[str, list[bytes]]:
            keys = [COLUMN_STATISTICS.key(table.table_id, place, column) for place in places for column in lowered]
            stored = iter(tx.get_many(keys, snapshot=True))
            by_place = {place: [next(stored) for _ in lowered] for place in places}
            known = {place: [s for s in structs if s is not None] for place, structs in by_place.items()}
            return {place: structs for place, structs in known.items() if structs}

        return self._store.read(body)

    def delete(self, table: HiveTable, place: str, column: str | None) -> bool:
        """Deletes statistics of one column, or (None) of all columns. Returns whether there were any."""

        def body(mutation: Mutation) -> bool:
            if column is not None:
                key = COLUMN_STATISTICS.key(table.table_id, place, column.lower())
                begin, end = key, key + b"\0"
            else:
                begin, end = COLUMN_STATISTICS.range(table.table_id, place)
            existed = bool(mutation.tx.get_range(begin, end, limit=1))
            mutation.tx.clear_range(begin, end)
            if existed:
                columns = [] if column is None else [column.lower()]
                mutation.tell(events.of_statistics(table, place, columns, deleted=True))
            return existed

        return self._mutations.run(body)
