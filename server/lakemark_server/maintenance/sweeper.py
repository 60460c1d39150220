"""Runs rounds of housekeeping in one of all processes that share a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from lakemark_core.errors import LakemarkError
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import Store
from lakemark_server.metrics.process import SWEEPS, WRITERS_LOST
from lakemark_server.store.leased_thread import LeasedThread
from lakemark_server.store.leases import FencedStore

LEASE: Final = "sweep"
_ROUNDS_MISSED_MAX: Final = 3

Round = Callable[[], Iterable[tuple[int, int]]]
"""Rolls back writers that are lost. Returns (table id, instant) of each."""

Sweep = Callable[[Store], Round]
"""Makes the rounds of one lease. Its store is fenced; the rounds use no other."""

_log = structlog.get_logger(__name__)


class Sweeper(LeasedThread):
    """A process that dies or hangs is replaced after three rounds."""

    def __init__(self, store: Store, clock: ClockMs, interval_s: float, sweep: Sweep) -> None:
        super().__init__(
            store,
            clock,
            name="sweeper",
            lease=LEASE,
            ttl_ms=max(1, int(interval_s * 1_000 * _ROUNDS_MISSED_MAX)),
            lost="another process looks for lost writers now",
        )
        self._interval_s = interval_s
        self._sweep = sweep
        self._round: tuple[int, Round] | None = None  # made for the lease with this token

    def once(self) -> list[tuple[int, int]]:
        """Runs one round, unless another process has the lease. Raises LakemarkError."""
        lease = self._hold()
        if lease is None:
            self._round = None
            return []
        if self._round is None or self._round[0] != lease.token:
            self._round = lease.token, self._sweep(FencedStore(self._store, lease))
        lost = list(self._round[1]())
        SWEEPS.add("done")
        WRITERS_LOST.add(by=len(lost))
        return lost

    def _rounds(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                for table_id, instant in self.once():
                    _log.info("rolled back a lost writer", table_id=table_id, instant=instant)
            except LakemarkError as error:
                SWEEPS.add("failed")
                _log.warning("looking for lost writers failed; it is tried again", reason=error.message)
