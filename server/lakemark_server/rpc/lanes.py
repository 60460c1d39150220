"""The threads of gRPC's requests, in lanes: bounded queues, and a share that a flood cannot take.

Everything may use the main lane. When all of its threads are busy, reads go to a lane of their own, so that they are
answered while writes wait; and what is vital (heartbeats, operators) always has its own. What finds its queues full is
refused at once and told when to come back. All methods are for the event loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from lakemark_core.errors import LakemarkError
from lakemark_server.admission.pressure import InflightBytes
from lakemark_server.admission.tenants import RESERVED_PARTS, Kind, overloaded

T = TypeVar("T")

VITAL_THREADS: Final = 4
_SERVICE_S_FIRST: Final = 0.005
_SMOOTHING: Final = 0.05


class Lane:
    """Some threads and the requests that wait for them; ``pending`` counts both those that wait and those that run."""

    def __init__(self, name: str, threads: int, waiting_max: int) -> None:
        self.threads = threads
        self.pending_max = threads + waiting_max
        self.pending = 0
        self.service_s = _SERVICE_S_FIRST  # a running mean of how long a thread is taken
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def run(
        self, work: Callable[[], T], size_bytes: int, inflight: InflightBytes, ended: Callable[[], None] | None
    ) -> asyncio.Future[T]:
        """Whoever stops waiting for the answer does not stop the work, which counts until it is over."""
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
                # It is an answer and no defect. Its frames hold the decoded request, and form cycles that would keep it
                # until the collector comes by: gigabytes, where many large requests are refused.
                error.__traceback__ = error.__cause__ = error.__context__ = None
            if answer.done():  # given up
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        inflight.enter(size_bytes)
        self.pending += 1
        self._pool.submit(_timed, work).add_done_callback(
            lambda done: None if done.cancelled() else loop.call_soon_threadsafe(finish, done)
        )
        return answer

    def stop(self) -> None:
        """What waits is forgotten; what runs may end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Lanes:
    """``threads`` of the main lane and of the one for reads; ``waiting_max`` requests may wait in each."""

    def __init__(self, threads: int, reserved_threads: int, waiting_max: int, inflight: InflightBytes) -> None:
        self._main = Lane("grpc", threads, waiting_max)
        self._reads = Lane("grpc-read", reserved_threads, waiting_max)
        self._vital = Lane("grpc-vital", VITAL_THREADS, waiting_max)
        self._inflight = inflight
        self._waiting = 0

    def run(
        self, kind: Kind, work: Callable[[], T], size_bytes: int, ended: Callable[[], None] | None = None
    ) -> asyncio.Future[T]:
        """``work`` done by a thread; ``ended`` is called when it is over. Raises Overloaded: it was not begun."""
        return self._lane(kind).run(work, size_bytes, self._inflight, ended)

    @contextmanager
    def on_loop(self, kind: Kind, size_bytes: int) -> Iterator[None]:
        """Counts a request that takes no thread but waits on the loop. Raises Overloaded."""
        lane = self._main
        if kind is not Kind.VITAL and self._waiting >= _share(lane.pending_max, kind):
            raise _full(self._waiting, lane)
        self._inflight.enter(size_bytes)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            self._inflight.leave(size_bytes)

    def stop(self) -> None:
        for lane in (self._main, self._reads, self._vital):
            lane.stop()

    def _lane(self, kind: Kind) -> Lane:
        lane = self._vital if kind is Kind.VITAL else self._main
        if kind is Kind.READ and lane.pending >= lane.threads:
            lane = self._reads
        if lane.pending >= _share(lane.pending_max, kind):
            raise _full(lane.pending, lane)
        return lane


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    since = time.monotonic()
    return work(), time.monotonic() - since


def _share(most: int, kind: Kind) -> int:
    """Of a queue: what changes things leaves some of it to reads."""
    return most - most // RESERVED_PARTS if kind is Kind.WRITE else most


def _full(pending: int, lane: Lane) -> Any:
    return overloaded(
        f"the service is full: {pending} requests wait or run",
        lane.service_s * 1000 * pending / lane.threads,
        limit="grpc_waiting_max",
    )
