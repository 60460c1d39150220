"""Answers of functions of the store, kept together with what they had read.

Such a function gives the same answer as long as it would read the same; so an answer that was kept is checked with one
read of all its keys, in the caller's own transaction, and can never be stale.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from .api import KeyValue, ReadTransaction

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    keys: list[bytes]
    values: list[bytes | None]
    answer: T


class ReadMemo(Generic[K, T]):
    """Up to ``entries_max`` answers of ``body``, which must depend on nothing but its arguments and what it reads.

    Thread-safe. Answers are shared: callers must not change them. What raises or reads ranges is not kept.
    """

    def __init__(self, body: Callable[[ReadTransaction, K], T], *, entries_max: int) -> None:
        self._body = body
        self._entries_max = entries_max
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, _Kept[T]] = OrderedDict()

    def get(self, tx: ReadTransaction, key: K) -> T:
        """What ``body(tx, key)`` would give."""
        kept = self._kept.get(key)
        if kept is not None and tx.get_many(kept.keys) == kept.values:
            return kept.answer
        reads = _Reads(tx)
        answer = self._body(reads, key)
        with self._lock:
            self._kept.pop(key, None)
            if not reads.ranges:
                self._kept[key] = _Kept(list(reads.points), list(reads.points.values()), answer)
                if len(self._kept) > self._entries_max:
                    self._kept.popitem(last=False)
        return answer

    def reads(self, key: K) -> Sequence[bytes]:
        """The keys that ``get`` is going to read, as far as it is known."""
        kept = self._kept.get(key)
        return () if kept is None else kept.keys


class _Reads:
    """A transaction that takes down what is read."""

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
