"""Hands answers from the threads that have them to the coroutines that wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Answers:
    """Wakes the loop up once for all answers that come at the same moment: a batch has many."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._awake = False

    async def wait(self, ask: Callable[[Callable[[T | BaseException], None]], bool], missing: T) -> T:
        """``ask`` is given what is to be called with the answer, from any thread; ``missing`` if ask says False.

        Raises the answer if it is an error.
        """
        future: asyncio.Future[T | BaseException] = self._loop.create_future()

        def answered(answer: T | BaseException) -> None:
            self._arrived.append((future, answer))
            if not self._awake:
                self._awake = True
                self._loop.call_soon_threadsafe(self._hand_out)

        if not ask(answered):
            return missing
        answer = await future
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _hand_out(self) -> None:
        self._awake = False  # first: whoever comes from now on wakes the loop up again
        while self._arrived:
            future, answer = self._arrived.popleft()
            if not future.done():  # else its client has gone
                future.set_result(answer)
