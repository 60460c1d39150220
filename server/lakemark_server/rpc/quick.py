"""Requests that are answered on the event loop, without a thread that waits for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

QUICK_BYTES_MAX: Final = 16 << 10
"""Larger ones would keep the loop busy with decoding."""


class Answer(Protocol):
    """A message, or what has its bytes already."""

    def SerializeToString(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Quick:
    """``takes`` gives what ``answer`` is to be given of a request; None: this request takes a thread. ``answer`` must
    not block; None: the method itself has to do it."""

    takes: Callable[[Any], Any]
    answer: Callable[[Any], Awaitable[Answer | None]]
