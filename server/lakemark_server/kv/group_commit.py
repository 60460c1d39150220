"""Group commit: one thread gathers the transactions that wait and has them committed in one durable step.

While one batch is on its way to the disk the next one gathers, so that the cost of an fsync is shared by as many
transactions as there are waiting callers, and a lone caller waits for nobody. First come, first served.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from lakemark.errors import Internal, LakemarkError

from .api import StoreClosed
from .buffer import CommitRequest

BATCH_TRANSACTIONS_MAX: Final = 512
BATCH_BYTES_MAX: Final = 16_000_000

Apply = Callable[[Sequence[CommitRequest]], Sequence[LakemarkError | None]]
"""Commits a batch in order; answers for each request why it was not applied, or None."""


class _Waiting:
    """A request and the caller that sleeps until it is decided."""

    __slots__ = ("_decided", "error", "request")

    def __init__(self, request: CommitRequest) -> None:
        self.request = request
        self.error: LakemarkError | None = None
        # A bare lock is the cheapest thing that a thread can sleep on: taken here, released by the decision.
        self._decided = threading.Lock()
        self._decided.acquire()

    def wait(self) -> None:
        self._decided.acquire()

    def decide(self, error: LakemarkError | None) -> None:
        self.error = error
        self._decided.release()


class GroupCommitter:
    """Owns the writer thread. ``apply`` is only ever called from that thread.

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
        """Returns when ``request`` is durable; raises what ``apply`` answered, or StoreClosed."""
        waiting = _Waiting(request)
        with self._gate:
            if self._closed:
                raise StoreClosed("the store is closed")
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
            self._decide(batch)
            if last:
                return

    def _gather(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        """The requests that wait, within the limits, and whether the end of the queue came after them."""
        batch = [first]
        size_bytes = first.request.size_bytes
        while len(batch) < BATCH_TRANSACTIONS_MAX and size_bytes < BATCH_BYTES_MAX:
            try:
                waiting = self._queue.get_nowait()
            except Empty:
                break
            if waiting is None:
                return batch, True
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
