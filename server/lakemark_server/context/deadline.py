"""How long the current request may still take, and whether anybody still waits for its answer.

A request's deadline is ambient: the protocol that received the request sets it with ``within``, and code that is about
to wait, to retry or to begin another transaction calls ``check`` first. It is a context variable because the store's
retry loop and queue lie below many callers that have nothing to do with time. Work for several requests, and work that
has to be finished once it has begun (taking back, cleaning up), runs ``within`` a deadline of its own.
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
        """A deadline a little before ``seconds`` from now, so that an answer still reaches the client in time."""
        return cls(time.monotonic() + seconds - min(seconds * _ANSWER_SHARE, _ANSWER_S_MAX))

    def abandon(self) -> None:
        """Notes that the client has gone."""
        self._abandoned = True

    def remaining_s(self) -> float:
        """Seconds, never negative."""
        return max(0.0, self.at_s - self._clock())

    def over(self) -> bool:
        """Whether the time is over or the client has gone, so that nobody waits for the answer."""
        return self._abandoned or self._clock() >= self.at_s

    def check(self) -> None:
        """Raises DeadlineExceeded."""
        if self.over():
            raise exceeded()


NEVER: Final = Deadline(float("inf"))
_current: ContextVar[Deadline] = ContextVar("deadline", default=NEVER)


def current() -> Deadline:
    """The deadline of the current request; ``NEVER`` outside of any request."""
    return _current.get()


def check() -> None:
    """Raises DeadlineExceeded if nobody waits for the answer to the current request any more."""
    deadline = _current.get()
    if deadline is not NEVER:
        deadline.check()


class within:  # noqa: N801 - reads as what it does
    """A block with this deadline, whatever deadline holds outside it."""

    __slots__ = ("_deadline", "_token")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def __enter__(self) -> None:
        self._token = _current.set(self._deadline)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def latest(deadlines: Iterable[Deadline]) -> Deadline:
    """The deadline of work that serves several requests: it is worth doing until the last of them is over."""
    return Deadline(max((deadline.at_s for deadline in deadlines), default=NEVER.at_s))


def exceeded() -> DeadlineExceeded:
    """The error for a request that was not carried out."""
    return DeadlineExceeded("the request's time was over, or its client had gone, before it was carried out")


def unknown() -> DeadlineUnknown:
    """The error for a request whose outcome is not known."""
    return DeadlineUnknown(
        "the request's time was over while the store was committing it: it may have happened; ask again with the same "
        "request id, or look"
    )
