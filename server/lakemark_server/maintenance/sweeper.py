"""Runs rounds of housekeeping in one of all processes that share a store."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from lakemark_core.errors import LakemarkError
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import Store
from lakemark_server.store.leases import FencedStore, Lease, LeaseLost, Leases

LEASE: Final = "sweep"
_ROUNDS_MISSED_MAX: Final = 3

Round = Callable[[], Iterable[tuple[int, int]]]
"""Rolls back writers that are lost. Returns (table id, instant) of each."""

Sweep = Callable[[Store], Round]
"""Makes the rounds of one lease. Its store is fenced; the rounds use no other."""

_log = structlog.get_logger(__name__)


class Sweeper:
    """A thread between ``start`` and ``stop``. A process that dies or hangs is replaced after three rounds."""

    def __init__(self, store: Store, clock: ClockMs, interval_s: float, sweep: Sweep) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._store = store
        self._leases = Leases(store, clock)
        self._interval_s = interval_s
        self._ttl_ms = max(1, int(interval_s * 1_000 * _ROUNDS_MISSED_MAX))
        self._sweep = sweep
        self._lease: Lease | None = None
        self._round: Round | None = None  # made for the lease
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def once(self) -> list[tuple[int, int]]:
        """Runs one round, unless another process has the lease. Raises LakemarkError."""
        self._hold()
        return [] if self._round is None else list(self._round())

    def _hold(self) -> None:
        if self._lease is not None:
            try:
                self._lease = self._leases.renew(self._lease, self._ttl_ms)
            except LeaseLost as error:
                _log.info("another process looks for lost writers now", reason=error.message)
                self._lease = self._round = None
        if self._lease is None:
            self._lease = self._leases.acquire(LEASE, self.holder, self._ttl_ms)
            if self._lease is not None:
                self._round = self._sweep(FencedStore(self._store, self._lease))

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                for table_id, instant in self.once():
                    _log.info("rolled back a lost writer", table_id=table_id, instant=instant)
            except LakemarkError as error:
                _log.warning("looking for lost writers failed; it is tried again", reason=error.message)
        if self._lease is not None:
            try:
                self._leases.release(self._lease)
            except LakemarkError as error:
                _log.warning("the lease was not given back; it runs out by itself", reason=error.message)
