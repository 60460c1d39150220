"""Constraints of warehouse tables: kept and listed, as in a Hive Metastore, and enforced by nobody.

A constraint belongs to its table by id, so that it is renamed and dropped with it. A foreign key also refers to the id
of its parent: it follows the parent's renames, and is gone when the parent is dropped, as in Hive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from lakemark_core.errors import AlreadyExists, FailedPrecondition, LimitExceeded, NotFound, TableNotFound
from lakemark_proto.store.v1.warehouse_pb2 import ConstraintRecord, HiveTableRecord
from lakemark_server.catalog import events, warehouse_records
from lakemark_server.catalog.events import NewConstraint
from lakemark_server.catalog.names import constraint_name
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import CONSTRAINTS, REFERENCES
from lakemark_server.store.mutations import Mutation, Mutations

CONSTRAINTS_MAX: Final = 1_000
"""Of one table, and as many foreign keys that refer to one."""

RECORD_BYTES_MAX: Final = 90_000
"""Of one constraint."""

TABLE_BYTES_MAX: Final = 500_000
"""Of all constraints of a table."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key with the tables that it connects. ``parent_key``: the name of the parent's primary key, or ""."""

    record: ConstraintRecord
    child: HiveTableRecord
    parent: HiveTableRecord
    parent_key: str


class Surroundings:
    """What a decision on new constraints may look at, inside its transaction."""

    def __init__(self, tx: Transaction, catalog: str) -> None:
        self._tx = tx
        self._catalog = catalog

    def table(self, database: str, name: str) -> HiveTable:
        """Raises DatabaseNotFound, TableNotFound, UnsupportedOperation for a lake table."""
        return warehouse_records.load_table(self._tx, self._catalog, database, name)

    def constraints(self, table: HiveTable) -> list[ConstraintRecord]:
        """Those that the table has."""
        return of_table(self._tx, table.table_id)


Decision: TypeAlias = Callable[[Surroundings, HiveTable], Sequence[NewConstraint]]
"""Makes the constraints to add to a table. It may be called several times, and raises what is wrong with them."""


class Constraints:
    """Thread-safe."""

    def __init__(self, mutations: Mutations) -> None:
        self._mutations = mutations
        self._store = mutations.store

    def add(self, catalog: str, database: str, name: str, decide: Decision) -> None:
        """Adds constraints to a table, all of them or none.

        Raises DatabaseNotFound, TableNotFound, UnsupportedOperation for a lake table, AlreadyExists for a name,
        FailedPrecondition for a second primary key, LimitExceeded, and what ``decide`` raises.
        """

        def body(mutation: Mutation) -> None:
            table = warehouse_records.load_table(mutation.tx, catalog, database, name)
            warehouse_records.require_table(mutation.tx, table)
            put_new(mutation, table, decide(Surroundings(mutation.tx, catalog), table))

        self._mutations.run(body)

    def drop(self, catalog: str, database: str, name: str, constraint: str) -> None:
        """Drops a constraint of the table, or foreign keys of that name that refer to it.

        Raises DatabaseNotFound, TableNotFound, UnsupportedOperation for a lake table, NotFound, InvalidName.
        """
        lowered = constraint_name(constraint)

        def body(mutation: Mutation) -> None:
            tx = mutation.tx
            table = warehouse_records.load_table(tx, catalog, database, name)
            children = [child for child, one in references(tx, table.table_id) if one == lowered]
            owners = dict.fromkeys((table.table_id, *children))
            gone = {owner: one for owner in owners if (one := _find(tx, owner, lowered)) is not None}
            if not gone:
                raise NotFound(f"table {table.label} has no constraint {lowered}", constraint=lowered)
            for owner in gone:
                _clear(tx, owner, lowered)
            for owner, one in gone.items():
                holder = _child(tx, table, owner)
                mutation.tell(events.of_dropped_constraints(holder, [one]))

        self._mutations.run(body)

    def listed(self, catalog: str, database: str, name: str) -> list[ConstraintRecord]:
        """The constraints of a table but for its foreign keys, by name. Raises DatabaseNotFound, TableNotFound."""

        def body(tx: ReadTransaction) -> list[ConstraintRecord]:
            table = warehouse_records.load_table(tx, catalog, database, name)
            every = of_table(tx, table.table_id)
            return [one for one in every if one.kind != ConstraintRecord.FOREIGN_KEY]

        return self._store.read(body)

    def foreign_keys(
        self, catalog: str, child: tuple[str, str] | None, parent: tuple[str, str] | None
    ) -> list[ForeignKey]:
        """The foreign keys from one table to another, each given as (database, name); None: any, but not for both.

        Raises DatabaseNotFound, TableNotFound.
        """

        def body(tx: ReadTransaction) -> list[ForeignKey]:
            child_id = None if child is None else warehouse_records.load_table(tx, catalog, *child).table_id
            parent_id = None if parent is None else warehouse_records.load_table(tx, catalog, *parent).table_id
            if child_id is not None:
                named = [(child_id, one) for one in of_table(tx, child_id)]
            else:
                pairs = references(tx, parent_id or 0)
                named = [(at, one) for at, name in pairs for one in [_find(tx, at, name)] if one is not None]
            chosen = [
                (at, one)
                for at, one in named
                if one.kind == ConstraintRecord.FOREIGN_KEY and parent_id in (None, one.parent_id)
            ]
            return list(_connected(tx, chosen))

        return self._store.read(body)


