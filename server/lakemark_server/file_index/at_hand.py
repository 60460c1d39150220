"""Plans that must not wait: within ``only_at_hand`` nothing is read, and nothing that takes long is made.

So an event loop can try a plan whose pieces are in memory, as those of most plans are, and leave all others to a
thread, which makes what was missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_only: ContextVar[bool] = ContextVar("only_at_hand", default=False)


class NotAtHand(Exception):
    """Something would have to be read or made first. Nothing was changed."""


@contextmanager
def only_at_hand() -> Iterator[None]:
    """For this thread or coroutine."""
    before = _only.set(True)
    try:
        yield
    finally:
        _only.reset(before)


def may_make() -> None:
    """Before something is read or made that may take long. Raises NotAtHand."""
    if _only.get():
        raise NotAtHand
