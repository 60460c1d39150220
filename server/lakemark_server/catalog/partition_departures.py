"""Partitions outside the directory of their table leave their places after the table was dropped, some at a time.

They may be many. From the drop on they hold nothing any more (``ownership.places``); their files are deleted here.
"""

from __future__ import annotations

from typing import Final, cast

from lakemark_proto.store.v1.store_pb2 import ClosedRecord, Holder
from lakemark_server.catalog import directories
from lakemark_server.kv import Transaction, keys_below
from lakemark_server.ownership import Ownership, places
from lakemark_server.store.keyspace import LEAVING
from lakemark_server.store.mutations import Mutation, Mutations

_AT_ONCE: Final = 200
_DELETES: Final = b"1"
_KEEPS: Final = b"0"


def begin(tx: Transaction, table_id: int, *, deletes: bool) -> None:
    """Notes that partitions of a table that is dropped have places to leave: ``leave_all`` does it.

    ``deletes``: the files of those that owned their directories are deleted.
    """
    if places.has_any(tx, Holder.PARTITION, table_id):
        tx.set(LEAVING.key(table_id), _DELETES if deletes else _KEEPS)


def leave_all(mutations: Mutations, ownership: Ownership, table_id: int) -> None:
    """Does what ``begin`` noted, if anything."""

    def some(mutation: Mutation) -> tuple[list[ClosedRecord], bool]:
        tx = mutation.tx
        noted = tx.get(LEAVING.key(table_id))
        if noted is None:
            return [], False
        held = places.held(tx, Holder.PARTITION, table_id, None, limit=_AT_ONCE)
        for holding in held:
            places.clear(tx, holding)
        if not held:
            tx.clear(LEAVING.key(table_id))
        closed = []
        for holding in held:
            if noted == _DELETES and holding.owns and not ownership.what_keeps(tx, holding):
                closed.append(directories.begin_deletion(tx, holding.location, mutation.now_ms, aside=False))
        return closed, bool(held)

    more = True
    while more:
        closed, more = mutations.run(some)
        directories.delete_in_place(mutations.store, closed)


def leave_what_is_left(mutations: Mutations, ownership: Ownership) -> None:
    """Goes on where a process died over it."""
    for (table_id,), _ in keys_below(mutations.store, LEAVING):
        leave_all(mutations, ownership, cast(int, table_id))
