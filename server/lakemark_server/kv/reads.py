"""The snapshot that a backend reads from, and the read-only transaction over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lakemark_core.errors import InvalidArgument

from .api import TRANSACTION_SECONDS_MAX, KeyValue, TransactionFinished
from .limits import check_key, check_range, too_old

Clock = Callable[[], float]
"""Seconds that never go back; ``time.monotonic`` outside of tests."""


class Snapshot(Protocol):
    """One frozen view of the whole store, taken at the first read. For one thread at a time; checks no limits."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def get_range(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]: ...

    def version(self) -> int:
        """The version of the newest commit in this view."""

    def release(self) -> None:
        """Called exactly once; never raises."""


def finished() -> TransactionFinished:
    return TransactionFinished("the transaction has ended; open another one")


class ReadOnlyTransaction:
    """The ``ReadTransaction`` of ``Store.read``. It buffers and records nothing."""

    __slots__ = ("_clock", "_deadline", "_finished", "_open_snapshot", "_snapshot")

    def __init__(self, open_snapshot: Callable[[], Snapshot], clock: Clock) -> None:
        self._open_snapshot = open_snapshot
        self._clock = clock
        self._deadline = clock() + TRANSACTION_SECONDS_MAX
        self._snapshot: Snapshot | None = None
        self._finished = False

    def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        check_key(key)
        return self._view().get(key)

    def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]:
        for key in keys:
            check_key(key)
        return self._view().get_many(keys)

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[KeyValue]:
        check_range(begin, end)
        check_limit(limit)
        return self._view().get_range(begin, end, limit, reverse)

    def version(self) -> int:
        return self._view().version()

    def finish(self) -> None:
        self._finished = True
        if self._snapshot is not None:
            self._snapshot.release()
            self._snapshot = None

    def _view(self) -> Snapshot:
        if self._clock() > self._deadline:
            raise too_old()
        if self._snapshot is None:
            if self._finished:
                raise finished()
            self._snapshot = self._open_snapshot()
        return self._snapshot


def check_limit(limit: int) -> None:
    if limit < 0:
        raise InvalidArgument(f"limit must not be negative, and is {limit}")
