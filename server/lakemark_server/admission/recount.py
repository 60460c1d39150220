"""Counts what tenants have, to verify their counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias, cast

from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, InstantRecord, TableEntry
from lakemark_server.admission import usage
from lakemark_server.kv import Space, Store, counter
from lakemark_server.store.keyspace import ALIVE, DATABASES, DROPPED, INSTANTS, TABLE_NAMES, USAGE

Pairs: TypeAlias = Callable[[Space], Iterable[tuple[tuple[object, ...], bytes]]]
"""The items and the value of every key of a space."""

Counts: TypeAlias = dict[tuple[str, str], int]
"""By catalog and name of the counter; zeros may be left out."""


def wrong(store: Store, pairs: Pairs) -> list[str]:
    """A sentence for each counter that differs from what was counted."""
    actual = count(pairs, lambda key: store.read(lambda tx: tx.get(key)))
    kept = {(str(items[0]), str(items[1])): counter(value) for items, value in pairs(USAGE)}
    return [
        f"catalog {catalog!r}: its counter says {kept.get((catalog, what), 0)} {what}, there are "
        f"{actual.get((catalog, what), 0)}"
        for catalog, what in sorted(kept.keys() | actual.keys())
        if kept.get((catalog, what), 0) != actual.get((catalog, what), 0)
    ]


def count(pairs: Pairs, get: Callable[[bytes], bytes | None]) -> Counts:
    """Counts what there is. ``pairs`` lists a space of the store, and ``get`` reads the value of a key."""
    counts: Counter[tuple[str, str]] = Counter()
    catalogs: dict[int, str] = {}
    for _, value in pairs(DATABASES):
        database = DatabaseRecord.FromString(value)
        catalogs[database.database_id] = database.catalog
        counts[database.catalog, usage.DATABASES] += 1
    owners: dict[int, str] = {}
    for (database_id, _), value in pairs(TABLE_NAMES):
        catalog = catalogs.get(cast(int, database_id), "")
        owners[TableEntry.FromString(value).table_id] = catalog
        counts[catalog, usage.TABLES] += 1
    for (tenant, _, _, table_id), _ in pairs(DROPPED):
        owners[cast(int, table_id)] = str(tenant)
        counts[str(tenant), usage.DROPPED_TABLES] += 1
    for (table_id, instant), _ in pairs(ALIVE):
        catalog = owners.get(cast(int, table_id), "")
        stored = get(INSTANTS.key(cast(int, table_id), cast(int, instant)))
        staged = InstantRecord.FromString(stored or b"").staged
        counts[catalog, usage.OPEN_INSTANTS] += 1
        counts[catalog, usage.STAGED_FILES] += staged.files
        counts[catalog, usage.STAGED_BYTES] += staged.bytes
    return {key: number for key, number in counts.items() if number}
