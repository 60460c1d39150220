"""Which versions can still be read: how far a branch was cleaned, and what keeps versions before that."""

from __future__ import annotations

from lakemark_core.errors import VersionNotFound
from lakemark_proto.store.v1.store_pb2 import CleanedRecord, TagRecord
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import CLEANED, SAVEPOINTS
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.lineage import Lineage


def cleaned(tx: ReadTransaction, table_id: int, key: str) -> CleanedRecord:
    """Of a branch, by its key."""
    stored = tx.get(CLEANED.key(table_id, key))
    return CleanedRecord.FromString(stored) if stored else CleanedRecord()


def all_cleaned(tx: ReadTransaction, table_id: int) -> list[tuple[str, CleanedRecord]]:
    """By branch key."""
    pairs = tx.get_range(*CLEANED.range(table_id))
    return [(str(CLEANED.unpack(key)[-1]), CleanedRecord.FromString(value)) for key, value in pairs]


def put_cleaned(tx: Transaction, table_id: int, key: str, record: CleanedRecord) -> None:
    tx.set(CLEANED.key(table_id, key), record.SerializeToString())


def kept(tx: ReadTransaction, table_id: int, key: str) -> set[int]:
    """The versions of a branch, by key, that tags, savepoints and forks of other branches keep."""
    versions = {one.version for one in forks.tags(tx, table_id) if one.branch_key == key}
    versions |= {one.fork_version for one in forks.branches(tx, table_id) if one.parent_key == key}
    return versions | {one.version for one in savepoints(tx, table_id) if one.branch_key == key}


def savepoints(tx: ReadTransaction, table_id: int) -> list[TagRecord]:
    """In order of branch and version."""
    return [TagRecord.FromString(value) for _, value in tx.get_range(*SAVEPOINTS.range(table_id))]


def require_readable(tx: ReadTransaction, table_id: int, name: str, lineage: Lineage, version: int) -> None:
    """Raises VersionNotFound for a version that has ended. Version 0 never does: it has no files."""
    key = lineage.owner(version)
    horizon = cleaned(tx, table_id, key).horizon
    if 0 < version <= horizon and version not in kept(tx, table_id, key):
        raise VersionNotFound(
            f"version {version} of {name} was cleaned; the earliest that can be read is {horizon + 1}",
            version=str(version),
            earliest=str(horizon + 1),
        )
