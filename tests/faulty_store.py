"""A store that fails on purpose: any backend behind a seeded source of faults.

What happens at the nth call depends only on the seed and on n, so a failing seed of a test with one thread repeats
exactly. ``Store.read`` and every read inside a transaction may fail or be delayed. A commit may be refused, or its
outcome may be lost after it happened or did not. The process may die before or after any call.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from typing import TypeVar

from lakemark_core.errors import Unavailable
from lakemark_server.kv import CommitUnknownResult, Conflict, KeyValue, ReadTransaction, Store, TransactionTooOld
from lakemark_server.kv.api import KEYS_END, Export, OpenTransaction, Transaction
from lakemark_server.kv.retry import run_transaction

T = TypeVar("T")


class Crashed(BaseException):
    """The process died here. A BaseException, because no error handler would run in a dead process."""


@dataclass(frozen=True)
class Rates:
    """The probability of each fault. The first four are faults of reads, the others of commits; ``crash`` is of
    both."""

    unavailable: float = 0.0
    too_old: float = 0.0
    delay: float = 0.0
    crash_reading: float = 0.0
    conflict: float = 0.0
    expired: float = 0.0
    unknown_lost: float = 0.0
    unknown_done: float = 0.0
    disk_full: float = 0.0
    crash_before: float = 0.0
    crash_after: float = 0.0

    @classmethod
    def of(cls, rate: float) -> Rates:
        """Faults of a commit have this rate, and those of a read a tenth of it, because there are more reads."""
        reading = dict.fromkeys(("unavailable", "too_old", "delay", "crash_reading"), rate / 10)
        return cls(**({field.name: rate for field in fields(cls)} | reading))


class Faults:
    """Decides what happens at each call, and records it. Thread-safe."""

    READING = ("unavailable", "too_old", "delay", "crash_reading")
    COMMITTING = ("conflict", "expired", "unknown_lost", "unknown_done", "disk_full", "crash_before", "crash_after")

    def __init__(self, seed: int, rates: Rates) -> None:
        self.seed, self.rates = seed, rates
        self.hits: list[tuple[int, str]] = []
        self._calls = 0
        self._quiet = 0
        self._lock = threading.Lock()

    def next(self, kinds: Sequence[str]) -> str:
        """One of ``kinds``, or "" if this call succeeds."""
        with self._lock:
            if self._quiet:
                return ""
            self._calls += 1
            digest = hashlib.blake2b(b"%d/%d" % (self.seed, self._calls), digest_size=8).digest()
            drawn = int.from_bytes(digest, "big") / 2**64
            for kind in kinds:
                drawn -= getattr(self.rates, kind)
                if drawn < 0:
                    self.hits.append((self._calls, kind))
                    return kind
            return ""

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """No faults in this block, and no call is counted: for tests that inspect the store."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def counts(self) -> Counter[str]:
        return Counter(kind for _, kind in self.hits)


