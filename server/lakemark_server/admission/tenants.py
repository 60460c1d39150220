"""Rate and concurrency of each tenant, in this process: counted in memory, forgotten with it.

Of both a share is reserved: what changes things leaves the last eighth to what only reads, so that a flood of writes
keeps nobody from looking. Heartbeats are not counted at all: a tenant that asks for too much is told to wait, and does
not lose its open instants for it.
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


class Tenant:
    """What one tenant does here now. Changed under the lock of ``Tenants``."""

    __slots__ = ("bucket", "catalog", "limits", "refused", "running", "service_s")

    def __init__(self, catalog: str, limits: Limits, now_s: float) -> None:
        self.catalog = catalog
        self.limits = limits
        self.bucket = TokenBucket(limits.requests_per_second, limits.request_burst, now_s)
        self.running = 0
        self.refused = 0
        self.service_s = _SERVICE_S_FIRST  # a running mean


Entered: TypeAlias = tuple[Tenant, float]
"""A request that was let in, and when."""


class Tenants:
    """Thread-safe. ``limits_of`` gives a catalog's limits; ``clock_s`` never goes back."""

    def __init__(self, limits_of: Callable[[str], Limits], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._limits_of = limits_of
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._tenants: dict[str, Tenant] = {}

    def enter(self, catalog: str, rank: Rank) -> Entered:
        """Counts a request until ``leave`` is given what this gives. Raises Overloaded.

        ``catalog`` in lower case, not ""; not for VITAL, which is never refused.
        """
        limits = self._limits_of(catalog)
        now_s = self._clock_s()
        with self._lock:
            tenant = self._tenants.get(catalog)
            if tenant is None:
                tenant = self._new(catalog, limits, now_s)
            elif tenant.limits is not limits:
                tenant.limits = limits
                tenant.bucket.reshape(limits.requests_per_second, limits.request_burst, now_s)
            if tenant.running >= share_of(limits.concurrent_requests, rank):
                tenant.refused += 1
                raise _busy(tenant)
            wait_s = tenant.bucket.take(now_s, _reserve(limits) if rank is Rank.WRITE else 0.0)
            if wait_s:
                tenant.refused += 1
                raise _too_fast(tenant, wait_s)
            tenant.running += 1
        return tenant, now_s

    def leave(self, entered: Entered) -> None:
        tenant, since_s = entered
        taken_s = self._clock_s() - since_s
        with self._lock:
            tenant.running -= 1
            tenant.service_s += (taken_s - tenant.service_s) * _SMOOTHING

    def seen(self, catalog: str) -> tuple[int, int]:
        """Requests that run now, and those refused since the process was started."""
        with self._lock:
            tenant = self._tenants.get(catalog)
            return (tenant.running, tenant.refused) if tenant else (0, 0)

    def _new(self, catalog: str, limits: Limits, now_s: float) -> Tenant:
        if len(self._tenants) >= TENANTS_MAX:
            idle = next((name for name, tenant in self._tenants.items() if not tenant.running), None)
            if idle is None:
                raise overloaded("requests of too many catalogs run at once", RETRY_MS_MAX)
            del self._tenants[idle]
        tenant = self._tenants[catalog] = Tenant(catalog, limits, now_s)
        return tenant


def _reserve(limits: Limits) -> float:
    """Tokens that writes leave in the bucket: those of an eighth of a second, at least one."""
    if limits.request_burst < 2:
        return 0.0
    return max(1.0, min(limits.requests_per_second, limits.request_burst) // RESERVED_PARTS)


def overloaded(what: str, retry_ms: float, **details: str) -> Overloaded:
    """Says when to come back: ``retry_ms``, within reason, and somewhat later for some than for others."""
    bounded = min(max(retry_ms, RETRY_MS_MIN), RETRY_MS_MAX)
    spread = int(bounded * random.uniform(1.0, 1.25))  # noqa: S311 - keeps those sent away from coming back together
    return Overloaded(f"{what}; try again in {spread} ms", retry_after_ms=str(spread), **details)


def _busy(tenant: Tenant) -> Overloaded:
    allowed = tenant.limits.concurrent_requests
    return overloaded(
        f"{tenant.running} requests of catalog {tenant.catalog!r} wait or run in this process; its quota of concurrent "
        f"requests is {allowed}, of which some are for reads only",
        tenant.service_s * 1000,
        catalog=tenant.catalog,
        limit="concurrent_requests",
        allowed=str(allowed),
    )


def _too_fast(tenant: Tenant, wait_s: float) -> Overloaded:
    rate = tenant.limits.requests_per_second
    return overloaded(
        f"catalog {tenant.catalog!r} sends more than its quota of {rate:g} requests a second for each process",
        wait_s * 1000,
        catalog=tenant.catalog,
        limit="requests_per_second",
        allowed=f"{rate:g}",
    )
