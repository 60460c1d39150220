"""What an answer was made from: the keys that were read for it, with their values.

A function of its arguments and of what it reads gives the same answer as long as a read gives it the same values. So an
answer that is kept together with its readings can be given again after one cheap question, and is never stale. There
are three such questions, from the cheapest: whether a commit has begun since (``Store.writes_begun``), whether the
newest commit is still the same (``ReadTransaction.version``, one read for all answers that are asked for at a time),
and whether the values are still the same.

The readings of a request are noted ambiently, like its deadline: the store lies below many callers that have nothing to
do with it. Only the reads of keys are noted. What reads a range, or goes through a transaction that may write, leaves
readings that are not whole; who makes an answer says by ``lasts`` that it depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

from .api import KeyValue, ReadTransaction, Store

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Readings:
    """Keys and the values that they had.

    ``begun``: ``Store.writes_begun`` as it was before the values were last found; ``version``: that of a snapshot which
    had them. None: not known.
    """

    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    begun: int | None = None
    version: int | None = None

    @property
    def size_bytes(self) -> int:
        """Of the keys and the values."""
        return sum(map(len, self.keys)) + sum(len(value) for value in self.values if value is not None)

    def hold_at_once(self, store: Store) -> bool | None:
        """Whether a read would give the same values; None if that cannot be told without waiting.

        Reads nothing if nothing was written since the last time.
        """
        begun = store.writes_begun()
        if begun is not None and self.begun == begun:
            return True
        values = store.read_at_once(self.keys)
        if values is None:
            return None
        if values != self.values:
            return False
        self.begun = begun
        return True


def hold_together(store: Store, all_readings: Sequence[Readings]) -> list[bool]:
    """Which of the readings a read would give the same values for, by one read of the store, which begins now.

    The values are read only of those that were last found in another version. Raises what ``Store.read`` raises.
    """

    def body(tx: ReadTransaction) -> tuple[int, dict[bytes, bytes | None]]:
        version = tx.version()
        unsure = [one for one in all_readings if one.version != version]
        keys = list(dict.fromkeys(key for one in unsure for key in one.keys))
        return version, dict(zip(keys, tx.get_many(keys), strict=True)) if keys else {}

    version, values = store.read(body)
    holding = []
    for one in all_readings:
        holds = one.version == version or [values[key] for key in one.keys] == one.values
        if holds:
            one.version = version
        holding.append(holds)
    return holding


class Noting:
    """The reads of one request so far; ``whole`` while there were only reads of keys, each with one value."""

    __slots__ = ("lasting", "values", "whole")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self.whole = True
        self.lasting = False  # see ``lasts``

    def note(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Notes what keys were read, and that they had these values."""
        known = self.values
        for key, value in zip(keys, values, strict=True):
            if known.setdefault(key, value) != value:  # changed between two transactions of the request
                self.whole = False

    def reading(self, tx: ReadTransaction) -> ReadTransaction:
        """The transaction, whose reads are noted."""
        return _Noted(tx, self)

    def readings(self, begun: int | None) -> Readings | None:
        """What was read; None if that is not all that the answer was made from. ``begun``: from before the first."""
        if not self.whole or not self.values:
            return None
        return Readings(list(self.values), list(self.values.values()), begun)


_current: Final[ContextVar[Noting | None]] = ContextVar("noting", default=None)


@contextmanager
def noting() -> Iterator[Noting]:
    """Notes the reads of this context."""
    made = Noting()
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)


def current() -> Noting | None:
    """Where the reads of the current request are noted, if they are."""
    return _current.get()


def lasts() -> None:
    """Says that the answer that is being made is a function of its request, of what is read of the store for it, and of
    nothing that changes: not of the time, of chance, of the caller, or of what is kept in memory."""
    noted = _current.get()
    if noted is not None:
        noted.lasting = True


def not_whole() -> None:
    """Says that the current request depends on what cannot be found out by reading its keys again."""
    noted = _current.get()
    if noted is not None:
        noted.whole = False


def noted_read(body: Callable[[ReadTransaction], T], tx: ReadTransaction) -> T:
    """``body(tx)``, whose reads are noted if those of this context are."""
    noted = _current.get()
    return body(tx) if noted is None else body(noted.reading(tx))


class _Noted:
    def __init__(self, tx: ReadTransaction, noted: Noting) -> None:
        self._tx = tx
        self._noted = noted

    def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        value = self._tx.get(key, snapshot=snapshot)
        self._noted.note((key,), (value,))
        return value

    def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]:
        values = self._tx.get_many(keys, snapshot=snapshot)
        self._noted.note(keys, values)
        return values

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[KeyValue]:
        self._noted.whole = False
        return self._tx.get_range(begin, end, limit=limit, reverse=reverse, snapshot=snapshot)

    def version(self) -> int:
        self._noted.whole = False
        return self._tx.version()
