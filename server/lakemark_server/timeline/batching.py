"""Many writers of one table share one transaction of the store.

Whoever comes first leads: it takes all that wait for the table, runs them in one transaction, hands out the results and
passes the lead to the next that waits. Nobody is sent away because somebody else was a moment earlier, and a hot table
costs one durable commit of the store for many commits of its own.

A job whose request's deadline is over, or whose client has gone, is taken out before its batch is run: it happens whole
or not at all. Once a batch runs, it has the time of the last of its requests.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from lakemark.errors import LakemarkError, Overloaded
from lakemark_server import deadline
from lakemark_server.deadline import Deadline

K = TypeVar("K")
J = TypeVar("J")
R = TypeVar("R")

BATCH_MAX: Final = 128
WAITING_MAX: Final = 10_000
RETRY_MS: Final = 500


class _Ticket(Generic[J, R]):
    """A job that waits: its thread wakes up to take the answer, or to lead."""

    __slots__ = ("answer", "error", "job", "leads", "until", "wake")

    def __init__(self, job: J, until: Deadline) -> None:
        self.job = job
        self.until = until
        self.answer: list[R] = []
        self.error: BaseException | None = None
        self.leads = False
        # A bare lock is the cheapest thing that a thread can sleep on: taken here, released once to wake it.
        self.wake = threading.Lock()
        self.wake.acquire()


class Batcher(Generic[K, J, R]):
    """``run(key, jobs)`` answers each job with a result or a LakemarkError; raising fails the whole batch."""

    def __init__(self, run: Callable[[K, list[J]], list[R | LakemarkError]]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._queues: dict[K, deque[_Ticket[J, R]]] = {}

    def submit(self, key: K, job: J) -> R:
        """Blocks until the job's batch is durable.

        Raises the job's own error, that of the batch, Overloaded, DeadlineExceeded (it was not run), DeadlineUnknown.
        """
        ticket: _Ticket[J, R] = _Ticket(job, deadline.current())
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = deque()
                ticket.leads = True
            elif len(queue) >= WAITING_MAX:
                raise Overloaded(
                    f"{WAITING_MAX:,} requests already wait for this table; try again in {RETRY_MS} ms",
                    retry_after_ms=str(RETRY_MS),
                )
            queue.append(ticket)
        if not ticket.leads:
            self._wait(ticket, queue)
        if ticket.leads:
            self._lead(key, queue)
        if ticket.error is not None:
            raise ticket.error
        return ticket.answer[0]

    def _wait(self, ticket: _Ticket[J, R], queue: deque[_Ticket[J, R]]) -> None:
        """Returns when the ticket has its answer, or leads."""
        if ticket.wake.acquire(timeout=min(ticket.until.remaining_s(), threading.TIMEOUT_MAX)):
            return
        with self._lock:
            if ticket.leads:
                return
            if ticket in queue:
                queue.remove(ticket)
                raise deadline.exceeded()
        if not ticket.wake.acquire(blocking=False):
            raise deadline.unknown()

    def _lead(self, key: K, queue: deque[_Ticket[J, R]]) -> None:
        with self._lock:
            batch = [queue.popleft() for _ in range(min(len(queue), BATCH_MAX))]
        try:
            self._answer(key, [ticket for ticket in batch if self._awaited(ticket)])
        finally:
            with self._lock:
                if queue:
                    queue[0].leads = True
                    queue[0].wake.release()
                else:
                    del self._queues[key]

    @staticmethod
    def _awaited(ticket: _Ticket[J, R]) -> bool:
        """Else it has its answer now."""
        if not ticket.until.over():
            return True
        ticket.error = deadline.exceeded()
        if not ticket.leads:
            ticket.wake.release()
        return False

    def _answer(self, key: K, batch: list[_Ticket[J, R]]) -> None:
        """The leader's own ticket is in it, unless it is too late: it is at the front of the queue when it leads."""
        if not batch:
            return
        try:
            with deadline.within(deadline.latest(ticket.until for ticket in batch)):
                results = self._run(key, [ticket.job for ticket in batch])
        except Exception as error:
            for ticket in batch:
                ticket.error = error
        else:
            for ticket, result in zip(batch, results, strict=True):
                if isinstance(result, LakemarkError):
                    ticket.error = result
                else:
                    ticket.answer.append(result)
        finally:
            for ticket in batch:
                if ticket.error is None and not ticket.answer:
                    ticket.error = RuntimeError("the batch was interrupted; whether it was applied is not known")
                if not ticket.leads:
                    ticket.wake.release()
