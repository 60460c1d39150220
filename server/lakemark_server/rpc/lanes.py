"""The threads that run gRPC's requests, in the lanes that ``admission.lanes`` chooses from.

A request that finds its lane full is refused at once and told when to come back. All methods are for the thread of the
event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from lakemark_core.errors import LakemarkError
from lakemark_server.admission.lanes import LanePolicy, LaneUse
from lakemark_server.admission.pressure import InflightBytes
from lakemark_server.admission.ranks import Rank
from lakemark_server.admission.tenants import overloaded

T = TypeVar("T")

VITAL_THREADS: Final = 4
POLICY: Final = LanePolicy(writes_leave_room=True)
_SERVICE_S_FIRST: Final = 0.005
_SMOOTHING: Final = 0.05


class Lane:
    """Some threads, and the requests that wait for them.

    ``pending`` counts requests that wait or run, ``begun`` all that there have been.
    """

    def __init__(self, name: str, threads: int, waiting_max: int) -> None:
        self.threads = threads
        self.pending_max = threads + waiting_max
        self.pending = self.begun = 0
        self.service_s = _SERVICE_S_FIRST  # a running mean of how long a thread is taken
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def run(
        self, work: Callable[[], T], size_bytes: int, inflight: InflightBytes, ended: Callable[[], None] | None
    ) -> asyncio.Future[T]:
        """Queues ``work``. It counts until it is over, even if nobody waits for its answer any more."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def finish(done: Future[tuple[T, float]]) -> None:
            self.pending -= 1
            inflight.leave(size_bytes)
            if ended is not None:
                ended()
            error = done.exception()
            if error is None:
                result, taken_s = done.result()
                self.service_s += (taken_s - self.service_s) * _SMOOTHING
            if isinstance(error, LakemarkError):
                # This error is an answer, not a defect. Its frames hold the decoded request, in cycles that only the
                # collector would free: gigabytes, if many large requests are refused.
                error.__traceback__ = error.__cause__ = error.__context__ = None
            if answer.done():  # its caller gave up
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        inflight.enter(size_bytes)
        self.pending += 1
        self.begun += 1
        self._pool.submit(_timed, work).add_done_callback(
            lambda done: None if done.cancelled() else loop.call_soon_threadsafe(finish, done)
        )
        return answer

    def stop(self) -> None:
        """Forgets the requests that wait; those that run may end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Lanes:
    """``threads`` of the main lane and of the one for reads; ``waiting_max`` requests may wait in each."""

    def __init__(self, threads: int, reserved_threads: int, waiting_max: int, inflight: InflightBytes) -> None:
        self.main = Lane("grpc", threads, waiting_max)
        self.reads = Lane("grpc-read", reserved_threads, waiting_max)
        self.vital = Lane("grpc-vital", VITAL_THREADS, waiting_max)
        self._inflight = inflight
        self._waiting = self._begun = 0

    def run(
        self, rank: Rank, work: Callable[[], T], size_bytes: int, ended: Callable[[], None] | None = None
    ) -> asyncio.Future[T]:
        """The answer of ``work``, which a thread runs; ``ended`` is called when it is over.

        Raises Overloaded: the work was not begun.
        """
        lane = POLICY.lane_for(rank, self)
        if not POLICY.has_room(rank, lane):
            raise _full(lane.pending, lane)
        return lane.run(work, size_bytes, self._inflight, ended)

    @contextmanager
    def on_loop(self, rank: Rank, size_bytes: int) -> Iterator[None]:
        """Counts a request that takes no thread but waits on the loop. Raises Overloaded."""
        if rank is not Rank.VITAL and self._waiting >= POLICY.pending_max(rank, self.main):
            raise _full(self._waiting, self.main)
        self._inflight.enter(size_bytes)
        self._waiting += 1
        self._begun += 1
        try:
            yield
        finally:
            self._waiting -= 1
            self._inflight.leave(size_bytes)

    def uses(self) -> list[LaneUse]:
        """How the lanes and the event loop are used."""
        lanes = {"main": self.main, "reads": self.reads, "vital": self.vital}
        return [
            LaneUse("loop", 1, self._waiting, self._begun),
            *(LaneUse(name, lane.threads, lane.pending, lane.begun) for name, lane in lanes.items()),
        ]

    def stop(self) -> None:
        for lane in (self.main, self.reads, self.vital):
            lane.stop()


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    since = time.monotonic()
    return work(), time.monotonic() - since


def _full(pending: int, lane: Lane) -> Any:
    return overloaded(
        f"the service is full: {pending} requests wait or run",
        lane.service_s * 1000 * pending / lane.threads,
        limit="grpc_waiting_max",
    )
