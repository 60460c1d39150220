"""The limits of every tenant: the service's defaults, overridden by the tenant's own limits in the store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from lakemark_core.errors import LakemarkError
from lakemark_proto.v1.admin_pb2 import Quota, TenantQuota
from lakemark_proto.v1.events_pb2 import QUOTA_CHANGED, Event, QuotaDetail
from lakemark_server.admission import usage
from lakemark_server.admission.limits import Limits, changed, merged, to_quota
from lakemark_server.admission.usage import Tenant
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.kv import ReadTransaction, Store, Transaction, next_name
from lakemark_server.store.keyspace import DATABASES, QUOTAS
from lakemark_server.store.mutations import Mutation, Mutations

CACHE_S: Final = 5.0
CACHED_MAX: Final = 10_000
_log = structlog.get_logger(__name__)


class Quotas:
    """Thread-safe. Limits are kept in memory for ``cache_s`` seconds.

    A change made by another process takes effect here when that time is over; a change made here takes effect at once.
    """

    def __init__(
        self,
        store: Store,
        defaults: Limits | None = None,
        *,
        cache_s: float = CACHE_S,
        clock_s: Callable[[], float] = time.monotonic,
        clock: ClockMs = now_ms,
    ) -> None:
        self._store = store
        self._defaults = defaults or Limits()
        self._cache_s = cache_s
        self._clock_s = clock_s
        self._mutations = Mutations(store, clock)
        self._lock = threading.Lock()
        self._cached: dict[str, tuple[float, Limits]] = {}  # by catalog: the limits, and until when they need no read
        self._changes = 0  # made by this process
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="quotas")

    def of(self, catalog: str, tx: ReadTransaction | None = None) -> Limits:
        """The limits of ``catalog``, in lower case and not "".

        Within a transaction pass it as ``tx``: then no other transaction is opened to read them.
        """
        cached = self._cached.get(catalog)
        if cached is not None and self._clock_s() < cached[0]:
            return cached[1]
        if cached is not None:  # this thread reads afresh, and the others go on with what was known
            self._keep(catalog, cached[1])
        own = self._own(tx, catalog) if tx is not None else self._store.read(lambda tx: self._own(tx, catalog))
        limits = merged(self._defaults, own)
        self._keep(catalog, limits)
        return limits

    def known(self, catalog: str) -> Limits:
        """Like ``of``, but never waits: the limits as last read, or the defaults, while another thread reads them."""
        cached = self._cached.get(catalog)
        if cached is not None and self._clock_s() < cached[0]:
            return cached[1]
        limits = cached[1] if cached is not None else self._defaults
        self._keep(catalog, limits)
        with contextlib.suppress(RuntimeError):  # closed
            self._reader.submit(self._read_again, catalog, self._changes)
        return limits

    def close(self) -> None:
        """Ends the thread that reads for ``known``."""
        self._reader.shutdown(cancel_futures=True)

    def _read_again(self, catalog: str, changes: int) -> None:
        try:
            own = self._store.read(lambda tx: self._own(tx, catalog))
        except LakemarkError as error:  # the limits as last read stay in force
            _log.warning("quotas cannot be read; they are tried again", catalog=catalog, reason=error.message)
            return
        if changes == self._changes:  # otherwise this may be older than what is known
            self._keep(catalog, merged(self._defaults, own))

    def tenant(self, catalog: str, tx: ReadTransaction | None = None) -> Tenant:
        """The catalog with its limits; see ``of``."""
        return Tenant(catalog, self.of(catalog, tx))

    def take(self, tx: Transaction, catalog: str, what: str, amount: int = 1) -> None:
        """Counts ``amount`` more of ``what`` (``usage.COUNTED``). Raises QuotaExceeded; nothing is written then."""
        usage.take(tx, self.tenant(catalog, tx), what, amount)

    def get(self, catalog: str) -> TenantQuota:
        return self._store.read(lambda tx: self._described(tx, catalog))

    def set(
        self, catalog: str, changes: Quota, clear: Iterable[str] = (), *, clear_all: bool = False, request_id: str = ""
    ) -> TenantQuota:
        """Changes a tenant's own limits. Raises InvalidArgument for an unknown limit, or one below 0."""
        names = list(clear)

        def change(mutation: Mutation) -> Quota:
            new = changed(self._own(mutation.tx, catalog), changes, names, clear_all=clear_all)
            key = QUOTAS.key(catalog)
            if new.ByteSize():
                mutation.tx.set(key, new.SerializeToString())
            else:
                mutation.tx.clear(key)
            mutation.tell(Event(kind=QUOTA_CHANGED, catalog=catalog, request_id=request_id, quota=QuotaDetail(own=new)))
            return new

        def body(mutation: Mutation) -> TenantQuota:
            mutation.once(request_id, f"SetQuota {catalog}", Quota, change)
            return self._described(mutation.tx, catalog)

        answer = self._mutations.run(body)
        self._changes += 1
        self._keep(catalog, merged(self._defaults, answer.own))
        return answer

    def list(self, after: str = "", limit: int = 0) -> list[TenantQuota]:
        """All tenants that have databases or limits of their own, in order of name, beginning behind ``after``."""

        def body(tx: ReadTransaction) -> list[TenantQuota]:
            tenants: list[TenantQuota] = []
            name = after
            while not limit or len(tenants) < limit:
                following = [next_name(tx, space, name) for space in (QUOTAS, DATABASES)]
                name = min((catalog for catalog in following if catalog is not None), default="")
                if not name:
                    break
                tenants.append(self._described(tx, name))
            return tenants

        return self._store.read(body)

    def _described(self, tx: ReadTransaction, catalog: str) -> TenantQuota:
        own = self._own(tx, catalog)
        limits = to_quota(merged(self._defaults, own))
        return TenantQuota(catalog=catalog, limits=limits, own=own, usage=usage.read(tx, catalog))

    def _keep(self, catalog: str, limits: Limits) -> None:
        with self._lock:
            if len(self._cached) >= CACHED_MAX and catalog not in self._cached:
                self._cached.pop(next(iter(self._cached)))
            self._cached[catalog] = (self._clock_s() + self._cache_s, limits)

    @staticmethod
    def _own(tx: ReadTransaction, catalog: str) -> Quota:
        stored = tx.get(QUOTAS.key(catalog), snapshot=True)
        return Quota() if stored is None else Quota.FromString(stored)
