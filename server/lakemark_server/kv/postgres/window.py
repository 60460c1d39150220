"""What the commits of the last seconds wrote, as every process knows it: the resolver, fed from the store's log.

Versions count microseconds of the server's clock, as FoundationDB's do, and always grow. A version that was lost in a
failover is therefore not given again, and a transaction that read it is told apart from one that read what is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from ..api import TRANSACTION_SECONDS_MAX
from ..reads import Clock
from ..resolver import KeyRange, Resolver, Verdict
from ..write_sets import decode_writes

# Longer than a transaction lives, so that it is never too old for having waited for its turn.
LOG_SECONDS: Final = 2 * TRANSACTION_SECONDS_MAX
_MARK_SECONDS: Final = 1.0


class Window(Resolver):
    """A resolver that admits only reads at versions that it has seen. Used by one thread."""

    def __init__(self, version: int, clock: Clock) -> None:
        super().__init__(version)
        self._known = {version}
        self._clock = clock
        # (seconds, version): which version was the newest then.
        self._marks: deque[tuple[float, int]] = deque()

    def check(self, read_version: int, read_keys: Iterable[bytes], read_ranges: Iterable[KeyRange]) -> Verdict:
        if read_version not in self._known:
            return Verdict.TOO_OLD
        return super().check(read_version, read_keys, read_ranges)

    def seal(self, version: int) -> None:
        super().seal(version)
        self._known.add(version)

    def restart(self, version: int) -> None:
        super().restart(version)
        self._known = {version}
        self._marks.clear()

    def follow(self, entries: Sequence[tuple[int, bytes]]) -> None:
        """Takes in the log's entries from the newest version on that was known, in order; there must be one.

        If that version itself is not among them, this process slept for longer than the log reaches back, or history
        was lost in a failover: what was read before the first entry is too old.
        """
        first = entries[0][0]
        if first != self.newest:
            self.restart(first)
        for version, writes in entries[1:]:
            self.record(*decode_writes(writes))
            self.seal(version)

    def due(self) -> int | None:
        """About once a second, the version before which the log may be cut; None otherwise."""
        now = self._clock()
        if self._marks and now - self._marks[-1][0] < _MARK_SECONDS:
            return None
        self._marks.append((now, self.newest))
        old = None
        while now - self._marks[0][0] > LOG_SECONDS:
            old = self._marks.popleft()[1]
        if old is not None:
            self.forget(old)
            self._known = {version for version in self._known if version >= old}
        return old