class FaultyStore(Store):
    """``inner`` with faults.

    After a crash every call raises Crashed, on open transactions too, until ``reopen``. ``close`` leaves ``inner``
    open: it belongs to the test.
    """

    name = "faulty"

    def __init__(self, inner: Store, faults: Faults) -> None:
        self.inner = inner
        self.faults = faults
        self.life = 0
        self.dead = False

    def read(self, body: Callable[[ReadTransaction], T]) -> T:
        self.strike(self.life)
        life = self.life
        return self.inner.read(lambda tx: body(_FaultyReads(self, tx, life)))

    def transact(self, body: Callable[[Transaction], T], *, attempts_max: int = 50) -> T:
        return run_transaction(self.begin, body, attempts_max, sleep=lambda seconds: None)

    def begin(self) -> OpenTransaction:
        self.strike(self.life)
        return _FaultyTransaction(self, self.inner.begin(), self.life)

    def wait_for_change(self, key: bytes, seen: bytes | None, timeout_s: float) -> bool:
        self.strike(self.life)
        return self.inner.wait_for_change(key, seen, timeout_s)

    def export(self, begin: bytes = b"", end: bytes = KEYS_END) -> AbstractContextManager[Export]:
        self.strike(self.life)
        return self.inner.export(begin, end)

    def close(self) -> None:
        self.dead = True

    def reopen(self) -> None:
        """Starts the next life. Transactions of the crashed one stay dead."""
        self.life += 1
        self.dead = False

    def crash(self) -> Crashed:
        self.dead = True
        return Crashed(f"seed {self.faults.seed}, fault {len(self.faults.hits)}")

    def check_alive(self, life: int) -> None:
        if self.dead or life != self.life:
            raise Crashed("the process is dead")

    def strike(self, life: int) -> None:
        """Called before a read."""
        self.check_alive(life)
        match self.faults.next(Faults.READING):
            case "unavailable":
                raise Unavailable("injected: the store does not answer; nothing was applied")
            case "too_old":
                raise TransactionTooOld("injected: the transaction is too old; nothing was applied")
            case "delay":
                os.sched_yield()
            case "crash_reading":
                raise self.crash()


class _FaultyReads:
    def __init__(self, store: FaultyStore, inner: ReadTransaction, life: int) -> None:
        self._store, self._inner, self._life = store, inner, life

    def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        self._store.strike(self._life)
        return self._inner.get(key, snapshot=snapshot)

    def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]:
        self._store.strike(self._life)
        return self._inner.get_many(keys, snapshot=snapshot)

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[KeyValue]:
        self._store.strike(self._life)
        return self._inner.get_range(begin, end, limit=limit, reverse=reverse, snapshot=snapshot)

    def version(self) -> int:
        self._store.strike(self._life)
        return self._inner.version()


class _FaultyTransaction(_FaultyReads):
    def __init__(self, store: FaultyStore, inner: OpenTransaction, life: int) -> None:
        super().__init__(store, inner, life)
        self._writing = inner
        self._changed = False

    @property
    def size_bytes(self) -> int:
        return self._writing.size_bytes

    def set(self, key: bytes, value: bytes) -> None:
        self._changed = True
        self._writing.set(key, value)

    def clear(self, key: bytes) -> None:
        self._changed = True
        self._writing.clear(key)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        self._changed = True
        self._writing.clear_range(begin, end)

    def add(self, key: bytes, delta: int) -> None:
        self._changed = True
        self._writing.add(key, delta)

    def set_versionstamped_key(self, prefix: bytes, number: int, value: bytes) -> None:
        self._changed = True
        self._writing.set_versionstamped_key(prefix, number, value)

    def set_versionstamped_value(self, key: bytes, rest: bytes) -> None:
        self._changed = True
        self._writing.set_versionstamped_value(key, rest)

    def add_read_conflict(self, begin: bytes, end: bytes) -> None:
        self._store.strike(self._life)
        self._writing.add_read_conflict(begin, end)

    def add_write_conflict(self, begin: bytes, end: bytes) -> None:
        self._changed = True
        self._writing.add_write_conflict(begin, end)

    def commit(self) -> None:
        self._store.check_alive(self._life)
        # A commit without writes cannot fail.
        fault = self._store.faults.next(Faults.COMMITTING) if self._changed else ""
        match fault:
            case "conflict":
                raise Conflict("injected: another transaction wrote what this one had read; nothing was applied")
            case "expired":
                raise TransactionTooOld("injected: the transaction is too old; nothing was applied")
            case "disk_full":
                raise Unavailable("injected: the store's disk is full; nothing was applied")
            case "unknown_lost":
                raise CommitUnknownResult("injected: the connection was lost while committing")
            case "crash_before":
                raise self._store.crash()
        self._writing.commit()
        match fault:
            case "unknown_done":
                raise CommitUnknownResult("injected: the connection was lost while committing")
            case "crash_after":
                raise self._store.crash()

    def cancel(self) -> None:
        self._writing.cancel()
