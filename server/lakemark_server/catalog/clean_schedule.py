"""Which tables ask for cleaning in the background, and when each is due.

Only tables that ask have entries, ordered by the time when they are due: a round costs only what is due.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from lakemark_core.errors import InvalidArgument
from lakemark_core.property_values import whole_number
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import CLEANS, CLEANS_DUE

AGE_PROPERTY: Final = "lakemark.history.expire.max-snapshot-age-ms"
KEEP_PROPERTY: Final = "lakemark.history.expire.min-snapshots-to-keep"
"""They mean what they mean in Iceberg: a version ends once it is older than that and not among so many newest ones. A
table that has one of the two asks for cleaning."""

_LAYOUT: Final = struct.Struct("<qI")  # when it is due (ms), how often it failed in a row


class Due(NamedTuple):
    """When a table is due, and how often cleaning it has failed in a row."""

    ms: int
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Retention:
    """Which versions a clean keeps: the newest ``versions``, and those of the last ``ms``; 0: not said."""

    versions: int = 0
    ms: int = 0

    def check(self) -> None:
        """Raises InvalidArgument."""
        if self.versions < 0 or self.ms < 0:
            raise InvalidArgument("retain_versions and retain_ms must not be negative")
        if not (self.versions or self.ms):
            raise InvalidArgument("say which versions are kept: give retain_versions, retain_ms or both")


def retention_of(properties: Mapping[str, str]) -> Retention | None:
    """None if the table does not ask for cleaning. Raises InvalidArgument."""
    if AGE_PROPERTY not in properties and KEEP_PROPERTY not in properties:
        return None
    return Retention(
        *(whole_number(properties, name, 1) if name in properties else 0 for name in (KEEP_PROPERTY, AGE_PROPERTY))
    )


def follow(tx: Transaction, record: LakeTableRecord, now_ms: int) -> None:
    """Follows a change of the table's properties: the table is due at once, or never again."""
    if retention_of(record.properties) is None:
        clear(tx, record.table_id)
    else:
        put(tx, record.table_id, Due(now_ms))


def find(tx: ReadTransaction, table_id: int) -> Due | None:
    """When the table is due; None: never."""
    stored = tx.get(CLEANS.key(table_id))
    return None if stored is None else Due(*_LAYOUT.unpack(stored))


def put(tx: Transaction, table_id: int, due: Due) -> None:
    """Sets when the table is due, in place of the time before."""
    clear(tx, table_id)
    tx.set(CLEANS.key(table_id), _LAYOUT.pack(*due))
    tx.set(CLEANS_DUE.key(due.ms, table_id), b"")


def clear(tx: Transaction, table_id: int) -> None:
    """Removes the table from the schedule."""
    before = find(tx, table_id)
    if before is not None:
        tx.clear(CLEANS.key(table_id))
        tx.clear(CLEANS_DUE.key(before.ms, table_id))


def due(tx: ReadTransaction, now_ms: int, limit: int) -> list[tuple[int, int]]:
    """(when it is due, table id) of tables that are due, the earliest first. Dropped tables may be among them."""
    pairs = tx.get_range(CLEANS_DUE.range()[0], CLEANS_DUE.key(now_ms + 1), limit=limit, snapshot=True)
    return [cast(tuple[int, int], CLEANS_DUE.unpack(key)) for key, _ in pairs]


def settle(tx: Transaction, table_id: int, was_ms: int, following: Due | None) -> None:
    """Sets when a table that was due is due again (None: never), unless its properties changed meanwhile."""
    tx.clear(CLEANS_DUE.key(was_ms, table_id))
    current = find(tx, table_id)
    if current is None or current.ms != was_ms:
        return
    if following is None:
        clear(tx, table_id)
    else:
        put(tx, table_id, following)
