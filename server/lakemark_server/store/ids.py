"""Ids of databases and tables: never used twice, and taken in blocks so that processes do not conflict over them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from lakemark_server.kv import Store, Transaction
from lakemark_server.store.keyspace import IDS

_BLOCK = 32


class IdSource:
    """Hands out ids of one kind. Ids left in a block when the process ends are never used."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store = store
        self._key = IDS.key(kind)
        self._lock = threading.Lock()
        self._free: Iterator[int] = iter(())

    def next(self) -> int:
        with self._lock:
            free = next(self._free, None)
            if free is None:
                first = self._store.transact(self._take_block)
                self._free = iter(range(first, first + _BLOCK))
                free = next(self._free)
            return free

    def _take_block(self, tx: Transaction) -> int:
        stored = tx.get(self._key)
        first = int.from_bytes(stored, "little") if stored else 1
        tx.set(self._key, (first + _BLOCK).to_bytes(8, "little"))
        return first
