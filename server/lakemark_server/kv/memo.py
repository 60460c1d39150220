"""Keeps the answers of functions of the store, with the values that they read.

Such a function gives the same answer as long as it reads the same values. So a kept answer is checked by one read of
all its keys, in the caller's transaction or by ``Store.read_at_once``, and is never stale.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from .api import KeyValue, ReadTransaction, Store

_BYTES_MAX: Final = 16 << 20
_ENTRY_BYTES: Final = 1_000  # about the size of an answer and its keys

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class _Kept(Generic[T]):
    """``checked``: ``Store.writes_begun`` as it was before the values were last found unchanged."""

    keys: list[bytes]
    values: list[bytes | None]
    answer: T
    size: int
    checked: int | None = None


class ReadMemo(Generic[K, T]):
    """Up to ``entries_max`` answers of ``body``, whose reads together take at most ``bytes_max``.

    ``body`` must depend on nothing but its arguments and what it reads. Nothing is kept of a call that raises or reads
    ranges. Answers are shared: callers must not change them. Thread-safe.
    """

    def __init__(
        self, body: Callable[[ReadTransaction, K], T], *, entries_max: int, bytes_max: int = _BYTES_MAX
    ) -> None:
        self._body = body
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, _Kept[T]] = OrderedDict()

    def get(self, tx: ReadTransaction, key: K) -> T:
        """The result of ``body(tx, key)``."""
        kept = self._kept.get(key)
        if kept is not None and tx.get_many(kept.keys) == kept.values:
            return kept.answer
        reads = _Reads(tx)
        answer = self._body(reads, key)
        with self._lock:
            old = self._kept.pop(key, None)
            self._bytes -= 0 if old is None else old.size
            if not reads.ranges:
                keys, values = list(reads.points), list(reads.points.values())
                size = _ENTRY_BYTES + sum(map(len, keys)) + sum(len(value or b"") for value in values)
                self._kept[key] = _Kept(keys, values, answer, size)
                self._bytes += size
                while len(self._kept) > self._entries_max or self._bytes > self._bytes_max:
                    self._bytes -= self._kept.popitem(last=False)[1].size
        return answer

    def get_at_once(self, store: Store, key: K) -> T | None:
        """The answer of ``body``, if it was kept and ``Store.read_at_once`` can check it; else None.

        Reads nothing if nothing was written since the last check.
        """
        kept = self._kept.get(key)
        if kept is None:
            return None
        begun = store.writes_begun()
        if begun is None or kept.checked != begun:
            if store.read_at_once(kept.keys) != kept.values:
                return None
            kept.checked = begun
        return kept.answer

    def reads(self, key: K) -> Sequence[bytes]:
        """The keys that ``get`` will read, if its answer was kept; else none."""
        kept = self._kept.get(key)
        return () if kept is None else kept.keys


class _Reads:
    """A transaction that records what is read."""

    def __init__(self, tx: ReadTransaction) -> None:
        self._tx = tx
        self.points: dict[bytes, bytes | None] = {}
        self.ranges = 0

    def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        value = self.points[key] = self._tx.get(key, snapshot=snapshot)
        return value

    def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]:
        values = self._tx.get_many(keys, snapshot=snapshot)
        self.points.update(zip(keys, values, strict=True))
        return values

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[KeyValue]:
        self.ranges += 1
        return self._tx.get_range(begin, end, limit=limit, reverse=reverse, snapshot=snapshot)
