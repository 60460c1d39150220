"""What the stores have in common that check conflicts in this process: snapshots to read, a committer, a clock."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

from .api import OpenTransaction, ReadTransaction, Store, StoreClosed, Transaction
from .buffer import BufferedTransaction, CommitRequest
from .reads import Clock, ReadOnlyTransaction, Snapshot
from .retry import run_transaction

T = TypeVar("T")


class BufferedStore(Store):
    """Transactions that keep their writes to themselves until they are committed.

    A backend says how a snapshot is taken, how a finished transaction is committed, and what there is to close.
    ``clock`` counts the seconds of a transaction's age.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._closing = threading.Lock()
        self._closed = False

    def read(self, body: Callable[[ReadTransaction], T]) -> T:
        self._check_open()
        transaction = ReadOnlyTransaction(self._open_snapshot, self._clock)
        try:
            return body(transaction)
        finally:
            transaction.finish()

    def transact(self, body: Callable[[Transaction], T], *, attempts_max: int = 50) -> T:
        return run_transaction(self.begin, body, attempts_max)

    def begin(self) -> OpenTransaction:
        self._check_open()
        return BufferedTransaction(self._open_snapshot, self._submit, self._clock)

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._close()

    def _open_snapshot(self) -> Snapshot:
        """Raises StoreClosed and what ``_snapshot`` raises."""
        self._check_open()
        return self._snapshot()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")

    @abstractmethod
    def _snapshot(self) -> Snapshot:
        """A view that holds everything acknowledged before, or what it takes to make one at the first read."""

    @abstractmethod
    def _submit(self, request: CommitRequest) -> None:
        """Commits durably, or raises what ``OpenTransaction.commit`` may raise, StoreClosed too."""

    @abstractmethod
    def _close(self) -> None:
        """Waits for running commits and gives everything back. Called once."""
