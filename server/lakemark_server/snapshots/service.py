"""Snapshots of lake tables: which version is meant, and its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from lakemark_core.errors import InvalidArgument, InvalidFile, VersionNotFound
from lakemark_core.types import Schema
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context.clock import time_text
from lakemark_server.file_index.arrow import concat_batches, take, take_rows
from lakemark_server.file_index.cache import SharingLru
from lakemark_server.file_index.entries.columns import FIXED
from lakemark_server.file_index.pages.source import PageSource, SnapshotGone, make_cache
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
    """Which snapshot of a branch ("": main): a version, or the last one committed at or before a time; else the latest.

    A tag stands for a version of a branch.
    """

    version: int | None = None
    timestamp_ms: int | None = None
    branch: str = ""
    tag: str = ""


Named: TypeAlias = tuple[str, str, str, SnapshotReference]  # catalog, database, table, and which snapshot of it


@dataclass(frozen=True, slots=True)
class ResolvedVersion:
    """One version of a table, on the lineage of the branch by which it was named."""

    table: LakeTable
    lineage: Lineage
    version: int


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A snapshot together with the table as it is now (its name and location may have changed since)."""

    table: LakeTable
    lineage: Lineage
    snapshot: Snapshot

    @property
    def schema(self) -> Schema:
        return self.snapshot.schema

    @property
    def reference(self) -> ResolvedVersion:
        return ResolvedVersion(self.table, self.lineage, self.snapshot.version)


