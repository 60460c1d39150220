"""Snapshots of lake tables: which version is meant, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakemark.errors import CorruptStore, InvalidArgument, VersionNotFound
from lakemark.types import Schema
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.keyspace import BLOCKS, MAIN
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.snapshot import blocks
from lakemark_server.snapshot.cache import ByteLru
from lakemark_server.snapshot.fold import Snapshot, empty, fold
from lakemark_server.timeline import records
from lakemark_server.timeline.lineage import OF_MAIN

CACHE_BYTES_DEFAULT: Final = 512 << 20
VERSIONS_A_READ: Final = 2_000
BLOCKS_A_READ: Final = 64

_Key = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class At:
    """Which snapshot: a version, or the last one committed at or before a time; neither: the latest."""

    version: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A snapshot together with the table as it is now (its name and location may have changed since)."""

    table: LakeTable
    snapshot: Snapshot

    @property
    def schema(self) -> Schema:
        return self.snapshot.schema


class Snapshots:
    """Thread-safe. Only the head is read afresh; versions never change, so what is cached never gets old."""

    def __init__(self, store: Store, cache_bytes: int = CACHE_BYTES_DEFAULT) -> None:
        self._store = store
        self._cache: ByteLru[_Key, Snapshot] = ByteLru(cache_bytes, lambda snapshot: snapshot.memory_bytes)

    def version(self, catalog: str, database: str, name: str, at: At) -> tuple[LakeTable, int]:
        """The table and the number of the version that is meant; nothing is loaded. Raises as ``snapshot``."""
        return self._store.read(lambda tx: self._resolve(tx, lake.get(tx, catalog, database, name), at))

    def snapshot(self, catalog: str, database: str, name: str, at: At) -> TableSnapshot:
        """Raises DatabaseNotFound, TableNotFound, UnsupportedOperation, VersionNotFound, InvalidArgument."""
        table, version = self.version(catalog, database, name, at)
        return TableSnapshot(table, self.load(table, version))

    def load(self, table: LakeTable, version: int) -> Snapshot:
        """The files of one version that exists."""
        key = (table.table_id, MAIN, version)
        found = self._cache.get(key)
        if found is None:
            found = self._fold(table, version)
            self._cache.put(key, found)
        return found

    def schema(self, table: LakeTable, version: int) -> Schema:
        """The schema that a version is read with; its files are not looked at."""
        if table.schema.schema_id == 1:  # there never was another one
            return table.schema
        found = self._store.read(lambda tx: records.versions(tx, table.table_id, OF_MAIN, version - 1, version))
        return self._schema(table, found[0].schema_id if found else 1)

    def _resolve(self, tx: ReadTransaction, table: LakeTable, at: At) -> tuple[LakeTable, int]:
        latest = records.head(tx, table.table_id, MAIN).version
        if at.timestamp_ms is not None:
            if at.timestamp_ms < table.record.created_ms:
                raise VersionNotFound(
                    f"{table.name} did not exist at {at.timestamp_ms} ms; it was created at "
                    f"{table.record.created_ms} ms",
                    table=table.name,
                )
            return table, records.version_at_time(tx, table.table_id, OF_MAIN, at.timestamp_ms)
        if at.version is None:
            return table, latest
        if at.version < 0:
            raise InvalidArgument(f"version {at.version} is negative")
        if at.version > latest:
            raise VersionNotFound(
                f"{table.name} has no version {at.version}; the latest is {latest}",
                table=table.name,
                version=str(at.version),
                latest=str(latest),
            )
        return table, at.version

    def _fold(self, table: LakeTable, version: int) -> Snapshot:
        snapshot = self._nearest(table, version)
        while snapshot.version < version:
            upto = min(version, snapshot.version + VERSIONS_A_READ)
            after = snapshot.version
            found = self._store.read(
                lambda tx, after=after, upto=upto: records.versions(tx, table.table_id, OF_MAIN, after, upto)  # type: ignore[misc]
            )
            if [record.version for record in found] != list(range(after + 1, upto + 1)):
                self._require_table(table)
                raise CorruptStore(f"versions {after + 1} to {upto} of {table.name} are not complete")
            schema = self._schema(table, found[-1].schema_id)
            added = [(record, self._added(table, record, schema)) for record in found]
            snapshot = fold(snapshot, added, schema)
        return snapshot

    def _require_table(self, table: LakeTable) -> None:
        """Raises TableNotFound: the table was dropped while it was read."""
        self._store.read(lambda tx: lake.get_record(tx, table.table_id))

    def _nearest(self, table: LakeTable, version: int) -> Snapshot:
        """The closest cached version below, to go on from."""
        below = [key for key in self._cache.keys() if key[:2] == (table.table_id, MAIN) and key[2] < version]  # noqa: SIM118
        found = self._cache.get(max(below)) if below else None
        return found if found is not None else empty(self._schema(table, 1))

    def _schema(self, table: LakeTable, schema_id: int) -> Schema:
        if schema_id == table.schema.schema_id:
            return table.schema

        def body(tx: ReadTransaction) -> Schema:
            lake.get_record(tx, table.table_id)
            return lake.get_schema(tx, table.table_id, schema_id)

        return self._store.read(body)

    def _added(self, table: LakeTable, record: VersionRecord, schema: Schema) -> list[pa.RecordBatch]:
        """What a version added: its staged blocks and the one in its own record."""
        batches: list[pa.RecordBatch] = []
        for first in range(0, record.staged.blocks, BLOCKS_A_READ):
            numbers = range(first, min(first + BLOCKS_A_READ, record.staged.blocks))
            keys = [BLOCKS.key(table.table_id, record.instant, number) for number in numbers]
            for number, block in zip(numbers, self._store.read(lambda tx, keys=keys: tx.get_many(keys)), strict=True):  # type: ignore[misc]
                if block is None:
                    self._require_table(table)
                    raise CorruptStore(
                        f"block {number} of version {record.version} of {table.name} is missing", table=table.name
                    )
                batches.append(blocks.decode(block, schema))
        if record.inline_block:
            batches.append(blocks.decode(record.inline_block, schema))
        return batches
