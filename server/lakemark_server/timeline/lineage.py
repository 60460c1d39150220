"""Where the versions of a branch are kept: its own, and below the fork its parent's.

A branch's lineage never changes, so it can be cached for ever under the branch's key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lakemark_server.store.keyspace import MAIN


@dataclass(frozen=True, slots=True)
class Lineage:
    """``forks``: (branch key, version from which on the versions are its own - 1), from the branch itself to main.

    So ``(("b#7", 5), ("main", 0))`` is a branch of main with main's versions 1 to 5, and its own from 6 on.
    """

    forks: tuple[tuple[str, int], ...]

    @property
    def key(self) -> str:
        return self.forks[0][0]

    def owner(self, version: int) -> str:
        """The key of the branch that holds this version."""
        return next(key for key, fork in self.forks if version > fork or key == MAIN)

    def segments(self, after: int, upto: int) -> Iterator[tuple[str, int, int]]:
        """(branch key, after, upto) for the versions ``after < version <= upto``, oldest first."""
        segments = []
        for key, fork in self.forks:
            low = max(after, fork)
            if upto > low:
                segments.append((key, low, upto))
            upto = min(upto, fork)
        return reversed(segments)

    def common(self, latest: int, other: Lineage, other_latest: int) -> int:
        """The last version that this branch, at ``latest``, shares with another one at ``other_latest``."""
        upto = latest
        for key, fork in self.forks:
            other_upto = other_latest
            for other_key, other_fork in other.forks:
                if other_key == key:
                    return min(upto, other_upto)
                other_upto = min(other_upto, other_fork)
            upto = min(upto, fork)
        return 0

    def at(self, version: int) -> Lineage:
        """The lineage of the branch that holds this version, which is the same for all branches that share it."""
        owner = self.owner(version)
        place = next(at for at, (key, _) in enumerate(self.forks) if key == owner)
        return Lineage(self.forks[place:])


def alone(key: str) -> Lineage:
    """For versions that the branch itself has, without those of its parents."""
    return Lineage(((key, 0),))


OF_MAIN: Final = Lineage(((MAIN, 0),))
