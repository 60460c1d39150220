"""Instants and versions as the store has them, inside a transaction."""

from __future__ import annotations

from typing import cast

from lakemark_core.errors import InstantNotFound
from lakemark_proto.store.v1.store_pb2 import HeadRecord, InstantRecord, VersionRecord
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import HEADS, INSTANTS, LAST_INSTANT, VERSION_TIMES, VERSIONS
from lakemark_server.timeline.lineage import Lineage


def head(tx: ReadTransaction, table_id: int, branch: str) -> HeadRecord:
    """Version 0 before the first commit."""
    stored = tx.get(HEADS.key(table_id, branch))
    return HeadRecord() if stored is None else HeadRecord.FromString(stored)


def put_head(tx: Transaction, table_id: int, branch: str, record: HeadRecord) -> None:
    tx.set(HEADS.key(table_id, branch), record.SerializeToString())


def next_instant(tx: Transaction, table_id: int, now_ms: int) -> int:
    """Unique and increasing in the table: the time, or one more than the last."""
    key = LAST_INSTANT.key(table_id)
    stored = tx.get(key)
    last = int.from_bytes(stored, "big") if stored else 0
    instant = max(now_ms, last + 1)
    tx.set(key, instant.to_bytes(8, "big"))
    return instant


def guard_starts(tx: Transaction, table_id: int) -> None:
    """Of two writers that start at the same moment, one sees the other; live writers are read without conflicts."""
    key = LAST_INSTANT.key(table_id)
    tx.add_read_conflict(key, key + b"\x00")
    tx.add_write_conflict(key, key + b"\x00")


def instant(tx: ReadTransaction, table_id: int, number: int) -> InstantRecord:
    stored = tx.get(INSTANTS.key(table_id, number))
    return parse_instant(stored, number)


def parse_instant(stored: bytes | None, number: int) -> InstantRecord:
    if stored is None:
        raise InstantNotFound(f"the table has no instant {number}", instant=str(number))
    return InstantRecord.FromString(stored)


def put_instant(tx: Transaction, table_id: int, record: InstantRecord) -> None:
    tx.set(INSTANTS.key(table_id, record.instant), record.SerializeToString())


def put_version(tx: Transaction, table_id: int, branch: str, record: VersionRecord) -> None:
    tx.set(VERSIONS.key(table_id, branch, record.version), record.SerializeToString())
    tx.set(VERSION_TIMES.key(table_id, branch, record.committed_ms, record.version), b"")


def versions(
    tx: ReadTransaction,
    table_id: int,
    lineage: Lineage,
    after: int,
    upto: int,
    *,
    limit: int = 0,
    reverse: bool = False,
) -> list[VersionRecord]:
    """Those with ``after < version <= upto``. They never change, so reading them is never a conflict."""
    segments = list(lineage.segments(after, upto))
    records: list[VersionRecord] = []
    for key, low, high in reversed(segments) if reverse else segments:
        begin, end = VERSIONS.key(table_id, key, low + 1), VERSIONS.key(table_id, key, high + 1)
        rest = limit - len(records) if limit else 0
        pairs = tx.get_range(begin, end, limit=rest, reverse=reverse, snapshot=True)
        records += [VersionRecord.FromString(value) for _, value in pairs]
        if limit and len(records) >= limit:
            break
    return records


def version(tx: ReadTransaction, table_id: int, lineage: Lineage, number: int) -> VersionRecord | None:
    """One version; None if there is none of this number."""
    stored = tx.get(VERSIONS.key(table_id, lineage.owner(number), number), snapshot=True)
    return None if stored is None else VersionRecord.FromString(stored)


def version_at_time(tx: ReadTransaction, table_id: int, lineage: Lineage, time_ms: int) -> int:
    """The last version committed at or before the time; 0 if there is none."""
    upto: int | None = None
    for key, fork in lineage.forks:
        begin, _ = VERSION_TIMES.range(table_id, key)
        end = VERSION_TIMES.key(table_id, key, time_ms + 1)
        pairs = tx.get_range(begin, end, limit=1, reverse=True, snapshot=True) if begin < end else []
        if pairs:
            last = cast(int, VERSION_TIMES.unpack(pairs[0][0])[-1])
            return last if upto is None else min(last, upto)
        upto = fork if upto is None else min(upto, fork)
    return 0
