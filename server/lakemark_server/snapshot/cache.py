"""A cache of immutable things by immutable names, bounded by the bytes that they take."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteLru(Generic[K, V]):
    """Thread-safe; what was used longest ago goes first. One entry larger than the whole cache is not kept."""

    def __init__(self, bytes_max: int, size: Callable[[V], int]) -> None:
        self.bytes_max = bytes_max
        self._size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._bytes = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            value = self._entries.get(key)
            if value is not None:
                self._entries.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        size = self._size(value)
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._bytes -= self._size(old)
            if size > self.bytes_max:
                return
            self._entries[key] = value
            self._bytes += size
            while self._bytes > self.bytes_max:
                _, evicted = self._entries.popitem(last=False)
                self._bytes -= self._size(evicted)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def keys(self) -> list[K]:
        with self._lock:
            return list(self._entries)

    @property
    def bytes(self) -> int:
        return self._bytes
