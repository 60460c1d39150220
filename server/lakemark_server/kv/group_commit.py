"""Group commit: one thread gathers the transactions that wait, and commits them in one durable step.

While one batch is on its way to the disk, the next one gathers. All waiting callers share the cost of an fsync, and a
lone caller waits for nobody. First come, first served.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from lakemark_core.errors import Internal, LakemarkError, Overloaded
from lakemark_server.context import deadline

from .api import StoreClosed
from .buffer import PendingTransaction

BATCH_TRANSACTIONS_MAX: Final = 512
BATCH_BYTES_MAX: Final = 16_000_000
WAITING_MAX: Final = 10_000
RETRY_MS: Final = 500

Apply = Callable[[Sequence[PendingTransaction]], Sequence[LakemarkError | None]]
"""Commits a batch in order. Returns for each transaction the reason why it was not applied, or None."""


class _Group:
    """Transactions that are committed together, by their identity, and the callers that sleep until they are decided.

    All callers sleep on one lock, and each wakes the next one. If all woke at once, they would queue up for the
    interpreter's lock ahead of the thread that has to write the next group.
    """

    __slots__ = ("decided", "errors", "size_bytes", "transactions")

    def __init__(self) -> None:
        self.transactions: dict[int, PendingTransaction] = {}
        self.size_bytes = 0
        self.errors: dict[int, LakemarkError | None] = {}
        self.decided = threading.Lock()
        self.decided.acquire()

    @property
    def full(self) -> bool:
        return len(self.transactions) >= BATCH_TRANSACTIONS_MAX or self.size_bytes >= BATCH_BYTES_MAX


class GroupCommitter:
    """Owns the writer thread, and calls ``apply`` and ``turn`` from that thread only.

    ``turn`` is called before each group is taken. Where processes take turns, it waits for this process's turn;
    transactions that arrive meanwhile join the group. It must not raise.

    A transaction is withdrawn as a whole if its caller's deadline ends before its group is taken.
    """

    def __init__(self, apply: Apply, name: str, turn: Callable[[], None] = lambda: None) -> None:
        self._apply = apply
        self._turn = turn
        self._gate = threading.Lock()
        self._arrived = threading.Condition(self._gate)
        self._groups: deque[_Group] = deque()  # groups that are not taken yet; the last one grows
        self._waiting = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def commit(self, transaction: PendingTransaction) -> None:
        """Returns when ``transaction`` is durable.

        Raises its error from ``apply``, StoreClosed, Overloaded, DeadlineExceeded (nothing happened), DeadlineUnknown.
        """
        with self._gate:
            if self._closed:
                raise StoreClosed("the store is closed")
            if self._waiting >= WAITING_MAX:
                raise Overloaded(
                    f"{WAITING_MAX:,} commits already wait for the store; try again in {RETRY_MS} ms",
                    retry_after_ms=str(RETRY_MS),
                )
            if not self._groups or self._groups[-1].full:
                self._groups.append(_Group())
                self._arrived.notify()
            group = self._groups[-1]
            group.transactions[id(transaction)] = transaction
            group.size_bytes += transaction.size_bytes
            self._waiting += 1
        self._wait(group, transaction)
        error = group.errors[id(transaction)]
        if error is not None:
            raise error

    def waiting(self) -> int:
        """How many transactions wait in groups that are not taken yet."""
        return self._waiting

    def close(self) -> None:
        """Waits until all transactions that were handed in before are decided."""
        with self._gate:
            self._closed = True
            self._arrived.notify()
        self._thread.join()

    def _wait(self, group: _Group, transaction: PendingTransaction) -> None:
        """Raises DeadlineExceeded if the caller's time ends before the group is taken, DeadlineUnknown if later."""
        until = deadline.current()
        if until is deadline.NEVER:
            with group.decided:  # releasing it wakes the next one
                return
        if group.decided.acquire(timeout=min(until.remaining_s(), threading.TIMEOUT_MAX)):
            group.decided.release()
            return
        with self._gate:
            if group in self._groups:
                del group.transactions[id(transaction)]
                self._waiting -= 1
                raise deadline.exceeded()
        raise deadline.unknown()

    def _run(self) -> None:
        while self._await_group():
            self._turn()
            with self._gate:
                group = self._groups.popleft()
                self._waiting -= len(group.transactions)
            self._decide(group)  # even if it is empty: ``apply`` gives the turn back

    def _await_group(self) -> bool:
        """False if the committer is closed and no group is left."""
        with self._gate:
            while not self._groups:
                if self._closed:
                    return False
                self._arrived.wait()
        return True

    def _decide(self, group: _Group) -> None:
        batch = list(group.transactions.values())
        try:
            errors = self._apply(batch)
        except Exception as error:  # a defect in ``apply`` must neither kill the thread nor leave callers asleep
            errors = [Internal(f"the commit failed: {error!r}") for _ in batch]
        group.errors = dict(zip(group.transactions, errors, strict=True))
        group.decided.release()
