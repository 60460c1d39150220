"""The invariants of bases: each is the fold of its version, and everything stored belongs to a known base."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from lakemark_core.errors import LakemarkError, TableNotFound
from lakemark_proto.store.v1.store_pb2 import BaseIndex, BaseRecord
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import take, texts
from lakemark_server.file_index.parts.fold import NOWHERE, Origin, Snapshot
from lakemark_server.kv import ReadTransaction, Store, keys_below
from lakemark_server.snapshots import bases
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.keyspace import BASE_BUILDS, BASE_INDEXES, BASE_PAGES, BASES
from lakemark_server.timeline.branches import forks, retention
from lakemark_server.timeline.lineage import Lineage

_CACHE_BYTES: Final = 64 << 20
_PAGES_A_READ: Final = 20


def check_bases(store: Store, table_id: int, name: str) -> list[str]:
    """A sentence for each violation; none for a table that was dropped meanwhile."""
    try:
        table = store.read(lambda tx: lake.load(tx, table_id, or_dropped=True))
        return [f"{name}: {problem}" for problem in _problems(store, table)]
    except TableNotFound:
        return []


def _problems(store: Store, table: LakeTable) -> Iterator[str]:
    table_id = table.table_id
    stored = store.read(lambda tx: tx.get_range(*BASES.range(table_id)))
    builds = {
        BASE_BUILDS.unpack(key)[-1] for key, _ in store.read(lambda tx: tx.get_range(*BASE_BUILDS.range(table_id)))
    }
    named: set[tuple[int, int]] = set()
    known: set[object] = set(builds)
    for key, value in stored:
        branch_key, record = str(BASES.unpack(key)[-1]), BaseRecord.FromString(value)
        for base_id in (record.base_id, *(base.base_id for base in record.old)):
            known.add(base_id)
            index = store.read(lambda tx, base_id=base_id: bases.read_index(tx, table_id, base_id))  # type: ignore[misc]
            if index is None:
                yield f"base {base_id} of branch {branch_key!r} has no index"
                continue
            named |= bases.pages_of(index)
            if base_id == record.base_id:
                yield from _check_content(store, table, branch_key, record, index)
    for space, what in ((BASE_INDEXES, "index"), (BASE_PAGES, "pages")):
        for items, _ in keys_below(store, space, table_id, page=_PAGES_A_READ):
            page = (items[0], items[1])
            if items[0] not in known and (space is BASE_INDEXES or page not in named):
                yield f"base {items[0]} is not known, but has {what}"
                break


def _check_content(
    store: Store, table: LakeTable, branch_key: str, record: BaseRecord, index: BaseIndex
) -> Iterator[str]:
    where = f"base {record.base_id} of branch {branch_key!r} at version {record.version}"
    if (index.version, index.branch_key) != (record.version, branch_key):
        yield f"{where} has the index of version {index.version} of branch {index.branch_key!r}"
        return
    loading = Snapshots(store, _CACHE_BYTES).loading(table)
    try:
        lineage = store.read(lambda tx: forks.lineage(tx, table.table_id, branch_key))
        base = loading.load(lineage, record.version, Origin(record.base_id, record.version))
        if store.read(lambda tx: _is_trimmed(tx, table.table_id, lineage)):
            if record.files != base.files:
                yield f"{where} says {record.files} files and has {base.files}"
            return
        folded = loading.load(lineage, record.version, NOWHERE)
        if _content(base) != _content(folded):
            yield f"{where} has other files than its version"
        if record.files != folded.files:
            yield f"{where} says {record.files} files; its version has {folded.files}"
    except LakemarkError as error:
        yield f"{where} cannot be read: {error.message}"


def _is_trimmed(tx: ReadTransaction, table_id: int, lineage: Lineage) -> bool:
    """Whether some versions that led to the branch are gone."""
    return any(retention.cleaned(tx, table_id, key).trimmed for key, _ in lineage.forks)


def _content(snapshot: Snapshot) -> list[tuple[str, int]]:
    """Paths and the versions that added them, sorted."""
    files: list[tuple[str, int]] = []
    for part in snapshot.parts:
        places = np.flatnonzero(part.live_mask())
        versions = part.column("added_version").to_numpy()[places]
        files += zip(texts(take(part.column("path"), places)), versions.tolist(), strict=True)
    return sorted(files)
