"""Folds a store that no service has open: the work of the service's background thread, done at once and measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from lakemark_server.catalog import lake
from lakemark_server.context.clock import now_ms
from lakemark_server.kv import ReadTransaction, open_store
from lakemark_server.snapshots.base_builds import Folding, Thresholds
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.keyspace import BASE_INDEXES, BASE_PAGES


@dataclass(frozen=True)
class Fold:
    version: int
    files: int
    seconds: float
    bytes: int  # of the pages and the index that it wrote


def fold_if_due(work_dir: Path, table: str) -> Fold | None:
    """What the background thread would do with its default thresholds; None: nothing."""
    return _fold(work_dir, table, Thresholds())


def fold(work_dir: Path, table: str) -> Fold:
    """Folds a base of the latest version. AssertionError: it has one already."""
    folded = _fold(work_dir, table, Thresholds(versions=1))
    assert folded is not None, "nothing is new"
    return folded


def _fold(work_dir: Path, name: str, thresholds: Thresholds) -> Fold | None:
    store = open_store(f"sqlite:///{work_dir}/lakemark.db")
    try:
        table = store.read(lambda tx: lake.get(tx, "hive", "default", name))
        began = time.perf_counter()
        bases = Folding(store, Snapshots(store), now_ms, thresholds).run(table)
        took = time.perf_counter() - began
        if not bases:
            return None
        (base,) = bases
        size = store.read(lambda tx: _bytes(tx, table.table_id, base.base_id))
        return Fold(base.version, base.files, round(took, 3), size)
    finally:
        store.close()


def _bytes(tx: ReadTransaction, table_id: int, base_id: int) -> int:
    spaces = (BASE_PAGES, BASE_INDEXES)
    return sum(len(value) for space in spaces for _, value in tx.get_range(*space.range(table_id, base_id)))
