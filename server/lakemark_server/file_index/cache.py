"""A cache of immutable values by immutable keys, bounded by the bytes that they take."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteLru(Generic[K, V]):
    """Thread-safe. Evicts what was used longest ago. A value larger than the whole cache is not kept."""

    def __init__(self, bytes_max: int, size: Callable[[V], int]) -> None:
        self.bytes_max = bytes_max
        self._size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._bytes = 0

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        with self._lock:
            value = self._entries.get(key)
            if value is not None:
                self._entries.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Keeps a value, and evicts others until all fit."""
        size = self._size(value)
        with self._lock:
            if self._entries.get(key) is value:
                self._entries.move_to_end(key)
                return
            old = self._entries.pop(key, None)
            if old is not None:
                self._bytes -= self._released(old)
            if size > self.bytes_max:
                return
            self._entries[key] = value
            self._bytes += self._taken(value)
            while self._bytes > self.bytes_max:
                _, evicted = self._entries.popitem(last=False)
                self._bytes -= self._released(evicted)

    def clear(self) -> None:
        """Removes all values."""
        with self._lock:
            while self._entries:
                _, value = self._entries.popitem()
                self._bytes -= self._released(value)

    def _taken(self, value: V) -> int:
        """How many bytes more are in memory with this value."""
        return self._size(value)

    def _released(self, value: V) -> int:
        """How many bytes fewer are in memory without this value."""
        return self._size(value)

    def keys(self) -> list[K]:
        """The keys of all values that are kept."""
        with self._lock:
            return list(self._entries)

    @property
    def bytes(self) -> int:
        """The bytes that all values take together."""
        return self._bytes


class SharingLru(ByteLru[K, V]):
    """A cache of values that share pieces, told apart by identity. Each piece counts once, however many values have it.

    ``pieces`` gives the pieces of a value with their bytes. A value that takes memory itself is one of its pieces.
    """

    def __init__(self, bytes_max: int, pieces: Callable[[V], Iterable[tuple[object, int]]]) -> None:
        super().__init__(bytes_max, lambda value: sum(size for _, size in pieces(value)))
        self._pieces = pieces
        self._shared: dict[int, tuple[int, int]] = {}  # by identity: how many values have the piece, and its bytes

    def _taken(self, value: V) -> int:
        more = 0
        for piece, size in self._pieces(value):
            count, known = self._shared.get(id(piece), (0, size))
            self._shared[id(piece)] = count + 1, known
            more += 0 if count else known
        return more

    def _released(self, value: V) -> int:
        less = 0
        for piece, _ in self._pieces(value):
            count, size = self._shared.pop(id(piece))
            if count > 1:
                self._shared[id(piece)] = count - 1, size
            else:
                less += size
        return less
