"""Counters with limits, of things that the whole store has, which conflict with nothing.

A limit is checked with a snapshot read, so it may be exceeded by what is asked for at the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakemark_core.errors import LimitExceeded
from lakemark_server.kv import ReadTransaction, Space, Transaction, counter


class Counts:
    """The counters of one key space. ``words``: by counter, what is counted, and what to do if there is too much."""

    def __init__(self, space: Space, words: Mapping[str, tuple[str, str]]) -> None:
        self._space, self._words = space, words

    def add(self, tx: Transaction, what: str, amount: int) -> None:
        """Changes a counter."""
        if amount:
            tx.add(self._space.key(what), amount)

    def read(self, tx: ReadTransaction, what: str) -> int:
        """The value of a counter, by a snapshot read."""
        return counter(tx.get(self._space.key(what), snapshot=True))

    def check(self, tx: ReadTransaction, what: str, amount: int, allowed: int) -> None:
        """Raises LimitExceeded if ``amount`` more are too many."""
        used = self.read(tx, what)
        if used + amount > allowed:
            words, advice = self._words[what]
            raise LimitExceeded(
                f"there are {used:,} {words}, {amount:,} more were asked for, and there may be {allowed:,}: {advice}"
            )
