"""Many writers of one table share one transaction of the store.

The jobs that wait for a table form a queue. One of a few threads, the leader, takes all that wait, runs them in one
transaction, hands out the answers, and puts the table back in line behind other tables if more have come meanwhile.
Nobody is refused because somebody else was a moment earlier. A hot table costs the store one durable commit for many
commits of its own, and takes one thread, however many writers it has.

A job whose deadline has passed, or whose client has gone, is taken out before its batch is run: it happens whole or not
at all. A batch that runs has until the latest deadline of its jobs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeAlias, TypeVar

from lakemark_core.errors import LakemarkError, Overloaded
from lakemark_server.context import deadline

K = TypeVar("K")
J = TypeVar("J")
R = TypeVar("R")

BATCH_MAX: Final = 128
BATCH_BYTES_AIM: Final = 900_000
WAITING_MAX: Final = 10_000
LEADERS_MAX: Final = 16
RETRY_MS: Final = 500
ANSWER_S_MAX: Final = 0.05

Answered: TypeAlias = Callable[[R | BaseException], None]
"""Takes a result, or the error instead of it. A leader calls it: it must be quick, and must not raise."""


class _Ticket(Generic[J, R]):
    """A job that waits, and the function that takes its answer."""

    __slots__ = ("answered", "job", "until")

    def __init__(self, job: J, answered: Answered[R]) -> None:
        self.job = job
        self.answered = answered
        self.until = deadline.current()


class _Sleeper(Generic[R]):
    """A thread that sleeps until it has an answer."""

    __slots__ = ("_answer", "_wake")

    def __init__(self) -> None:
        self._answer: list[R | BaseException] = []
        # A bare lock is the cheapest thing that a thread can sleep on: taken here, released once to wake it.
        self._wake = threading.Lock()
        self._wake.acquire()

    def answered(self, answer: R | BaseException) -> None:
        self._answer.append(answer)
        self._wake.release()

    def sleep(self, seconds: float) -> bool:
        """Whether it was answered."""
        return self._wake.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))

    def answer(self) -> R:
        answer = self._answer[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Batcher(Generic[K, J, R]):
    """``run(key, jobs)`` answers each job with a result or a LakemarkError; raising fails the whole batch.

    ``size_of``: about how many bytes a job writes. A batch ends with the job that brings it to BATCH_BYTES_AIM.
    """

    def __init__(
        self, run: Callable[[K, list[J]], list[R | LakemarkError]], size_of: Callable[[J], int] = lambda job: 0
    ) -> None:
        self._run = run
        self._size_of = size_of
        self._lock = threading.Lock()
        self._queues: dict[K, deque[_Ticket[J, R]]] = {}
        self._leaders = ThreadPoolExecutor(LEADERS_MAX, thread_name_prefix="timeline")

    def submit(self, key: K, job: J) -> R:
        """Blocks until the job's batch is durable.

        Raises the job's own error, that of the batch, Overloaded, DeadlineExceeded (it was not run), DeadlineUnknown.
        """
        sleeper: _Sleeper[R] = _Sleeper()
        ticket = self._queue(key, job, sleeper.answered)
        if not sleeper.sleep(ticket.until.remaining_s()):
            with self._lock:
                queue = self._queues.get(key)
                if queue is not None and ticket in queue:
                    queue.remove(ticket)
                    raise deadline.exceeded()
            # The leader's time is over at the same moment, but the store may still tell it what became of the job.
            if not sleeper.sleep(ANSWER_S_MAX):
                raise deadline.unknown()
        return sleeper.answer()

    def hand_in(self, key: K, job: J, answered: Answered[R]) -> None:
        """``answered`` is called once the job's batch is durable or has failed, or leaves the job out because nobody
        waits for it any more. Raises Overloaded."""
        self._queue(key, job, answered)

    def _queue(self, key: K, job: J, answered: Answered[R]) -> _Ticket[J, R]:
        ticket: _Ticket[J, R] = _Ticket(job, answered)
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                self._queues[key] = deque((ticket,))
                self._leaders.submit(self._lead, key)
                return ticket
            if len(queue) >= WAITING_MAX:
                raise Overloaded(
                    f"{WAITING_MAX:,} requests already wait for this table; try again in {RETRY_MS} ms",
                    retry_after_ms=str(RETRY_MS),
                )
            queue.append(ticket)
        return ticket

    def _lead(self, key: K) -> None:
        with self._lock:
            queue = self._queues[key]
            batch = self._taken(queue)
        answers = self._answers(key, batch)
        with self._lock:
            if queue:
                self._leaders.submit(self._lead, key)
            else:
                del self._queues[key]
        for ticket, answer in zip(batch, answers, strict=True):
            ticket.answered(answer)

    def _taken(self, queue: deque[_Ticket[J, R]]) -> list[_Ticket[J, R]]:
        batch: list[_Ticket[J, R]] = []
        size = 0
        while queue and len(batch) < BATCH_MAX and size < BATCH_BYTES_AIM:
            batch.append(queue.popleft())
            size += self._size_of(batch[-1].job)
        return batch

    def _answers(self, key: K, batch: list[_Ticket[J, R]]) -> list[R | BaseException]:
        """In the order of the batch."""
        answers: list[R | BaseException] = [
            deadline.exceeded() if ticket.until.over() else _NOT_RUN for ticket in batch
        ]
        begun = [place for place, answer in enumerate(answers) if answer is _NOT_RUN]
        if begun:
            try:
                with deadline.within(deadline.latest(batch[place].until for place in begun)):
                    results = self._run(key, [batch[place].job for place in begun])
                for place, result in zip(begun, results, strict=True):
                    answers[place] = result
            except BaseException as error:  # whatever it is, those who wait must be told
                for place in begun:
                    answers[place] = error
        return answers


_NOT_RUN: Final = RuntimeError("the job was not run")
