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

from .api import ReadTransaction, Store
from .readings import Noting, Readings, current

_BYTES_MAX: Final = 16 << 20
_ENTRY_BYTES: Final = 1_000  # about the size of an answer and its keys

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class _Kept(Generic[T]):
    readings: Readings
    answer: T
    size: int


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
        if kept is not None and tx.get_many(kept.readings.keys) == kept.readings.values:
            return kept.answer
        noting = Noting()
        answer = self._body(noting.reading(tx), key)
        readings = noting.readings(None)
        with self._lock:
            old = self._kept.pop(key, None)
            self._bytes -= 0 if old is None else old.size
            if readings is not None:
                size = _ENTRY_BYTES + readings.size_bytes
                self._kept[key] = _Kept(readings, answer, size)
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
        if not kept.readings.hold_at_once(store):
            return None
        noted = current()
        if noted is not None:
            noted.note(kept.readings.keys, kept.readings.values)
        return kept.answer

    def reads(self, key: K) -> Sequence[bytes]:
        """The keys that ``get`` will read, if its answer was kept; else none."""
        kept = self._kept.get(key)
        return () if kept is None else kept.readings.keys
