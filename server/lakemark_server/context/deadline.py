"""How long the request that runs here may still take, and whether anybody still waits for its answer.

A request's deadline is ambient: the protocol that received it opens it with ``within``, and what waits, retries or goes
on to a further transaction asks ``check`` first. A context variable, because the store's retry loop and its queue sit
below forty callers that have nothing else to say about time. Work for several requests, or work that must be done once
something else was (taking back, cleaning up), runs ``within`` a deadline of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Final

from lakemark_core.errors import DeadlineExceeded, DeadlineUnknown

_ANSWER_SHARE: Final = 0.02
_ANSWER_S_MAX: Final = 0.1


class Deadline:
    """``at_s`` on the clock of ``time.monotonic``. Shared by the threads that work for one request."""

    __slots__ = ("_abandoned", "_clock", "at_s")

    def __init__(self, at_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.at_s = at_s
        self._abandoned = False
        self._clock = clock

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """A little before ``seconds`` are over: an answer that says what happened must still reach the client."""
        return cls(time.monotonic() + seconds - min(seconds * _ANSWER_SHARE, _ANSWER_S_MAX))

    def abandon(self) -> None:
        """The client has gone."""
        self._abandoned = True

    def remaining_s(self) -> float:
        """Never negative."""
        return max(0.0, self.at_s - self._clock())

    def over(self) -> bool:
        """Whether the time is over or the client has gone: there is nobody to work for."""
        return self._abandoned or self._clock() >= self.at_s

    def check(self) -> None:
        """Raises DeadlineExceeded."""
        if self.over():
            raise exceeded()


NEVER: Final = Deadline(float("inf"))
_current: ContextVar[Deadline] = ContextVar("deadline", default=NEVER)


def current() -> Deadline:
    """Of the request that runs here; ``NEVER`` outside of any."""
    return _current.get()


def check() -> None:
    """Raises DeadlineExceeded if the current request has nobody left to work for."""
    deadline = _current.get()
    if deadline is not NEVER:
        deadline.check()


class within:  # noqa: N801 - reads as what it does
    """What runs inside the block has this deadline, whatever the one outside is."""

    __slots__ = ("_deadline", "_token")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def __enter__(self) -> None:
        self._token = _current.set(self._deadline)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def latest(deadlines: Iterable[Deadline]) -> Deadline:
    """For work that serves several requests: it is worth its while until the last of them is over."""
    return Deadline(max((one.at_s for one in deadlines), default=NEVER.at_s))


def exceeded() -> DeadlineExceeded:
    return DeadlineExceeded("the request's time was over, or its client had gone, before it was carried out")


def unknown() -> DeadlineUnknown:
    return DeadlineUnknown(
        "the request's time was over while the store was committing it: it may have happened; ask again with the same "
        "request id, or look"
    )
