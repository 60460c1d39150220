"""What the commits of the last seconds wrote: a resolver that every process feeds from the store's log.

Versions are microseconds of the server's clock, as FoundationDB's are, and always grow. So a version that was lost in a
failover is not given again, and a transaction that read it is recognized.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from ..api import TRANSACTION_SECONDS_MAX
from ..reads import Clock
from ..resolver import KeyRange, Resolution, Resolver
from ..write_sets import decode_writes

# Longer than a transaction lives, so that waiting for the turn never makes it too old.
LOG_SECONDS: Final = 2 * TRANSACTION_SECONDS_MAX
_MARK_SECONDS: Final = 1.0


class Window(Resolver):
    """A resolver that admits reads only at versions that it knows. Used by one thread."""

    def __init__(self, version: int, clock: Clock) -> None:
        super().__init__(version)
        self._known = {version}
        self._clock = clock
        # (seconds, version): the newest version at that time.
        self._marks: deque[tuple[float, int]] = deque()

    def check(self, read_version: int, read_keys: Iterable[bytes], read_ranges: Iterable[KeyRange]) -> Resolution:
        if read_version not in self._known:
            return Resolution.TOO_OLD
        return super().check(read_version, read_keys, read_ranges)

    def seal(self, version: int) -> None:
        super().seal(version)
        self._known.add(version)

    def restart(self, version: int) -> None:
        super().restart(version)
        self._known = {version}
        self._marks.clear()

    def follow(self, entries: Sequence[tuple[int, bytes]]) -> None:
        """Records the log's entries in order, from the newest known version on. There must be at least one.

        If the first entry is not that version, this process slept for longer than the log reaches back, or history was
        lost in a failover. Reads from before the first entry are then too old.
        """
        first = entries[0][0]
        if first != self.newest:
            self.restart(first)
        for version, writes in entries[1:]:
            self.record(*decode_writes(writes))
            self.seal(version)

    def due(self) -> int | None:
        """About once a second, the version before which the log may be trimmed; None at other times."""
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
