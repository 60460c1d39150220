"""Leases: work that must be done once, by one of many processes, any of which may die or hang at any moment.

A process that hangs does not know that its lease ran out. So each lease has a *fencing token*, which only ever grows,
and each transaction of its holder also runs ``check``: once another process holds the lease, the write fails (Gray and
Cheriton, Leases, 1989; Burrows, Chubby, 2006). Clocks decide only how soon a silent holder is replaced, not whether two
holders can write side by side.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from lakemark_core.errors import FailedPrecondition, InvalidArgument
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.kv import OpenTransaction, ReadTransaction, Store, Transaction
from lakemark_server.kv.api import KEYS_END
from lakemark_server.store.keyspace import LEASES

if TYPE_CHECKING:
    from lakemark_server.kv.api import Export

HOLDER_CHARS_MAX: Final = 200
_LAYOUT: Final = struct.Struct("<Qq")  # token, when it runs out in ms (0: released); the holder's name follows
T = TypeVar("T")


class LeaseLost(FailedPrecondition):
    """Another holder has the lease now, or it was released. Nothing was applied."""

    code = "lease_lost"


@dataclass(frozen=True, slots=True)
class Lease:
    """``holder`` has the lease until ``expires_ms``, and after that until another holder takes it."""

    name: str
    holder: str
    token: int
    expires_ms: int


class Leases:
    """Thread-safe. ``holder`` must be a name that no other process and no other thread uses."""

    def __init__(self, store: Store, clock: ClockMs = now_ms) -> None:
        self._store = store
        self._clock = clock

    def acquire(self, name: str, holder: str, ttl_ms: int) -> Lease | None:
        """The lease, with a token greater than any before; None if another holder has it.

        A holder that has the lease already gets it with a new token: after an unknown outcome it can simply ask again.
        """
        if not 0 < len(holder) <= HOLDER_CHARS_MAX:
            raise InvalidArgument(f"the holder of a lease has a name of 1 to {HOLDER_CHARS_MAX} characters")
        if ttl_ms <= 0:
            raise InvalidArgument("a lease must last for some time")

        def body(tx: Transaction) -> Lease | None:
            now = self._clock()
            last = find(tx, name)
            if last is not None and last.holder != holder and now <= last.expires_ms:
                return None
            return _put(tx, Lease(name, holder, 1 if last is None else last.token + 1, now + ttl_ms))

        return self._store.transact(body)

    def renew(self, lease: Lease, ttl_ms: int) -> Lease:
        """Extends the lease, with the same token, even if it has run out and nobody took it. Raises LeaseLost."""

        def body(tx: Transaction) -> Lease:
            check(tx, lease)
            return _put(tx, Lease(lease.name, lease.holder, lease.token, self._clock() + ttl_ms))

        return self._store.transact(body)

    def release(self, lease: Lease) -> None:
        """Gives the lease back, so that another holder can have it at once. Nothing happens if it was lost."""

        def body(tx: Transaction) -> None:
            last = find(tx, lease.name)
            if last is not None and last.token == lease.token:
                _put(tx, Lease(lease.name, "", lease.token, 0))

        self._store.transact(body)


def find(tx: ReadTransaction, name: str) -> Lease | None:
    """The lease as it was last given out; None if it never was. Its holder is "" once it was released."""
    stored = tx.get(LEASES.key(name))
    if stored is None:
        return None
    token, expires_ms = _LAYOUT.unpack_from(stored)
    return Lease(name, stored[_LAYOUT.size :].decode(), token, expires_ms)


def listed(tx: ReadTransaction, limit: int) -> list[Lease]:
    """At most so many leases as they were last given out, in order of name."""
    leases = []
    for key, stored in tx.get_range(*LEASES.range(), limit=limit, snapshot=True):
        token, expires_ms = _LAYOUT.unpack_from(stored)
        leases.append(Lease(str(LEASES.unpack(key)[-1]), stored[_LAYOUT.size :].decode(), token, expires_ms))
    return leases


def check(tx: Transaction, lease: Lease) -> None:
    """Lets the transaction commit only if the lease is still held then. Raises LeaseLost."""
    last = find(tx, lease.name)
    if last is None or (last.token, last.holder) != (lease.token, lease.holder):
        now = "nobody" if last is None or not last.holder else last.holder
        raise LeaseLost(f"{lease.holder} has lost the lease {lease.name!r}; {now} holds it now", lease=lease.name)


def revoke(tx: Transaction, name: str, token_min: int = 0) -> None:
    """Takes the lease from whoever holds it. Every later token is greater than any before, and than ``token_min``."""
    last = find(tx, name)
    _put(tx, Lease(name, "", max(token_min, 0 if last is None else last.token + 1), 0))


def forget(tx: Transaction, name: str) -> None:
    """Removes a lease that nobody will ask for again. If somebody does, ``revoke`` has to keep old tokens out."""
    tx.clear(LEASES.key(name))


def _put(tx: Transaction, lease: Lease) -> Lease:
    tx.set(LEASES.key(lease.name), _LAYOUT.pack(lease.token, lease.expires_ms) + lease.holder.encode())
    return lease


class FencedStore(Store):
    """A store whose transactions all check a lease: what is built on it writes only while the lease is held."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self.name = store.name
        self._store = store
        self._lease = lease

    def read(self, body: Callable[[ReadTransaction], T]) -> T:
        return self._store.read(body)

    def transact(self, body: Callable[[Transaction], T], *, attempts_max: int = 50) -> T:
        def fenced(tx: Transaction) -> T:
            check(tx, self._lease)
            return body(tx)

        return self._store.transact(fenced, attempts_max=attempts_max)

    def begin(self) -> OpenTransaction:
        transaction = self._store.begin()
        try:
            check(transaction, self._lease)
        except BaseException:
            transaction.cancel()
            raise
        return transaction

    def wait_for_change(self, key: bytes, seen: bytes | None, timeout_s: float) -> bool:
        return self._store.wait_for_change(key, seen, timeout_s)

    def export(self, begin: bytes = b"", end: bytes = KEYS_END) -> AbstractContextManager[Export]:
        return self._store.export(begin, end)

    def close(self) -> None:
        """Does nothing: the store below belongs to somebody else."""
