"""Snapshots of lake tables: which version a reference means, and its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from lakemark_core.errors import InstantNotFound, InvalidArgument, InvalidFile, VersionNotFound
from lakemark_core.types import Schema
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context.clock import time_text
from lakemark_server.file_index.arrow import concat_batches, take, take_rows
from lakemark_server.file_index.cache import SharingLru
from lakemark_server.file_index.entries.columns import FIXED
from lakemark_server.file_index.pages.source import PageSource, SnapshotGone, make_cache
from lakemark_server.file_index.partition_buckets import PartitionBuckets
from lakemark_server.file_index.parts.fold import NOWHERE, Origin, Snapshot
from lakemark_server.file_index.parts.locate import locate
from lakemark_server.kv import ReadMemo, ReadTransaction, Store
from lakemark_server.snapshots.versions.instants import Pending, pending_compaction, version_before_instant
from lakemark_server.snapshots.versions.loader import PAGE_TOO_OLD, Loading, SnapshotCache, schema_of
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import forks, retention
from lakemark_server.timeline.lineage import Lineage

CACHE_BYTES_DEFAULT: Final = 512 << 20
_NAMED_MAX: Final = 3
_REFERENCES_KEPT: Final = 2_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SnapshotReference:
    """Which snapshot of a branch ("" is main): a version, or the last one committed at or before a time, else the
    latest.

    A tag stands for a version of a branch.
    """

    version: int | None = None
    timestamp_ms: int | None = None
    branch: str = ""
    tag: str = ""


SnapshotName: TypeAlias = tuple[str, str, str, SnapshotReference]  # catalog, database, table, reference


@dataclass(frozen=True, slots=True)
class ResolvedVersion:
    """One version of a table, on the lineage of the branch by which it was named."""

    table: LakeTable
    lineage: Lineage
    version: int


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A snapshot together with the table as it is now. Its name and location may have changed since the version."""

    table: LakeTable
    lineage: Lineage
    snapshot: Snapshot

    @property
    def schema(self) -> Schema:
        """The schema that the version is read with."""
        return self.snapshot.schema

    @property
    def reference(self) -> ResolvedVersion:
        """The version of this snapshot."""
        return ResolvedVersion(self.table, self.lineage, self.snapshot.version)


