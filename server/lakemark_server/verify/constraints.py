"""The invariants of constraints: each can be read, and what a foreign key refers to knows of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

from google.protobuf.message import DecodeError

from lakemark_proto.store.v1.warehouse_pb2 import ConstraintRecord
from lakemark_server.catalog import constraints, warehouse_records
from lakemark_server.kv import ReadTransaction, Store, keys_below
from lakemark_server.store.keyspace import CONSTRAINTS, REFERENCES


def check(store: Store) -> list[str]:
    """A sentence for each violation."""
    return [*_check_records(store), *_check_references(store)]


def _check_records(store: Store) -> Iterator[str]:
    for (number, name), value in keys_below(store, CONSTRAINTS):
        table_id = cast(int, number)
        label = f"constraint {name} of table id {table_id}"
        try:
            record = ConstraintRecord.FromString(value)
        except DecodeError as error:
            yield f"{label} cannot be read: {error}"
            continue
        if record.name != name:
            yield f"{label} says that it is {record.name}"
        if record.kind == ConstraintRecord.FOREIGN_KEY:
            yield from store.read(partial(_check_parent, table_id=table_id, record=record, label=label))


def _check_parent(tx: ReadTransaction, table_id: int, record: ConstraintRecord, label: str) -> list[str]:
    if warehouse_records.find_record(tx, record.parent_id) is None:
        return [f"{label} refers to table id {record.parent_id}, which does not exist"]
    if (table_id, record.name) not in constraints.references(tx, record.parent_id):
        return [f"{label} is not known to table id {record.parent_id}, to which it refers"]
    return []


def _check_references(store: Store) -> Iterator[str]:
    for (parent, child, name), _ in keys_below(store, REFERENCES):
        named = store.read(partial(constraints.of_table, table_id=cast(int, child)))
        if not any(one.name == name and one.parent_id == parent for one in named):
            yield f"table id {parent} is referred to by constraint {name} of table id {child}, which does not exist"
