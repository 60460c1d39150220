"""Writers that were refused before they began, lately and by this process.

A commit that is refused leaves its instant in the store, rolled back, with the reason. A writer that is refused when it
opens or starts its instant leaves nothing there: where many collide, those who lose should not have to write as well.
So the last of them are kept in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from lakemark_proto.v1 import timeline_pb2

REFUSALS_KEPT: Final = 1_000
REASON_CHARS_MAX: Final = 1_000


class Refusal(NamedTuple):
    """A writer that was refused. ``table`` and ``owner`` are as they were then; ``owner`` is not verified."""

    time_ms: int
    table_id: int
    table: str
    branch: str
    operation: timeline_pb2.Operation.ValueType
    owner: str
    reason: str


class Refusals:
    """The last ``REFUSALS_KEPT`` of all tables. Thread-safe."""

    def __init__(self) -> None:
        self._last: deque[Refusal] = deque(maxlen=REFUSALS_KEPT)

    def add(self, refusals: Iterable[Refusal]) -> None:
        """Keeps them."""
        self._last.extend(refusals)

    def newest(self, table_id: int | None = None, since_ms: int = 0) -> list[Refusal]:
        """Those of a table (None: of all) since a time, newest first."""
        return [
            refusal
            for refusal in reversed(self._last.copy())
            if refusal.time_ms >= since_ms and table_id in (None, refusal.table_id)
        ]
