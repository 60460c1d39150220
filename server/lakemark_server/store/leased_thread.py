"""A background thread whose rounds run in one of all processes that share a store."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from abc import ABC, abstractmethod

import structlog

from lakemark_core.errors import LakemarkError
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import Store
from lakemark_server.store.leases import Lease, LeaseLost, Leases

_log = structlog.get_logger(__name__)


class LeasedThread(ABC):
    """A thread between ``start`` and ``stop``, which waits for a round in progress.

    ``ttl_ms``: after that time without a round another process takes over; ``lost`` is logged then.
    """

    def __init__(self, store: Store, clock: ClockMs, *, name: str, lease: str, ttl_ms: int, lost: str) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._store = store
        self._leases = Leases(store, clock)
        self._lease_name, self._ttl_ms, self._lost = lease, ttl_ms, lost
        self._lease: Lease | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Lets ``stop`` have less to wait for."""
        self._stopped.set()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    @abstractmethod
    def _rounds(self) -> None:
        """Runs rounds until ``_stopped`` is set. Must not raise LakemarkError."""

    def _hold(self) -> Lease | None:
        """The lease for one more round; None while another process has it. Raises LakemarkError."""
        if self._lease is not None:
            try:
                self._lease = self._leases.renew(self._lease, self._ttl_ms)
            except LeaseLost as error:
                _log.info(self._lost, reason=error.message)
                self._lease = None
        if self._lease is None:
            self._lease = self._leases.acquire(self._lease_name, self.holder, self._ttl_ms)
        return self._lease

    def _run(self) -> None:
        self._rounds()
        if self._lease is not None:
            try:
                self._leases.release(self._lease)
            except LakemarkError as error:
                _log.warning("the lease was not given back; it runs out by itself", reason=error.message)