class Snapshots:
    """Thread-safe. Only heads and names are read anew: versions never change, so cached ones never get stale.

    ``cache`` keeps pages and what is decoded from them. Together with the snapshots it takes at most ``cache_bytes``.
    """

    def __init__(self, store: Store, cache_bytes: int = CACHE_BYTES_DEFAULT) -> None:
        self._store = store
        self.cache = make_cache(cache_bytes * 3 // 4)
        self._source = PageSource(store, self.cache)
        self._references: ReadMemo[SnapshotName, ResolvedVersion] = ReadMemo(
            _resolve_named, entries_max=_REFERENCES_KEPT
        )
        self._snapshots: SnapshotCache = SharingLru(cache_bytes // 4, Snapshot.pieces)

    def resolve(self, catalog: str, database: str, name: str, at: SnapshotReference) -> ResolvedVersion:
        """The version that a reference means; no files are loaded.

        Raises DatabaseNotFound, TableNotFound, UnsupportedOperation, BranchNotFound, NotFound (tag), VersionNotFound,
        InvalidArgument.
        """
        resolved = self.resolve_at_once(catalog, database, name, at)
        return resolved or self.resolve_together([(catalog, database, name, at)])[0]

    def resolve_together(self, names: Sequence[SnapshotName]) -> list[ResolvedVersion]:
        """Resolves several references as of one moment, in one read of the store. Raises as ``resolve``."""
        return self._store.read(lambda tx: [self._references.get(tx, name) for name in names])

    def resolve_at_once(self, catalog: str, database: str, name: str, at: SnapshotReference) -> ResolvedVersion | None:
        """Like ``resolve``, for event loops: None if it cannot be told without waiting."""
        return self._references.get_at_once(self._store, (catalog, database, name, at))

    def version(self, catalog: str, database: str, name: str, at: SnapshotReference) -> tuple[LakeTable, int]:
        """The table and the version that a reference means. Raises as ``resolve``."""
        resolved = self.resolve(catalog, database, name, at)
        return resolved.table, resolved.version

    def snapshot(
        self, catalog: str, database: str, name: str, at: SnapshotReference, origin: Origin | None = None
    ) -> TableSnapshot:
        """The snapshot that a reference means. Raises as ``resolve`` and ``load``."""
        resolved = self.resolve(catalog, database, name, at)
        return self._loaded(resolved, origin)

    def snapshots(self, names: Sequence[SnapshotName]) -> list[TableSnapshot]:
        """Snapshots of several tables or branches, all as of one moment. Raises as ``resolve`` and ``load``."""
        return [self._loaded(resolved) for resolved in self.resolve_together(names)]

    def at_hand(self, resolved: ResolvedVersion) -> TableSnapshot | None:
        """The snapshot of a version if it is in memory, else None."""
        table, lineage, version = resolved.table, resolved.lineage, resolved.version
        snapshot = self._snapshots.get(((table.table_id, lineage.owner(version), version), None))
        return None if snapshot is None else TableSnapshot(table, lineage, snapshot)

    def _loaded(self, resolved: ResolvedVersion, origin: Origin | None = None) -> TableSnapshot:
        loaded = self.load(resolved.table, resolved.lineage, resolved.version, origin)
        return TableSnapshot(resolved.table, resolved.lineage, loaded)

    def load(self, table: LakeTable, lineage: Lineage, version: int, origin: Origin | None = None) -> Snapshot:
        """The files of an existing version.

        ``origin``: the files come in the order of snapshots with this origin. Raises InvalidArgument if the base of the
        origin is gone, SnapshotGone (see ``again``).
        """
        try:
            return self.loading(table).load(lineage, version, origin)
        except SnapshotGone as error:
            if origin == NOWHERE:  # the order of files before the first base
                raise InvalidArgument(PAGE_TOO_OLD) from error
            raise

    def load_beside(self, newer: TableSnapshot, version: int) -> Snapshot:
        """An older version, if possible in an order that the newer snapshot determines.

        Raises VersionNotFound if the older version was cleaned.
        """
        self.require_readable(newer.table, newer.lineage, version)
        return self.loading(newer.table).load_beside(newer.lineage, newer.snapshot, version)

    def require_readable(self, table: LakeTable, lineage: Lineage, version: int) -> None:
        """Raises VersionNotFound if the version was cleaned, so that its files are no longer known. Version 0 never
        is."""
        self._store.read(lambda tx: retention.require_readable(tx, table.table_id, table.name, lineage, version))

    def again(self, body: Callable[[], T]) -> T:
        """Runs ``body``, and once more if pages of a snapshot that it used were replaced meanwhile."""
        try:
            return body()
        except SnapshotGone:
            self._snapshots.clear()
            return body()

    def forget(self) -> None:
        """Empties the caches."""
        self._snapshots.clear()
        self.cache.clear()

    def loading(self, table: LakeTable) -> Loading:
        """A loader for one request."""
        return Loading(self._source, table, self._snapshots)

    def walk(self, table: LakeTable, lineage: Lineage, after: int, upto: int) -> Iterator[Snapshot]:
        """The snapshots of versions ``after`` to ``upto``, one after the other."""
        return self.loading(table).walk(lineage, after, upto)

    def schema(self, table: LakeTable, lineage: Lineage, version: int) -> Schema:
        """The schema that a version is read with. Its files are not read."""
        if table.schema.schema_id == 1:  # the table never had another schema
            return table.schema
        record = self._store.read(lambda tx: records.version(tx, table.table_id, lineage, version))
        return schema_of(self._store, table, record.schema_id if record else 1)

    def version_before(self, table: LakeTable, lineage: Lineage, latest: int, instant: int) -> int:
        """The last version up to ``latest`` whose instant is smaller; 0 if there is none.

        Raises VersionNotFound if that version was cleaned.
        """
        version = version_before_instant(self._store, table, lineage, latest, instant)

        def check(tx: ReadTransaction) -> None:
            # Where versions were removed, this one need not be the last before the instant.
            trimmed = retention.cleaned(tx, table.table_id, lineage.owner(max(version, 1))).trimmed
            retention.require_readable(
                tx, table.table_id, table.name, lineage, version + 1 if version < trimmed else version
            )

        self._store.read(check)
        return version

    def first_versions(
        self, table: LakeTable, lineage: Lineage, latest: int, instants: Sequence[int]
    ) -> dict[int, int]:
        """For each of these instants the first version up to ``latest`` that has what it has published, and can still
        be read: its own, or the earliest one that was not cleaned. Instants without such a version are left out.
        """
        return self._store.read(lambda tx: _first_versions(tx, table.table_id, lineage, latest, instants))

    def pending_compaction(self, table: LakeTable, lineage: Lineage) -> Pending:
        """The file groups that requested and inflight compactions of the branch are going to rewrite."""
        return pending_compaction(self._store, table, lineage)

    def sharing_keys(
        self, table: LakeTable, lineage: Lineage, version: int, buckets: PartitionBuckets
    ) -> Iterator[tuple[str, int, str]]:
        """Partition, bucket and path of each live base file that shares keys with one of the buckets."""
        return self.load(table, lineage, version).sharing_keys(buckets)

    def find_files(self, table: LakeTable, lineage: Lineage, version: int, paths: Sequence[str]) -> pa.RecordBatch:
        """The FIXED columns of these live files of a version, in the order of the paths.

        Raises InvalidFile that names the first paths that are not alive in that version or are named twice.
        """
        below = table.record.location.rstrip("/") + "/"
        wanted = [path.removeprefix(below) for path in paths]
        if not wanted:
            return pa.RecordBatch.from_pylist([], schema=FIXED)
        parts = self.load(table, lineage, version).parts
        located = locate(parts, pa.array(wanted, pa.string()))
        indexes = np.concatenate([entries.paths for entries in located]) if located else np.empty(0, np.int64)
        if len(indexes) < len(wanted):
            raise _not_there(table, version, wanted, set(indexes.tolist()))
        columns = [
            [take(parts[entries.part].column(name), entries.places) for name in FIXED.names] for entries in located
        ]
        batch = concat_batches([pa.RecordBatch.from_arrays(arrays, schema=FIXED) for arrays in columns])
        return take_rows(batch, np.argsort(indexes))


def _first_versions(
    tx: ReadTransaction, table_id: int, lineage: Lineage, latest: int, instants: Sequence[int]
) -> dict[int, int]:
    versions: dict[int, int] = {}
    horizons: dict[str, int] = {}
    for number in instants:
        try:
            record = records.instant(tx, table_id, number)
        except InstantNotFound:
            version = 1  # long ago, if ever
        else:  # what another branch has published may have come by a merge, nobody knows when
            version = record.version if lineage.owner(max(record.version, 1)) == record.branch else 1
        if not 0 < version <= latest:
            continue
        key = lineage.owner(version)
        if key not in horizons:
            horizons[key] = retention.cleaned(tx, table_id, key).horizon
        readable = max(version, horizons[key] + 1)
        if readable <= latest:
            versions[number] = readable
    return versions


def _not_there(table: LakeTable, version: int, wanted: Sequence[str], present: set[int]) -> InvalidFile:
    first = {path: index for index, path in reversed(list(enumerate(wanted)))}
    twice = [path for index, path in enumerate(wanted) if first[path] != index]
    if twice:
        return InvalidFile(f"file {twice[0]!r} is named twice", path=twice[0])
    missing = [path for index, path in enumerate(wanted) if index not in present]
    some = ", ".join(repr(path[:300]) for path in missing[:_NAMED_MAX])
    more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
    single = len(missing) == 1
    return InvalidFile(
        f"{'file' if single else 'files'} {some}{more} {'is' if single else 'are'} not in version {version} of "
        f"{table.name}: {'it was' if single else 'they were'} replaced, or never committed",
        path=missing[0],
        version=str(version),
    )


def _resolve_named(tx: ReadTransaction, name: SnapshotName) -> ResolvedVersion:
    catalog, database, table, at = name
    return _resolve(tx, lake.get(tx, catalog, database, table), at)


def _resolve(tx: ReadTransaction, table: LakeTable, at: SnapshotReference) -> ResolvedVersion:
    table_id = table.table_id
    if at.tag:
        tag = forks.tag(tx, table_id, at.tag)
        return ResolvedVersion(table, forks.lineage(tx, table_id, tag.branch_key).at(tag.version), tag.version)
    lineage = forks.resolve(tx, table_id, at.branch)
    key, fork = lineage.forks[0]
    latest = max(records.head(tx, table_id, key).version, fork)
    if at.timestamp_ms is not None:
        if at.timestamp_ms < table.record.created_ms:
            raise VersionNotFound(
                f"{table.name} did not exist at {time_text(at.timestamp_ms)}; it was created at "
                f"{time_text(table.record.created_ms)}",
                table=table.name,
            )
        then = records.version_at_time(tx, table_id, lineage, at.timestamp_ms)
        retention.require_readable(tx, table_id, table.name, lineage, then)
        return ResolvedVersion(table, lineage, then)
    if at.version is None:
        return ResolvedVersion(table, lineage, latest)
    if at.version < 0:
        raise InvalidArgument(f"version {at.version} is negative")
    if at.version > latest:
        where = f"branch {at.branch!r} of {table.name}" if at.branch else table.name
        raise VersionNotFound(
            f"{where} has no version {at.version}; the latest is {latest}",
            table=table.name,
            version=str(at.version),
            latest=str(latest),
        )
    retention.require_readable(tx, table_id, table.name, lineage, at.version)
    return ResolvedVersion(table, lineage, at.version)
