"""Data files that lie where a lake table lives and that nobody has: left behind by writers, jobs or cleans that failed.

Every file below the location is listed. It belongs to somebody if a version that can be read has it, if its version has
ended and its turn to be deleted comes, or if its writer still works. Nothing is deleted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from lakemark_core.errors import TableNotFound
from lakemark_core.storage import list_files
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.doors import records
from lakemark_server.doors.directories import session_path
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.parts.locate import locate
from lakemark_server.file_index.parts.part import Part
from lakemark_server.kv import ReadTransaction, Store, keys_below
from lakemark_server.maintenance.cleaning.garbage import kept_versions, live_branches
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.keyspace import LEFT_FILES
from lakemark_server.timeline.instants import alive

_LEFT_A_READ: Final = 500


@dataclass(frozen=True, slots=True)
class Orphan:
    """``path`` is relative to the table's location."""

    path: str
    size_bytes: int


def find_orphans(store: Store, snapshots: Snapshots, table_id: int) -> list[Orphan]:
    """Those of one table, in order; none if it was dropped. The store may be in use meanwhile.

    One request for each 1,000 files on S3. Raises Unavailable, StorageRefused, and what reading the store raises.
    """
    try:
        table = store.read(lambda tx: lake.load(tx, table_id))
        orphans = _unowned(store, snapshots, table, _listed(table))
        if orphans:
            # What a clean or the sweep has deleted meanwhile is gone, and some writers have ended.
            still = _listed(table)
            orphans = _unowned(store, snapshots, table, {path: still[path] for path in orphans if path in still})
    except TableNotFound:
        return []
    return [Orphan(path, size) for path, size in sorted(orphans.items())]


def _listed(table: LakeTable) -> dict[str, int]:
    """Sizes by path, without hidden files: Hadoop keeps a checksum beside each file on a disk."""
    files = list_files(table.record.location)
    return {path: size for path, size in files if not path.rpartition("/")[2].startswith(".")}


def _unowned(store: Store, snapshots: Snapshots, table: LakeTable, files: dict[str, int]) -> dict[str, int]:
    """Writers are asked for after the files were listed: whoever has begun since then has none of these."""
    writing, left = store.read(lambda tx: _writing(tx, table.table_id)), _left(store, table.table_id)
    given = store.read(lambda tx: {session_path(name) for name, _ in records.sessions(tx, table.table_id)})
    sought = [
        path
        for path in files
        if path.partition("/")[0] not in writing
        and path not in left
        and "/".join(path.split("/", 2)[:2]) not in given  # statements that insert through doors
    ]
    had = snapshots.again(lambda: _had(store, snapshots, table, sought))
    return {path: files[path] for path in sought if path not in had}


def _writing(tx: ReadTransaction, table_id: int) -> Set[str]:
    """The directories of open instants."""
    return {str(writer.instant) for writer in alive.of_table(tx, table_id)}


def _left(store: Store, table_id: int) -> Set[str]:
    """Files of ended versions that are deleted by a later clean."""
    return {str(path) for (path,), _ in keys_below(store, LEFT_FILES, table_id, page=_LEFT_A_READ)}


def _had(store: Store, snapshots: Snapshots, table: LakeTable, paths: Sequence[str]) -> Set[str]:
    """Those of ``paths`` that a version has which can be read, or which ended but still has its files."""
    sought: pa.StringArray = pa.array(paths, pa.string())
    had: set[str] = set()
    for parts in _all_parts(store, snapshots, table):
        if not len(sought):
            break
        places = [located.paths for located in locate(parts, sought)]
        if places:
            there = np.zeros(len(sought), np.bool_)
            there[np.concatenate(places)] = True
            had.update(texts(sought.filter(pa.array(there))))
            sought = sought.filter(pa.array(~there))
    return had


def _all_parts(store: Store, snapshots: Snapshots, table: LakeTable) -> Iterator[Sequence[Part]]:
    """The files of all those versions: most are in the latest one of a branch."""
    live, named = store.read(lambda tx: (live_branches(tx, table.table_id, {}), kept_versions(tx, table.table_id)))
    for lineage, _, head in live:
        yield snapshots.load(table, lineage, head).parts
    for lineage, version in named:
        yield snapshots.load(table, lineage, version).parts
    for lineage, first, head in live:
        yield from snapshots.loading(table).leaving(lineage, first, head)
