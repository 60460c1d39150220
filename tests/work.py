"""Counts what a piece of work reads from a store: keys, not time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from lakemark_server.kv import Store


@dataclass
class Work:
    """``keys`` that were looked up, one by one or many at once; ``ranges`` that were read, and the ``rows`` in them.

    ``reads``: how often the store was asked, for keys or for a range.
    """

    keys: int = 0
    ranges: int = 0
    rows: int = 0
    reads: int = 0


class _Counted:
    """A snapshot of a store that counts its reads."""

    def __init__(self, snapshot: Any, work: Work) -> None:
        self._snapshot, self._work = snapshot, work

    def get(self, key: bytes) -> Any:
        self._work.keys += 1
        self._work.reads += 1
        return self._snapshot.get(key)

    def get_many(self, keys: Sequence[bytes]) -> Any:
        self._work.keys += len(keys)
        self._work.reads += 1
        return self._snapshot.get_many(keys)

    def get_range(self, *span: Any, **how: Any) -> Any:
        found = self._snapshot.get_range(*span, **how)
        self._work.ranges += 1
        self._work.reads += 1
        self._work.rows += len(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._snapshot, name)


@contextmanager
def counted(store: Store) -> Iterator[Work]:
    """Counts everything that is read from this store until the block ends."""
    work = Work()
    snapshot = store._snapshot  # type: ignore[attr-defined]
    with mock.patch.object(store, "_snapshot", side_effect=lambda: _Counted(snapshot(), work)):
        yield work
