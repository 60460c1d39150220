"""The threads that run calls, in lanes with bounded queues. Who made the server says which lane takes a call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")

VITAL_THREADS: Final = 2


class Lane(Generic[T]):
    """Threads and their queue. ``pending`` counts calls that wait or run, ``begun`` all that there have been."""

    def __init__(self, name: str, threads: int, waiting_max: int, work: Callable[[T], None]) -> None:
        self.threads = threads
        self.pending_max = threads + waiting_max
        self._work = work
        self._lock = threading.Lock()
        self._pending = self.begun = 0
        self._queue: SimpleQueue[tuple[T] | None] = SimpleQueue()
        names = (f"{name}-{number}" for number in range(threads))
        self._workers = [threading.Thread(target=self._run, name=worker, daemon=True) for worker in names]

    @property
    def pending(self) -> int:
        return self._pending

    @property
    def has_room(self) -> bool:
        return self._pending < self.pending_max

    def put(self, item: T) -> None:
        """Queues the item, whether there is room or not."""
        with self._lock:
            self._pending += 1
            self.begun += 1
        self._queue.put((item,))

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """The threads end when everything queued before is done; see ``join``."""
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
    """``work`` runs in the threads of the lanes; ``main``, ``reads``, ``vital`` and ``slow`` are the lanes."""

    def __init__(self, threads: int, reserved_threads: int, waiting_max: int, work: Callable[[T], None]) -> None:
        self.main = Lane("hms-worker", threads, waiting_max, work)
        self.reads = Lane("hms-read", reserved_threads, waiting_max, work)
        self.vital = Lane("hms-vital", VITAL_THREADS, waiting_max, work)
        self.slow = Lane("hms-slow", threads, waiting_max, work)
        self._all = (self.main, self.reads, self.vital, self.slow)

    @property
    def pending(self) -> int:
        """Calls that wait or run."""
        return sum(lane.pending for lane in self._all)

    def start(self) -> None:
        for lane in self._all:
            lane.start()

    def stop(self, timeout_s: Callable[[], float]) -> None:
        """Waits for the calls that run, each time at most ``timeout_s()`` seconds."""
        for lane in self._all:
            lane.stop()
        for lane in self._all:
            lane.join(timeout_s)


LaneChoice: TypeAlias = Callable[[str, Lanes[Any]], Lane[Any] | None]
"""The lane of a call by the name of its method; None if there is no room for the call.

Only one thread asks, and it queues the call before it asks again, so a lane cannot fill up in between.
"""


def main_lane(_method: str, lanes: Lanes[T]) -> Lane[T] | None:
    """A LaneChoice that treats all methods alike."""
    return lanes.main if lanes.main.has_room else None
