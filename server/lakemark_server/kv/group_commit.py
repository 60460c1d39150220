"""Group commit: one thread gathers the transactions that wait and has them committed in one durable step.

While one batch is on its way to the disk the next one gathers, so that the cost of an fsync is shared by as many
transactions as there are waiting callers, and a lone caller waits for nobody. First come, first served.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from lakemark.errors import Internal, LakemarkError, Overloaded
from lakemark_server import deadline

from .api import StoreClosed
from .buffer import CommitRequest

BATCH_TRANSACTIONS_MAX: Final = 512
BATCH_BYTES_MAX: Final = 16_000_000
WAITING_MAX: Final = 10_000
RETRY_MS: Final = 500

Apply = Callable[[Sequence[CommitRequest]], Sequence[LakemarkError | None]]
"""Commits a batch in order; answers for each request why it was not applied, or None."""


class _Waiting:
    """A request and the caller that sleeps until it is decided."""

    __slots__ = ("_claimed", "_decided", "error", "request")

    def __init__(self, request: CommitRequest) -> None:
        self.request = request
        self.error: LakemarkError | None = None
        # A bare lock is the cheapest thing that a thread can sleep on: taken here, released by the decision.
        self._decided = threading.Lock()
        self._decided.acquire()
        self._claimed = threading.Lock()

    def claim(self) -> bool:
        """True once: for the batch that takes the request, or for the caller who gives it up before one does."""
        return self._claimed.acquire(blocking=False)

    def wait(self) -> None:
        """Raises DeadlineExceeded if the time is over before a batch took the request, DeadlineUnknown if later."""
        until = deadline.current()
        if until is deadline.NEVER:
            self._decided.acquire()
        elif not self._decided.acquire(timeout=min(until.remaining_s(), threading.TIMEOUT_MAX)):
            if self.claim():
                raise deadline.exceeded()
            raise deadline.unknown()

    def decide(self, error: LakemarkError | None) -> None:
        self.error = error
        self._decided.release()


class GroupCommitter:
    """Owns the writer thread. ``apply`` is only ever called from that thread.

    A request whose caller's deadline is over before a batch takes it is withdrawn, whole.

    So is ``turn``, before each batch is gathered, where processes take turns: whoever arrives during the wait is in the
    batch. It must not raise.
    """

    def __init__(self, apply: Apply, name: str, turn: Callable[[], None] = lambda: None) -> None:
        self._apply = apply
        self._turn = turn
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def commit(self, request: CommitRequest) -> None:
        """Returns when ``request`` is durable.

        Raises what ``apply`` answered, StoreClosed, Overloaded, DeadlineExceeded (nothing happened), DeadlineUnknown.
        """
        waiting = _Waiting(request)
        with self._gate:
            if self._closed:
                raise StoreClosed("the store is closed")
            if self._queue.qsize() >= WAITING_MAX:
                raise Overloaded(
                    f"{WAITING_MAX:,} commits already wait for the store; try again in {RETRY_MS} ms",
                    retry_after_ms=str(RETRY_MS),
                )
            self._queue.put(waiting)
        waiting.wait()
        if waiting.error is not None:
            raise waiting.error

    def waiting(self) -> int:
        """How many requests no batch has taken yet."""
        return self._queue.qsize()

    def close(self) -> None:
        """Waits until everything that was handed in before is decided."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            self._turn()
            batch, last = self._gather(first)
            self._decide(batch)  # one that is empty, too: whoever took the turn gives it back
            if last:
                return

    def _gather(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        """The requests that wait, within the limits, and whether the end of the queue came after them."""
        batch = [first] if first.claim() else []
        size_bytes = first.request.size_bytes if batch else 0
        while len(batch) < BATCH_TRANSACTIONS_MAX and size_bytes < BATCH_BYTES_MAX:
            try:
                waiting = self._queue.get_nowait()
            except Empty:
                break
            if waiting is None:
                return batch, True
            if waiting.claim():
                batch.append(waiting)
                size_bytes += waiting.request.size_bytes
        return batch, False

    def _decide(self, batch: list[_Waiting]) -> None:
        try:
            errors = self._apply([waiting.request for waiting in batch])
        except Exception as error:  # a defect in ``apply`` must neither kill the thread nor leave callers asleep
            errors = [Internal(f"the commit failed: {error!r}") for _ in batch]
        for waiting, verdict in zip(batch, errors, strict=True):
            waiting.decide(verdict)
