"""Plans in one of all processes that share a store; each transaction checks the lease's token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from lakemark_core.errors import LakemarkError
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import Store
from lakemark_server.optimization.generator import PlanGenerator
from lakemark_server.optimization.tasks import Tasks
from lakemark_server.store.leased_thread import LeasedThread
from lakemark_server.store.leases import FencedStore

LEASE: Final = "optimize"
TTL_MS: Final = 15_000
INTERVAL_S: Final = 1.0

Made = Callable[[Store], PlanGenerator]
"""Makes the generator of one lease. Its store is fenced; it uses no other."""

_log = structlog.get_logger(__name__)


class PlannerThread(LeasedThread):
    """A round each second, unless another process has the lease."""

    def __init__(self, store: Store, clock: ClockMs, made: Made, interval_s: float = INTERVAL_S) -> None:
        super().__init__(
            store, clock, name="optimizer", lease=LEASE, ttl_ms=TTL_MS, lost="another process plans optimizations now"
        )
        self._clock, self._made, self._interval_s = clock, made, interval_s
        self._current: tuple[int, Tasks, PlanGenerator] | None = None  # made for the lease with this token

    def once(self) -> int:
        """One round. Returns how many tasks were planned. Raises LakemarkError."""
        lease = self._hold()
        if lease is None:
            self._current = None
            return 0
        if self._current is None or self._current[0] != lease.token:
            fenced = FencedStore(self._store, lease)
            self._current = lease.token, Tasks(fenced, self._clock), self._made(fenced)
        _, tasks, generator = self._current
        tasks.end_overdue()
        return generator.round()

    def _rounds(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                self.once()
            except LakemarkError as error:
                _log.warning("a round of the optimizer failed; it is tried again", reason=error.message)
            except Exception:
                # Nobody else would plan while this process has the lease.
                _log.exception("a round of the optimizer failed; it is tried again")
