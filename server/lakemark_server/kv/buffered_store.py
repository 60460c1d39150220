"""What all stores share: transactions that read a snapshot, buffer their writes and are then submitted."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from lakemark_core.errors import FailedPrecondition, LakemarkError
from lakemark_server.context import deadline
from lakemark_server.metrics.process import STORE

from .api import KEYS_END, Export, OpenTransaction, ReadTransaction, Store, StoreClosed, Transaction
from .buffer import BufferedTransaction, PendingTransaction
from .changes import Changes
from .export import Source, exported
from .group_commit import Apply
from .limits import check_range
from .readings import not_whole, noted_read
from .reads import Clock, ReadOnlyTransaction, Snapshot
from .retry import run_transaction

T = TypeVar("T")


def opened_read_only(name: str) -> FailedPrecondition:
    return FailedPrecondition(f"the store ({name}) was opened for reading only; nothing was applied")


class BufferedStore(Store):
    """A store whose transactions buffer their writes until they are committed.

    A backend implements how a snapshot is taken, how a finished transaction is committed, and what has to be closed.
    ``clock`` counts the seconds of a transaction's age.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes = Changes()
        self._closing = threading.Lock()
        self._closed = False

    def read(self, body: Callable[[ReadTransaction], T]) -> T:
        self._check_open()
        deadline.check()
        transaction = ReadOnlyTransaction(self._open_snapshot, self._clock)
        since = time.perf_counter()
        try:
            return noted_read(body, transaction)
        finally:
            transaction.finish()
            STORE.observe(time.perf_counter() - since, "read")

    def transact(self, body: Callable[[Transaction], T], *, attempts_max: int = 50) -> T:
        return run_transaction(self.begin, body, attempts_max)

    def begin(self) -> OpenTransaction:
        self._check_open()
        not_whole()
        return BufferedTransaction(self._open_snapshot, self._submit, self._clock)

    def wait_for_change(self, key: bytes, seen: bytes | None, timeout_s: float) -> bool:
        end = time.monotonic() + timeout_s
        with self._changes.of(key) as changed:
            while True:
                with self._watched(key, changed) as value:
                    if value != seen:
                        return True
                    left = end - time.monotonic()
                    if left <= 0:
                        return False
                    changed.wait(min(left, self._unseen_s_max(), deadline.current().remaining_s()))
                    changed.clear()

    @contextmanager
    def export(self, begin: bytes = b"", end: bytes = KEYS_END) -> Iterator[Export]:
        check_range(begin, end)
        self._check_open()
        with self._lasting_snapshot(begin, end) as snapshot:
            yield exported(snapshot, begin, end)

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._changes.wake_all()
            self._close()

    def _announcing(self, apply: Apply) -> Apply:
        """``apply`` that wakes callers of ``wait_for_change`` on the batch's keys afterwards, even if it failed."""

        def announcing(batch: Sequence[PendingTransaction]) -> Sequence[LakemarkError | None]:
            try:
                return apply(batch)
            finally:
                for transaction in batch:
                    self._changes.announce(transaction)

        return announcing

    @contextmanager
    def _watched(self, key: bytes, changed: threading.Event) -> Iterator[bytes | None]:
        """The current value. A backend that is notified of changes sets ``changed`` at the next one."""
        yield self.read(lambda tx: tx.get(key))

    def _unseen_s_max(self) -> float:
        """How long ``wait_for_change`` may overlook commits of other processes, where there are others."""
        return threading.TIMEOUT_MAX

    def _open_snapshot(self) -> Snapshot:
        """Raises StoreClosed and what ``_snapshot`` raises."""
        self._check_open()
        return self._snapshot()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")

    @abstractmethod
    def _snapshot(self) -> Snapshot:
        """A view of everything acknowledged before; a backend may take it at its first read."""

    @abstractmethod
    def _lasting_snapshot(self, begin: bytes, end: bytes) -> AbstractContextManager[Source]:
        """A view like ``_snapshot``, of at least this range, that can be read for hours."""

    @abstractmethod
    def _submit(self, transaction: PendingTransaction) -> None:
        """Commits durably, or raises what ``OpenTransaction.commit`` may raise, StoreClosed too."""

    @abstractmethod
    def _close(self) -> None:
        """Waits for running commits and releases all resources. Called once."""
