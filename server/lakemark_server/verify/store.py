"""Checks every invariant of the key space by reading it: what ``docs/keys.md`` says.

Reads page by page, each page in a transaction of its own. A store may be written to meanwhile, so pages come from
different moments. What looks wrong is checked again, and only what is wrong each time is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, cast

from lakemark_core.errors import LakemarkError, TableNotFound
from lakemark_proto.v1 import catalog_pb2
from lakemark_server.admission import recount
from lakemark_server.catalog import lake, tables
from lakemark_server.kv import ReadTransaction, Space, Store, keys_below, strinc, unpack
from lakemark_server.store import store_format
from lakemark_server.store.keyspace import (
    DROPPED,
    DROPPED_DUE,
    HIVE_TABLES,
    OF_TABLE,
    REQUEST_TIMES,
    REQUESTS,
)
from lakemark_server.verify import bases, constraints, events, grants, optimization, places, transactions, warehouse
from lakemark_server.verify import lake as lake_tables
from lakemark_server.verify.lake import Problems
from lakemark_server.verify.names import Name, names_of

LOOKS: Final = 3
PROBLEMS_MAX: Final = 10

_Check: TypeAlias = Callable[[], Problems]


def verify(store: Store) -> Problems:
    """A sentence for each violation; none if all is well. Raises what reading the store raises."""
    wrong_format = store.read(store_format.wrong)
    if wrong_format:
        return [wrong_format]
    names = names_of(store)
    problems = _settled(lambda: _check_unique(names_of(store)))
    for (_, database, table, number), _ in keys_below(store, DROPPED):
        table_id, full = cast(int, number), f"{database}.{table} (dropped, table id {number})"
        problems += _settled(_on(lake_tables.check_table, store, table_id, full))
        problems += _settled(_on(bases.check_bases, store, table_id, full))
    for name in names:
        undefined = _settled(_on(_check_definition, store, name))
        problems += undefined
        if name.entry.kind != catalog_pb2.LAKE:
            problems += _settled(_on(warehouse.check_table, store, name.entry.table_id, name.full))
        elif not undefined:
            problems += _settled(_on(lake_tables.check_table, store, name.entry.table_id, name.full))
            problems += _settled(_on(bases.check_bases, store, name.entry.table_id, name.full))
    checks = (
        places.check,
        constraints.check,
        _check_dropped,
        _check_content,
        _check_usage,
        _check_requests,
        events.check_logs,
        transactions.check,
        grants.check,
        optimization.check,
    )
    for check in checks:
        problems += _settled(_on(check, store))
    return problems


def _on(check: Callable[..., Problems], *arguments: object) -> _Check:
    return lambda: check(*arguments)


def _settled(check: _Check) -> Problems:
    """The problems that every run of the check reports. The others came from writes between two pages."""
    problems = check()
    for _ in range(LOOKS - 1):
        if problems:
            again = set(check())
            problems = [problem for problem in problems if problem in again]
    return problems


def _check_unique(names: list[Name]) -> Problems:
    problems: Problems = []
    seen: dict[int, str] = {}
    for name in names:
        table_id = name.entry.table_id
        if name.owner is None:
            problems.append(f"{name.full}: its database does not exist")
        if table_id in seen:
            problems.append(f"{name.full}: table id {table_id} has the name {seen[table_id]} too")
        seen[table_id] = name.full
    return problems


def _check_definition(store: Store, name: Name) -> Problems:
    """A name leads to a definition that has the same name."""

    def body(tx: ReadTransaction) -> Problems:
        entry = tables.find(tx, name.database_id, name.name)
        if entry is None or entry.table_id != name.entry.table_id:
            return []  # dropped or renamed meanwhile
        if entry.kind != catalog_pb2.LAKE:
            defined = tx.get(HIVE_TABLES.space(entry.table_id).key(0)) is not None
            return [] if defined else [f"{name.full}: table id {entry.table_id} has no definition"]
        try:
            record = lake.load(tx, entry.table_id).record
        except LakemarkError as error:
            return [f"{name.full}: its definition cannot be read: {error.message}"]
        database = name.owner.name if name.owner else record.database
        if (record.table_id, record.database, record.name) != (entry.table_id, database, name.name):
            return [f"{name.full}: its definition says {record.database}.{record.name}, table id {record.table_id}"]
        return []

    return store.read(body)


def _check_dropped(store: Store) -> Problems:
    """A dropped table can be found by the name that it had, and by the time when it will be deleted."""
    named = {cast(int, items[-1]): items for items, _ in keys_below(store, DROPPED)}
    due = {cast(int, items[-1]): items for items, _ in keys_below(store, DROPPED_DUE)}
    problems: Problems = []
    for table_id in sorted(named.keys() | due.keys()):
        try:
            record = store.read(lambda tx, at=table_id: lake.get_record(tx, at, or_dropped=True))  # type: ignore[misc]
        except TableNotFound:
            problems.append(f"table id {table_id} was dropped, and has no definition")
            continue
        expected = (record.catalog, record.database, record.name, table_id), (record.dropped.until_ms, table_id)
        if not record.HasField("dropped") or (named.get(table_id), due.get(table_id)) != expected:
            problems.append(f"table id {table_id} is dropped by {named.get(table_id)} and {due.get(table_id)} only")
    return problems


def _known_ids(store: Store) -> set[int]:
    """The ids of tables with names, and of dropped tables."""
    return {name.entry.table_id for name in names_of(store)} | {
        cast(int, at[-1]) for at, _ in keys_below(store, DROPPED)
    }


def _check_content(store: Store) -> Problems:
    """A table without a name has no content.

    Names are read before and after, so that a new table is not mistaken for a deleted one.
    """
    before = _known_ids(store)
    content = {(table_id, index) for index, space in enumerate(OF_TABLE) for table_id in _table_ids(store, space)}
    known = before | _known_ids(store)
    return [
        f"table id {table_id} has no name, but there are keys under {unpack(OF_TABLE[index].prefix)[0]!r}"
        for table_id, index in sorted(content)
        if table_id not in known
    ]


def _check_usage(store: Store) -> Problems:
    """The counters of tenants are correct."""
    return recount.wrong(store, lambda space: keys_below(store, space))


def _check_requests(store: Store) -> Problems:
    """Every remembered answer can be found by its time, so that it expires."""
    answered = {str(items[0]) for items, _ in keys_below(store, REQUESTS)}
    timed = {str(items[-1]) for items, _ in keys_below(store, REQUEST_TIMES)}
    return [
        f"request {request_id!r} has {'no time' if request_id in answered else 'a time and no answer'}"
        for request_id in sorted(answered ^ timed)[:PROBLEMS_MAX]
    ]


def _table_ids(store: Store, space: Space) -> Iterator[int]:
    """The table ids that have keys in the space, with one read for each."""
    begin, end = space.range()
    while pairs := store.read(lambda tx, begin=begin: tx.get_range(begin, end, limit=1)):  # type: ignore[misc]
        table_id = cast(int, space.unpack(pairs[0][0])[0])
        yield table_id
        begin = strinc(space.key(table_id))
