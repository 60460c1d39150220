"""Limits the rate and the concurrency of each tenant's requests in this process, counted in memory.

Writes leave the last eighth of both to reads, so that a flood of writes cannot keep anybody from reading. Heartbeats
are not counted at all: a tenant that asks for too much is told to wait, but does not lose its open instants.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from lakemark_core.errors import Overloaded
from lakemark_server.admission.bucket import TokenBucket
from lakemark_server.admission.limits import Limits
from lakemark_server.admission.ranks import RESERVED_PARTS, Rank, share_of

TENANTS_MAX: Final = 10_000
RETRY_MS_MIN: Final = 20
RETRY_MS_MAX: Final = 5_000
_SERVICE_S_FIRST: Final = 0.02
_SMOOTHING: Final = 0.1


class Traffic:
    """The requests of one tenant in this process. Changed under the lock of ``Tenants``."""

    __slots__ = ("bucket", "catalog", "limits", "refused", "running", "service_s")

    def __init__(self, catalog: str, limits: Limits, now_s: float) -> None:
        self.catalog = catalog
        self.limits = limits
        self.bucket = TokenBucket(limits.requests_per_second, limits.request_burst, now_s)
        self.running = 0
        self.refused = 0
        self.service_s = _SERVICE_S_FIRST  # how long a request takes, as a running mean


Entered: TypeAlias = tuple[Traffic, float]
"""A request that was let in: its tenant's traffic, and when it began."""


class Tenants:
    """Thread-safe. ``limits_of`` gives a catalog's limits; ``clock_s`` never goes back."""

    def __init__(self, limits_of: Callable[[str], Limits], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._limits_of = limits_of
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._traffic: dict[str, Traffic] = {}

    def enter(self, catalog: str, rank: Rank) -> Entered:
        """Counts a request until its entry is passed to ``leave``. Raises Overloaded.

        ``catalog`` is in lower case and not "". Vital requests are not counted: they are never refused.
        """
        limits = self._limits_of(catalog)
        now_s = self._clock_s()
        with self._lock:
            traffic = self._traffic.get(catalog)
            if traffic is None:
                traffic = self._new(catalog, limits, now_s)
            elif traffic.limits is not limits:
                traffic.limits = limits
                traffic.bucket.reshape(limits.requests_per_second, limits.request_burst, now_s)
            if traffic.running >= share_of(limits.concurrent_requests, rank):
                traffic.refused += 1
                raise _busy(traffic)
            wait_s = traffic.bucket.take(now_s, _reserve(limits) if rank is Rank.WRITE else 0.0)
            if wait_s:
                traffic.refused += 1
                raise _too_fast(traffic, wait_s)
            traffic.running += 1
        return traffic, now_s

    def pass_through(self, catalog: str, rank: Rank) -> bool:
        """Counts a request that is answered at once. False: it would be refused; then it was not counted at all."""
        limits = self._limits_of(catalog)
        with self._lock:
            traffic = self._traffic.get(catalog)
            if traffic is None or traffic.limits is not limits:  # ``enter`` makes and changes them
                return False
            if traffic.running >= share_of(limits.concurrent_requests, rank):
                return False
            return not traffic.bucket.take(self._clock_s(), _reserve(limits) if rank is Rank.WRITE else 0.0)

    def leave(self, entered: Entered) -> None:
        traffic, since_s = entered
        taken_s = self._clock_s() - since_s
        with self._lock:
            traffic.running -= 1
            traffic.service_s += (taken_s - traffic.service_s) * _SMOOTHING

    def seen(self, catalog: str) -> tuple[int, int]:
        """How many requests run now, and how many were refused since the process started."""
        with self._lock:
            traffic = self._traffic.get(catalog)
            return (traffic.running, traffic.refused) if traffic else (0, 0)

    def _new(self, catalog: str, limits: Limits, now_s: float) -> Traffic:
        if len(self._traffic) >= TENANTS_MAX:
            idle = next((name for name, traffic in self._traffic.items() if not traffic.running), None)
            if idle is None:
                raise overloaded("requests of too many catalogs run at once", RETRY_MS_MAX)
            del self._traffic[idle]
        traffic = self._traffic[catalog] = Traffic(catalog, limits, now_s)
        return traffic


def _reserve(limits: Limits) -> float:
    """How many tokens writes leave in the bucket: those of an eighth of a second, but at least one."""
    if limits.request_burst < 2:
        return 0.0
    return max(1.0, min(limits.requests_per_second, limits.request_burst) // RESERVED_PARTS)


def overloaded(what: str, retry_ms: float, **details: str) -> Overloaded:
    """The error that says when to come back: after ``retry_ms``, within bounds, and randomly up to a quarter later."""
    bounded = min(max(retry_ms, RETRY_MS_MIN), RETRY_MS_MAX)
    spread = int(bounded * random.uniform(1.0, 1.25))  # noqa: S311 - keeps those sent away from coming back together
    return Overloaded(f"{what}; try again in {spread} ms", retry_after_ms=str(spread), **details)


def _busy(traffic: Traffic) -> Overloaded:
    allowed = traffic.limits.concurrent_requests
    return overloaded(
        f"{traffic.running} requests of catalog {traffic.catalog!r} wait or run in this process; its quota of "
        f"concurrent requests is {allowed}, of which some are for reads only",
        traffic.service_s * 1000,
        catalog=traffic.catalog,
        limit="concurrent_requests",
        allowed=str(allowed),
    )


def _too_fast(traffic: Traffic, wait_s: float) -> Overloaded:
    rate = traffic.limits.requests_per_second
    return overloaded(
        f"catalog {traffic.catalog!r} sends more than its quota of {rate:g} requests a second for each process",
        wait_s * 1000,
        catalog=traffic.catalog,
        limit="requests_per_second",
        allowed=f"{rate:g}",
    )
