"""Plans that must not wait: within ``only_at_hand`` nothing is read, and nothing that takes long is computed.

An event loop can try a plan that way. Most succeed, because what they need is in memory. The others raise NotAtHand and
are repeated in a thread, which may read and compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_only: ContextVar[bool] = ContextVar("only_at_hand", default=False)


class NotAtHand(Exception):
    """Something would have to be read or computed first. Nothing was changed."""


@contextmanager
def only_at_hand() -> Iterator[None]:
    """Makes ``may_make`` raise in this thread or coroutine."""
    before = _only.set(True)
    try:
        yield
    finally:
        _only.reset(before)


def may_make() -> None:
    """Called before anything is read or computed that may take long. Raises NotAtHand."""
    if _only.get():
        raise NotAtHand