def put_new(mutation: Mutation, table: HiveTable, added: Sequence[NewConstraint]) -> None:
    """Adds constraints to a table, and tells so. Raises AlreadyExists for a name, FailedPrecondition, LimitExceeded."""
    tx = mutation.tx
    mine = of_table(tx, table.table_id)
    names = {one.name for one in mine} | {name for _, name in references(tx, table.table_id)}
    has_key = any(one.kind == ConstraintRecord.PRIMARY_KEY for one in mine)
    if len(mine) + len(added) > CONSTRAINTS_MAX:
        raise LimitExceeded(f"table {table.label} would have more than {CONSTRAINTS_MAX} constraints")
    if sum(one.ByteSize() for one in (*mine, *(new.record for new in added))) > TABLE_BYTES_MAX:
        raise LimitExceeded(f"the constraints of table {table.label} would have more than {TABLE_BYTES_MAX} bytes")
    for one, _ in added:
        taken = set(names)
        if one.kind == ConstraintRecord.FOREIGN_KEY and one.parent_id != table.table_id:
            referring = references(tx, one.parent_id)
            if len(referring) >= CONSTRAINTS_MAX:
                raise LimitExceeded(f"more than {CONSTRAINTS_MAX} foreign keys would refer to one table")
            taken |= {name for _, name in referring} | {other.name for other in of_table(tx, one.parent_id)}
        if one.kind == ConstraintRecord.PRIMARY_KEY and has_key:
            raise FailedPrecondition(f"Primary key already exists for: {table.label}", table=table.label)
        if one.name in taken:
            raise AlreadyExists(f"Constraint name already exists: {table.label}.{one.name}", constraint=one.name)
        has_key = has_key or one.kind == ConstraintRecord.PRIMARY_KEY
        if one.ByteSize() > RECORD_BYTES_MAX:
            raise LimitExceeded(f"constraint {one.name} has {one.ByteSize()} bytes; at most {RECORD_BYTES_MAX}")
        names.add(one.name)
        tx.set(CONSTRAINTS.key(table.table_id, one.name), one.SerializeToString())
        if one.kind == ConstraintRecord.FOREIGN_KEY:
            tx.set(REFERENCES.key(one.parent_id, table.table_id, one.name), b"")
    for event in events.of_constraints(table, added):
        mutation.tell(event)


def leave(mutation: Mutation, table: HiveTable) -> None:
    """The table is dropped: its constraints go, and the foreign keys that refer to it. Of the latter it tells."""
    tx = mutation.tx
    for one in of_table(tx, table.table_id):
        _clear(tx, table.table_id, one.name)
    lost: dict[int, list[ConstraintRecord]] = {}
    for child, name in references(tx, table.table_id):
        if (record := _find(tx, child, name)) is not None:
            lost.setdefault(child, []).append(record)
        _clear(tx, child, name)
    for child, keys in lost.items():
        mutation.tell(events.of_dropped_constraints(_child(tx, table, child), keys, with_parent=True))


def of_table(tx: ReadTransaction, table_id: int) -> list[ConstraintRecord]:
    """The constraints of a table, by name."""
    pairs = tx.get_range(*CONSTRAINTS.range(table_id))
    return [ConstraintRecord.FromString(value) for _, value in pairs]


def references(tx: ReadTransaction, table_id: int) -> list[tuple[int, str]]:
    """The foreign keys that refer to a table: the id of the table that each belongs to, and its name."""
    keys = [REFERENCES.unpack(key) for key, _ in tx.get_range(*REFERENCES.range(table_id))]
    return [(cast(int, key[-2]), cast(str, key[-1])) for key in keys]


def _child(tx: ReadTransaction, parent: HiveTable, table_id: int) -> HiveTable:
    """The table with a foreign key to ``parent``, which may be its own; that one also if the names are not known."""
    if table_id == parent.table_id:
        return parent
    return warehouse_records.find_table(tx, table_id) or parent


def _find(tx: ReadTransaction, table_id: int, name: str) -> ConstraintRecord | None:
    stored = tx.get(CONSTRAINTS.key(table_id, name))
    return None if stored is None else ConstraintRecord.FromString(stored)


def _clear(tx: Transaction, table_id: int, name: str) -> None:
    record = _find(tx, table_id, name)
    tx.clear(CONSTRAINTS.key(table_id, name))
    if record is not None and record.kind == ConstraintRecord.FOREIGN_KEY:
        tx.clear(REFERENCES.key(record.parent_id, table_id, name))


def _connected(tx: ReadTransaction, chosen: Sequence[tuple[int, ConstraintRecord]]) -> Iterator[ForeignKey]:
    known: dict[int, HiveTableRecord] = {}
    keys: dict[int, str] = {}

    def record_of(table_id: int) -> HiveTableRecord:
        if table_id not in known:
            record = warehouse_records.find_record(tx, table_id)
            if record is None:
                raise TableNotFound(f"a table of a foreign key was dropped meanwhile (id {table_id})")
            known[table_id] = record
        return known[table_id]

    for child_id, one in chosen:
        if one.parent_id not in keys:
            own = [of.name for of in of_table(tx, one.parent_id) if of.kind == ConstraintRecord.PRIMARY_KEY]
            keys[one.parent_id] = own[0] if own else ""
        yield ForeignKey(one, record_of(child_id), record_of(one.parent_id), keys[one.parent_id])
