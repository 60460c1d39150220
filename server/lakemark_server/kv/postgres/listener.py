"""Learns of the commits of other processes at once, by PostgreSQL's LISTEN and NOTIFY."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final

import psycopg

from lakemark_core.errors import LakemarkError

_LOOK_S: Final = 0.5  # how soon it notices that it was stopped
_RETRY_S: Final = 1.0


def channel(log_oid: int) -> str:
    """On which the processes of one store tell each other that they have committed."""
    return f"lakemark_{log_oid}"


class PostgresListener:
    """Calls ``wake`` after each commit of any process, perhaps once for several, from a thread with a connection of its
    own; both begin with the first ``start``. ``connect`` makes the connection.

    ``up`` is False as long as it may miss commits. It calls ``wake`` when it is up again.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection], log_oid: int, wake: Callable[[], None]) -> None:
        self._connect, self._wake = connect, wake
        self._channel = channel(log_oid)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self.up = False

    def start(self) -> None:
        """Does nothing if it was started before."""
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stopped.is_set():
                    self._thread = threading.Thread(target=self._run, name="lakemark-listen", daemon=True)
                    self._thread.start()

    def stop(self) -> None:
        """Waits for the end of the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(psycopg.Error, LakemarkError):  # until then, waiting callers look often themselves
                self._listen()
            self.up = False
            self._stopped.wait(_RETRY_S)

    def _listen(self) -> None:
        with self._connect() as connection:
            connection.execute(f"LISTEN {self._channel}")
            self.up = True
            self._wake()
            while not self._stopped.is_set():
                # All that have arrived by now are one.
                if list(connection.notifies(timeout=_LOOK_S, stop_after=1)):
                    self._wake()
