"""Which tables ask for cleaning in the background, and when each is due.

Only those that ask have entries, by the time when they are due: a round over them costs what is due.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_server.catalog.property_values import whole_number
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import CLEANS, CLEANS_DUE

AGE_PROPERTY: Final = "lakemark.history.expire.max-snapshot-age-ms"
KEEP_PROPERTY: Final = "lakemark.history.expire.min-snapshots-to-keep"
"""As Iceberg has them: a version ends once it is older than that and is none of so many newest ones. One is enough to
ask for cleaning."""

_LAYOUT: Final = struct.Struct("<qI")  # when it is due (ms), how often it failed in a row


class Due(NamedTuple):
    ms: int
    failures: int = 0


class Asked(NamedTuple):
    """What is to stay; 0: not said."""

    versions: int
    ms: int


def asked(properties: Mapping[str, str]) -> Asked | None:
    """None: the table does not ask for cleaning. Raises InvalidArgument."""
    if AGE_PROPERTY not in properties and KEEP_PROPERTY not in properties:
        return None
    return Asked(
        *(whole_number(properties, name, 1) if name in properties else 0 for name in (KEEP_PROPERTY, AGE_PROPERTY))
    )


def follow(tx: Transaction, record: LakeTableRecord, now_ms: int) -> None:
    """After a change of the table's properties: it is looked at at once, or never again."""
    if asked(record.properties) is None:
        clear(tx, record.table_id)
    else:
        put(tx, record.table_id, Due(now_ms))


def find(tx: ReadTransaction, table_id: int) -> Due | None:
    stored = tx.get(CLEANS.key(table_id))
    return None if stored is None else Due(*_LAYOUT.unpack(stored))


def put(tx: Transaction, table_id: int, due: Due) -> None:
    """In place of the time before."""
    clear(tx, table_id)
    tx.set(CLEANS.key(table_id), _LAYOUT.pack(*due))
    tx.set(CLEANS_DUE.key(due.ms, table_id), b"")


def clear(tx: Transaction, table_id: int) -> None:
    before = find(tx, table_id)
    if before is not None:
        tx.clear(CLEANS.key(table_id))
        tx.clear(CLEANS_DUE.key(before.ms, table_id))


def due(tx: ReadTransaction, now_ms: int, limit: int) -> list[tuple[int, int]]:
    """(when it is due, table id), the longest due first; of dropped tables, too."""
    pairs = tx.get_range(CLEANS_DUE.range()[0], CLEANS_DUE.key(now_ms + 1), limit=limit, snapshot=True)
    return [cast(tuple[int, int], CLEANS_DUE.unpack(key)) for key, _ in pairs]


def settle(tx: Transaction, table_id: int, was_ms: int, following: Due | None) -> None:
    """After a look at a table that was due: when it is due again (None: never), unless its properties changed."""
    tx.clear(CLEANS_DUE.key(was_ms, table_id))
    found = find(tx, table_id)
    if found is None or found.ms != was_ms:
        return
    if following is None:
        clear(tx, table_id)
    else:
        put(tx, table_id, following)
