"""Wakes callers that wait for a key when this process commits a change of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .buffer import PendingTransaction


class Changes:
    """The callers that wait for changes. Thread-safe. Costs a commit nothing while nobody waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[threading.Event, bytes] = {}

    @contextmanager
    def of(self, key: bytes) -> Iterator[threading.Event]:
        """An event that is set at each change of ``key``, and by ``wake_all``."""
        event = threading.Event()
        with self._lock:
            self._waiting[event] = key
        try:
            yield event
        finally:
            with self._lock:
                del self._waiting[event]

    def announce(self, transaction: PendingTransaction) -> None:
        """Wakes callers whose keys may have changed: the transaction was committed, or may have been."""
        writes, stamped = transaction.writes, transaction.stamps.values
        if self._waiting:
            with self._lock:
                for event, key in self._waiting.items():
                    if key in writes.points or key in stamped or writes.is_cleared(key):
                        event.set()

    def wake_all(self) -> None:
        with self._lock:
            for event in self._waiting:
                event.set()
