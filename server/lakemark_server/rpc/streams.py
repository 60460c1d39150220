"""Methods that answer with a stream of responses. Their servicer's method is a coroutine on the event loop.

It takes no thread while it waits. What may block it has a thread run (``Stream.run``), under the deadline and the name
of its request. ``Stream.send`` waits until the client has room for the response: a slow client makes nobody else wait,
and costs no more than what is being sent to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from google.protobuf.descriptor import MethodDescriptor

from lakemark_core.errors import DeadlineExceeded
from lakemark_server.admission.ranks import Rank
from lakemark_server.context import caller, deadline
from lakemark_server.rpc.admission import Admission
from lakemark_server.rpc.lanes import Lanes
from lakemark_server.rpc.requests import Context, caller_of, deadline_of, decoder

T = TypeVar("T")
Behaviour: TypeAlias = Callable[[Any, "Stream"], Awaitable[None]]


class Stream:
    """One such call. ``until``: when it is to end at the latest."""

    def __init__(self, context: Context, lanes: Lanes, rank: Rank, request_s_max: float) -> None:
        self.until = deadline_of(context, request_s_max)
        self._context = context
        self._name = caller_of(context)
        self._lanes = lanes
        self._rank = rank

    async def send(self, response: bytes) -> None:
        """Sends a response, as soon as the client takes it. Raises DeadlineExceeded: it does not in time."""
        try:
            async with asyncio.timeout(self.until.remaining_s()):
                await self._context.write(response)
        except TimeoutError:
            raise deadline.exceeded() from None

    def run(self, work: Callable[[], T], rank: Rank | None = None) -> asyncio.Future[T]:
        """What ``work`` returns, which a thread runs. Raises Overloaded: it was not begun."""

        def within() -> T:
            with deadline.within(self.until), caller.named(self._name):
                return work()

        return self._lanes.run(rank or self._rank, within, 0)

    def run_last(self, work: Callable[[], object]) -> None:
        """Has a thread run what the end of the call needs, even if the client has gone. Nobody waits for it."""
        self._lanes.run(Rank.VITAL, work, 0).add_done_callback(_seen)


def _seen(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()


class Wakes:
    """Wakes coroutines from other threads. Wakes the loop up once for all that come at the same moment."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._signals: set[Signal] = set()
        self._awake = False

    def signal(self) -> Signal:
        return Signal(self._loop, self._wake)

    def _wake(self, signal: Signal) -> None:
        self._signals.add(signal)
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        self._awake = False  # first: whoever comes from now on wakes the loop up again
        signals, self._signals = self._signals, set()
        for signal in signals:
            signal.arrive()


class Signal:
    """What one coroutine waits for. ``wake`` is for any thread, all else for the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[Signal], None]) -> None:
        self._loop = loop
        self._send = wake
        self._waiting: asyncio.Future[None] | None = None
        self._arrived = False

    def wake(self) -> None:
        """Ends the wait, or the next one."""
        self._send(self)

    def clear(self) -> None:
        """Forgets that somebody has called ``wake``."""
        self._arrived = False

    def arrive(self) -> None:
        self._arrived = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self, timeout_s: float) -> None:
        """Waits for ``wake``, or so long."""
        if self._arrived or timeout_s <= 0:
            return
        self._waiting = waiting = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, _end, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._waiting = None


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def streamed(
    method: MethodDescriptor, behaviour: Behaviour, lanes: Lanes, admission: Admission, request_s_max: float
) -> Callable[[bytes, Context], Awaitable[None]]:
    """Serves the method. Its tenant's rate and concurrency count its beginning, and not how long it lasts."""
    decoded = decoder(method.input_type)

    async def answer(data: bytes, context: Context) -> None:
        stream = Stream(context, lanes, admission.rank, request_s_max)
        admission.leave(admission.enter(data))
        try:
            await behaviour(decoded(data), stream)
        except asyncio.CancelledError:
            stream.until.abandon()
            raise
        except DeadlineExceeded:
            if not stream.until.over():
                raise

    return answer
