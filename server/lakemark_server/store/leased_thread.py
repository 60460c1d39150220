"""Background threads whose rounds run in one of all processes that share a store."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import structlog

from lakemark_core.errors import LakemarkError
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import Store
from lakemark_server.store.leases import Lease, LeaseLost, Leases

K = TypeVar("K", bound=Hashable)

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


class LeasedThreads(Generic[K]):
    """Keeps a leased thread for each thing that there is to do, between ``start`` and ``stop``.

    ``look`` says every ``interval_s`` what there is: by a key that is another one as soon as the thread has to be, how
    to make each thread; None: nothing has changed. It may raise LakemarkError. ``name`` is that of the things.
    """

    def __init__(
        self, name: str, look: Callable[[], Mapping[K, Callable[[], LeasedThread]] | None], interval_s: float
    ) -> None:
        self._name, self._look, self._interval_s = name, look, interval_s
        self._threads: dict[K, LeasedThread] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends all threads, each after what it is at."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._end(list(self._threads))

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                wanted = self._look()
            except LakemarkError as error:
                _log.warning(f"{self._name} cannot be read; they are tried again", reason=error.message)
                wanted = None
            if wanted is not None:
                self._end([key for key in self._threads if key not in wanted])
                for key in wanted.keys() - self._threads.keys():
                    self._threads[key] = thread = wanted[key]()
                    thread.start()
            self._stopped.wait(self._interval_s)

    def _end(self, keys: Sequence[K]) -> None:
        """All are asked first, so that they end side by side."""
        threads = [self._threads.pop(key) for key in keys]
        for thread in threads:
            thread.ask_to_stop()
        for thread in threads:
            thread.stop()
