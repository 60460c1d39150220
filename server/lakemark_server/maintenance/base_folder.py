"""Writes new bases of branches when they are due, in one of all processes that share a store, beside its requests."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import structlog

from lakemark_core.errors import LakemarkError, TableNotFound
from lakemark_proto.store.v1.store_pb2 import BaseRecord, HeadRecord
from lakemark_server.catalog import lake
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import Store, keys_below
from lakemark_server.snapshots.base_builds import GRACE_MS, Folding, Thresholds
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.keyspace import HEADS
from lakemark_server.store.leased_thread import LeasedThread
from lakemark_server.store.leases import FencedStore, Lease

LEASE: Final = "fold"
_TTL_MS: Final = 60_000
_HEADS_A_READ: Final = 1_000
# Rounds take at most this share of the time.
_SHARE_MAX: Final = 0.1
_NICE: Final = 10

_log = structlog.get_logger(__name__)


class BaseFolder(LeasedThread):
    """Folds branches that have changed, one table after the other."""

    def __init__(
        self,
        store: Store,
        snapshots: Snapshots,
        clock: ClockMs,
        interval_s: float,
        thresholds: Thresholds,
        grace_ms: int = GRACE_MS,
    ) -> None:
        super().__init__(store, clock, name="folder", lease=LEASE, ttl_ms=_TTL_MS, lost="another process folds now")
        self._snapshots, self._clock = snapshots, clock
        self._interval_s = interval_s
        self._thresholds = thresholds
        self._grace_ms = grace_ms
        self._seen: dict[tuple[int, str], int] = {}  # table and branch: the version at which it was looked at
        self._sweeping: set[int] = set()  # tables with bases that wait to be removed

    def once(self) -> list[BaseRecord]:
        """Runs one round over all tables that have changed, unless another process has the lease.

        Returns the new bases. Raises LakemarkError.
        """
        published: list[BaseRecord] = []
        changed: dict[int, dict[tuple[int, str], int]] = {}
        seen: dict[tuple[int, str], int] = {}
        if self._hold() is None:
            return published
        for table_id, key, version in self._heads():
            name = table_id, key
            if self._seen.get(name) == version:
                seen[name] = version
            else:
                changed.setdefault(table_id, {})[name] = version
        self._seen = seen  # without tables and branches that were dropped
        for table_id in sorted({*changed, *self._sweeping}):
            if self._stopped.is_set() or (lease := self._hold()) is None:
                break
            published += self._fold(table_id, lease)
            seen |= changed.get(table_id, {})
        return published

    def _fold(self, table_id: int, lease: Lease) -> list[BaseRecord]:
        folding = Folding(
            FencedStore(self._store, lease), self._snapshots, self._clock, self._thresholds, self._grace_ms
        )
        try:
            table = self._store.read(lambda tx: lake.load(tx, table_id))
            published = self._snapshots.again(lambda: folding.run(table))
        except TableNotFound:  # it was dropped
            self._sweeping.discard(table_id)
            return []
        (self._sweeping.add if folding.waiting(table_id) else self._sweeping.discard)(table_id)
        if published:
            self._snapshots.forget()  # the next fold begins with what this one has written
            pa.default_memory_pool().release_unused()
        for base in published:
            _log.info("new base", table=table.name, version=base.version, files=base.files)
        return published

    def _heads(self) -> Iterator[tuple[int, str, int]]:
        for (table_id, branch), value in keys_below(self._store, HEADS, page=_HEADS_A_READ):
            if isinstance(table_id, int):
                yield table_id, str(branch), HeadRecord.FromString(value).version

    def _rounds(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # where threads have priorities of their own: Linux
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        pause_s = self._interval_s
        while not self._stopped.wait(pause_s):
            began = time.monotonic()
            try:
                self.once()
            except LakemarkError as error:
                _log.warning("folding failed; it is tried again", reason=error.message)
            pause_s = max(self._interval_s, (time.monotonic() - began) / _SHARE_MAX)
