"""The threads that run calls, in lanes: bounded queues, and a share that a flood cannot take.

Everything may use the main lane. When all of its threads are busy, reads go to a lane of their own, so that they are
answered while changes wait; and what keeps locks and transactions alive always has its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

T = TypeVar("T")

VITAL_THREADS: Final = 2


class Rank(Enum):
    """What a call is to others: which lanes it may use."""

    ORDINARY = 0
    READ = 1
    VITAL = 2


class Lane(Generic[T]):
    """Threads and a queue. ``pending`` counts what waits and what runs."""

    def __init__(self, name: str, threads: int, waiting_max: int, work: Callable[[T], None]) -> None:
        self.threads = threads
        self._pending_max = threads + waiting_max
        self._work = work
        self._lock = threading.Lock()
        self._pending = 0
        self._queue: SimpleQueue[tuple[T] | None] = SimpleQueue()
        names = (f"{name}-{number}" for number in range(threads))
        self._workers = [threading.Thread(target=self._run, name=one, daemon=True) for one in names]

    @property
    def pending(self) -> int:
        return self._pending

    def offer(self, item: T, *, wait: bool = True) -> bool:
        """False if it was not taken: the queue is full, or (without ``wait``) all threads are busy."""
        with self._lock:
            if self._pending >= (self._pending_max if wait else self.threads):
                return False
            self._pending += 1
        self._queue.put((item,))
        return True

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """The threads end when everything before is done; see ``join``."""
        for _ in self._workers:
            self._queue.put(None)

    def join(self, timeout_s: Callable[[], float]) -> None:
        for worker in self._workers:
            worker.join(timeout_s())

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._work(item[0])
            finally:
                with self._lock:
                    self._pending -= 1


class Lanes(Generic[T]):
    """``offer`` is for one thread, ``work`` runs in those of the lanes."""

    def __init__(self, threads: int, reserved_threads: int, waiting_max: int, work: Callable[[T], None]) -> None:
        self._main = Lane("hms-worker", threads, waiting_max, work)
        self._reads = Lane("hms-read", reserved_threads, waiting_max, work)
        self._vital = Lane("hms-vital", VITAL_THREADS, waiting_max, work)
        self._all = (self._main, self._reads, self._vital)

    @property
    def pending(self) -> int:
        """Calls that wait or run."""
        return sum(lane.pending for lane in self._all)

    def offer(self, item: T, rank: Rank) -> bool:
        """False: there is no room for it."""
        if rank is Rank.VITAL:
            return self._vital.offer(item)
        if rank is Rank.READ:
            return self._main.offer(item, wait=False) or self._reads.offer(item)
        return self._main.offer(item)

    def start(self) -> None:
        for lane in self._all:
            lane.start()

    def stop(self, timeout_s: Callable[[], float]) -> None:
        """Waits for what runs, each time at most ``timeout_s()`` seconds."""
        for lane in self._all:
            lane.stop()
        for lane in self._all:
            lane.join(timeout_s)