class Snapshots:
    """Thread-safe. Only heads and names are read afresh; versions never change, so what is cached never gets old.

    ``cache`` keeps pages and what is made of them; together with the snapshots it takes at most ``cache_bytes``.
    """

    def __init__(self, store: Store, cache_bytes: int = CACHE_BYTES_DEFAULT) -> None:
        self._store = store
        self.cache = make_cache(cache_bytes * 3 // 4)
        self._source = PageSource(store, self.cache)
        self._references: ReadMemo[Named, ResolvedVersion] = ReadMemo(_resolve_named, entries_max=_REFERENCES_KEPT)
        self._snapshots: SnapshotCache = SharingLru(cache_bytes // 4, Snapshot.pieces)

    def resolve(self, catalog: str, database: str, name: str, at: SnapshotReference) -> ResolvedVersion:
        """What is meant; nothing is loaded.

        Raises DatabaseNotFound, TableNotFound, UnsupportedOperation, BranchNotFound, NotFound (tag), VersionNotFound,
        InvalidArgument.
        """
        found = self.resolve_at_once(catalog, database, name, at)
        return found or self.resolve_together([(catalog, database, name, at)])[0]

    def resolve_together(self, wanted: Sequence[Named]) -> list[ResolvedVersion]:
        """Several, all as of one moment: in one read of the store. Raises as ``resolve``."""
        return self._store.read(lambda tx: [self._references.get(tx, one) for one in wanted])

    def resolve_at_once(self, catalog: str, database: str, name: str, at: SnapshotReference) -> ResolvedVersion | None:
        """For event loops: what ``resolve`` would give, if that can be told without waiting; else None."""
        return self._references.get_at_once(self._store, (catalog, database, name, at))

    def version(self, catalog: str, database: str, name: str, at: SnapshotReference) -> tuple[LakeTable, int]:
        """The table and the number of the version that is meant. Raises as ``resolve``."""
        found = self.resolve(catalog, database, name, at)
        return found.table, found.version

    def snapshot(
        self, catalog: str, database: str, name: str, at: SnapshotReference, origin: Origin | None = None
    ) -> TableSnapshot:
        """Raises as ``resolve`` and ``load``."""
        found = self.resolve(catalog, database, name, at)
        return self._loaded(found, origin)

    def snapshots(self, wanted: Sequence[Named]) -> list[TableSnapshot]:
        """Of several tables or branches, all as of one moment. Raises as ``resolve`` and ``load``."""
        return [self._loaded(found) for found in self.resolve_together(wanted)]

    def at_hand(self, found: ResolvedVersion) -> TableSnapshot | None:
        """What is meant, if it is in memory."""
        table, lineage, version = found.table, found.lineage, found.version
        snapshot = self._snapshots.get(((table.table_id, lineage.owner(version), version), None))
        return None if snapshot is None else TableSnapshot(table, lineage, snapshot)

    def _loaded(self, found: ResolvedVersion, origin: Origin | None = None) -> TableSnapshot:
        loaded = self.load(found.table, found.lineage, found.version, origin)
        return TableSnapshot(found.table, found.lineage, loaded)

    def load(self, table: LakeTable, lineage: Lineage, version: int, origin: Origin | None = None) -> Snapshot:
        """The files of one version that exists; ``origin``: in the order of a snapshot with this origin.

        Raises InvalidArgument if the base of the origin is gone, SnapshotGone (see ``again``).
        """
        try:
            return self.loading(table).load(lineage, version, origin)
        except SnapshotGone as error:
            if origin == NOWHERE:  # what there was before the first base
                raise InvalidArgument(PAGE_TOO_OLD) from error
            raise

    def load_beside(self, newer: TableSnapshot, version: int) -> Snapshot:
        """An older version, in an order that the newer snapshot determines where that can be.

        Raises VersionNotFound: it was cleaned.
        """
        self.require_readable(newer.table, newer.lineage, version)
        return self.loading(newer.table).load_beside(newer.lineage, newer.snapshot, version)

    def require_readable(self, table: LakeTable, lineage: Lineage, version: int) -> None:
        """Raises VersionNotFound: it was cleaned, so what it had can no longer be told. Version 0 never is."""
        self._store.read(lambda tx: retention.require_readable(tx, table.table_id, table.name, lineage, version))

    def again(self, body: Callable[[], T]) -> T:
        """Runs ``body``; a second time if pages of a snapshot that it used were replaced meanwhile."""
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
        """For one request."""
        return Loading(self._source, table, self._snapshots)

    def walk(self, table: LakeTable, lineage: Lineage, after: int, upto: int) -> Iterator[Snapshot]:
        """The snapshots of versions ``after`` to ``upto``, one after the other."""
        return self.loading(table).walk(lineage, after, upto)

    def schema(self, table: LakeTable, lineage: Lineage, version: int) -> Schema:
        """The schema that a version is read with; its files are not looked at."""
        if table.schema.schema_id == 1:  # there never was another one
            return table.schema
        found = self._store.read(lambda tx: records.version(tx, table.table_id, lineage, version))
        return schema_of(self._store, table, found.schema_id if found else 1)

    def version_before(self, table: LakeTable, lineage: Lineage, latest: int, instant: int) -> int:
        """The last version up to ``latest`` whose instant is smaller; 0 if there is none.

        Raises VersionNotFound: it was cleaned.
        """
        found = version_before_instant(self._store, table, lineage, latest, instant)

        def check(tx: ReadTransaction) -> None:
            # Where versions were removed, the one that is found need not be the last.
            trimmed = retention.cleaned(tx, table.table_id, lineage.owner(max(found, 1))).trimmed
            retention.require_readable(tx, table.table_id, table.name, lineage, found + 1 if found < trimmed else found)

        self._store.read(check)
        return found

    def pending_compaction(self, table: LakeTable, lineage: Lineage) -> Pending:
        """The file groups that requested and inflight compactions of the branch are going to rewrite."""
        return pending_compaction(self._store, table, lineage)

    def find_files(self, table: LakeTable, lineage: Lineage, version: int, paths: Sequence[str]) -> pa.RecordBatch:
        """The fixed columns of these live files of a version, in the order of the paths.

        Raises InvalidFile that names the first few paths which are not alive in that version or are named twice.
        """
        below = table.record.location.rstrip("/") + "/"
        wanted = [path.removeprefix(below) for path in paths]
        if not wanted:
            return pa.RecordBatch.from_pylist([], schema=FIXED)
        parts = self.load(table, lineage, version).parts
        found = locate(parts, pa.array(wanted, pa.string()))
        indexes = np.concatenate([one.paths for one in found]) if found else np.empty(0, np.int64)
        if len(indexes) < len(wanted):
            raise _not_there(table, version, wanted, set(indexes.tolist()))
        columns = [[take(parts[one.part].column(name), one.places) for name in FIXED.names] for one in found]
        batch = concat_batches([pa.RecordBatch.from_arrays(arrays, schema=FIXED) for arrays in columns])
        return take_rows(batch, np.argsort(indexes))


def _not_there(table: LakeTable, version: int, wanted: Sequence[str], found: set[int]) -> InvalidFile:
    first = {path: index for index, path in reversed(list(enumerate(wanted)))}
    twice = [path for index, path in enumerate(wanted) if first[path] != index]
    if twice:
        return InvalidFile(f"file {twice[0]!r} is named twice", path=twice[0])
    missing = [path for index, path in enumerate(wanted) if index not in found]
    some = ", ".join(repr(path[:300]) for path in missing[:_NAMED_MAX])
    more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
    one = len(missing) == 1
    return InvalidFile(
        f"{'file' if one else 'files'} {some}{more} {'is' if one else 'are'} not in version {version} of {table.name}: "
        f"{'it was' if one else 'they were'} replaced, or never committed",
        path=missing[0],
        version=str(version),
    )


def _resolve_named(tx: ReadTransaction, named: Named) -> ResolvedVersion:
    catalog, database, name, at = named
    return _resolve(tx, lake.get(tx, catalog, database, name), at)


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
